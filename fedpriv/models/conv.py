"""Convolution whose backward passes are fast, too.

XLA's CPU backend computes a *forward* convolution in the canonical NHWC/HWIO layout near the speed of its matrix
product, but the transposed forms that autodiff makes of it (above all the weight's gradient) more than ten times
slower. A convolution is bilinear, so it is a primitive here whose transposes are forward convolutions again. Batching
an image folds into the batch, so that `vmap` of a one-example loss costs no more than a batched one. Where channels are
many, Winograd's algorithm (`winograd.py`) computes it, forward or for the weight's gradient, in half the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching

from fedpriv.core.materialized import materialized
from fedpriv.models import winograd
from fedpriv.models.custom_primitive import primitive_of

_WIDE = 32  # channels


def conv_same(x: jax.Array, w: jax.Array) -> jax.Array:
    """Cross-correlation with stride 1 and the zero padding that keeps the image's size.

    Args:
      x: f32[n, height, width, channels_in].
      w: f32[kernel, kernel, channels_in, channels_out], kernel odd.

    Returns:
      f32[n, height, width, channels_out], equal to `lax.conv_general_dilated(x, w, (1, 1), "SAME")`.

    Raises:
      ValueError: an even kernel.
    """
    if w.shape[0] % 2 == 0 or w.shape[1] % 2 == 0:
        raise ValueError(f"w: kernel {w.shape[:2]} has an even size; conv_same needs odd sizes")
    return _conv.bind(x, w)


def conv_general_dilated(
    x: jax.Array,
    w: jax.Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    **kwargs: object,
) -> jax.Array:
    """`lax.conv_general_dilated` for `flax.linen.Conv(conv_general_dilated=...)`: fast where `conv_same` applies.

    x, w and the result, f32[...], are laid out as there.

    Raises:
      ValueError: shapes that do not fit, as there.
    """
    dilated: set[Any] = {kwargs.get(f"{side}_dilation") or (1,) for side in ("lhs", "rhs")}
    unit_steps = {*window_strides, *(i for d in dilated for i in d)} == {1}
    grouped = kwargs.get("feature_group_count", 1) != 1
    odd = w.shape[0] % 2 == 1 and w.shape[1] % 2 == 1
    if padding == "SAME" and unit_steps and odd and not grouped and x.ndim == 4:
        return conv_same(x, w)
    return lax.conv_general_dilated(x, w, window_strides, padding, **kwargs)  # type: ignore[arg-type]


def _forward(x: jax.Array, w: jax.Array) -> jax.Array:
    return winograd.forward(x, w) if winograd.forward_pays(x, w) else summed_forward(x, w)


def summed_forward(x: jax.Array, w: jax.Array) -> jax.Array:
    """A convolution, f32[n, h, width, ci] and f32[kh, kw, ci, co] -> f32[n, h, width, co], by the sum itself."""
    folds = _folds(x.shape[2], w.shape[1], w.shape[3])
    out = _rows_same(_folded_image(x, w.shape[1], folds), _folded_kernel(w, folds), w.shape[0])
    return out.reshape(*x.shape[:3], w.shape[3])


def _input_cotangent(dy: jax.Array, w: jax.Array) -> jax.Array:
    """dy correlated with w flipped in space and transposed in channels."""
    return _forward(dy, jnp.flip(w, (0, 1)).swapaxes(2, 3))


def _weight_cotangent(x: jax.Array, dy: jax.Array, *, kernel: Sequence[int]) -> jax.Array:
    dw = jax.ShapeDtypeStruct((*kernel, x.shape[3], dy.shape[3]), dy.dtype)
    pays = winograd.weight_cotangent_pays(x, dw)
    return (winograd.weight_cotangent if pays else summed_weight_cotangent)(x, dy, kernel)


def summed_weight_cotangent(x: jax.Array, dy: jax.Array, kernel: Sequence[int]) -> jax.Array:
    """A convolution's f32[n, h, width, ci] and f32[n, h, width, co] -> f32[kh, kw, ci, co], by the sum itself.

    x is correlated with dy, the batch as contracted channel: [ci,h,w,n] * [h,w,n,co] -> [ci,kh,kw,co].
    """
    n, h, width, c_out = dy.shape
    folds = _folds(width, kernel[1], c_out)
    x = _folded_image(x, kernel[1], folds).transpose(3, 1, 2, 0)
    dy = dy.reshape(n, h, width // folds, folds * c_out).transpose(1, 2, 0, 3)
    # The barrier keeps XLA from folding the transposes into the convolution, which would be the slow form again.
    x, dy = lax.optimization_barrier((x, dy))
    folded = _rows_same(x, dy, kernel[0]).transpose(1, 2, 0, 3)
    return _unfolded(folded, kernel, x.shape[0] // folds, c_out, folds)


def _rows_same(x: jax.Array, w: jax.Array, kernel_height: int) -> jax.Array:
    """The correlation that keeps the height; the width is padded already."""
    rows = kernel_height // 2
    return lax.conv_general_dilated(
        x, w, (1, 1), ((rows, rows), (0, 0)), dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


# XLA's CPU backend is several times slower per operation where few channels come out. There, neighbouring columns are
# folded into the channels, of the image and of the result: with 4 columns in one, a kernel of 5 columns and 8 channels
# out takes 8/5 of the operations, at the speed of 32 channels.


def _folds(width: int, kernel_width: int, c_out: int) -> int:
    """How many columns become one: a divisor of the width, so that at most `_WIDE` channels come out."""
    most = min(_WIDE // c_out, kernel_width) if jax.default_backend() == "cpu" else 1
    return max(b for b in range(1, max(1, most) + 1) if width % b == 0)


def _blocks(kernel_width: int, folds: int) -> int:
    """Folded columns that all windows of one of the result's together need."""
    return -(-(kernel_width + folds - 1) // folds)


def _folded_image(x: jax.Array, kernel_width: int, folds: int) -> jax.Array:
    """f32[n, h, w, c] -> f32[n, h, padded w / folds, folds * c], padded as windows need it."""
    n, h, w, c = x.shape
    left = kernel_width // 2
    right = (w // folds + _blocks(kernel_width, folds) - 1) * folds - w - left
    return jnp.pad(x, ((0, 0), (0, 0), (left, right), (0, 0))).reshape(n, h, -1, folds * c)


def _folded_kernel(w: jax.Array, folds: int) -> jax.Array:
    """f32[kh, kw, ci, co] -> f32[kh, blocks, folds * ci, folds * co]: w for each column, where its window is."""
    kh, kw, c_in, c_out = w.shape
    room = _blocks(kw, folds) * folds - kw
    each = [jnp.pad(w, ((0, 0), (o, room - o), (0, 0), (0, 0))) for o in range(folds)]
    return jnp.stack(each, 3).reshape(kh, -1, folds * c_in, folds * c_out)


def _unfolded(
    folded: jax.Array, kernel: Sequence[int], c_in: int, c_out: int, folds: int
) -> jax.Array:
    """The cotangent of w, f32[kh, kw, c_in, c_out], of that of its `_folded_kernel`."""
    shape = jax.ShapeDtypeStruct((*kernel, c_in, c_out), folded.dtype)
    transpose = jax.linear_transpose(
        lambda w: _folded_kernel(w, folds).reshape(folded.shape), shape
    )
    return transpose(folded)[0]


_conv = primitive_of(_forward)
_conv_input = primitive_of(_input_cotangent)
_conv_weight = primitive_of(_weight_cotangent)

# With F(x, w) the convolution, I(dy, w) and W(x, dy) its cotangents: <F(x, w), dy> = <x, I(dy, w)> = <w, W(x, dy)>, so
# that each of the three has the other two as transposes, and gradients of gradients are fast as well.


def _weight_bind(x: jax.Array, dy: jax.Array, kernel: Sequence[int]) -> jax.Array:
    return _conv_weight.bind(x, dy, kernel=kernel)


ad.defbilinear(
    _conv,
    lambda dy, _, w: _conv_input.bind(dy, w),
    lambda dy, x, w: _weight_bind(x, dy, w.aval.shape[:2]),
)
ad.defbilinear(
    _conv_input,
    lambda dx, _, w: _conv.bind(dx, w),
    lambda dx, dy, w: _weight_bind(dx, dy, w.aval.shape[:2]),
)
ad.defbilinear(
    _conv_weight,
    lambda dw, _, dy, *, kernel: _conv_input.bind(dy, dw),
    lambda dw, x, _, *, kernel: _conv.bind(x, dw),
)


def _image_batching(primitive: Primitive, with_patches: Callable[..., jax.Array]) -> None:
    """Batching of (image, kernel): images fold into the batch; kernels of their own need a product per kernel."""

    def rule(args: Sequence[jax.Array], dims: Sequence[int | None]) -> tuple[jax.Array, int]:
        image, kernel = args
        image_dim, kernel_dim = dims
        if kernel_dim is None:
            image = jnp.moveaxis(image, image_dim or 0, 0)
            out = primitive.bind(image.reshape(-1, *image.shape[2:]), kernel)
            return out.reshape(*image.shape[:2], *out.shape[1:]), 0
        return jax.vmap(with_patches, in_axes=tuple(dims))(image, kernel), 0

    batching.primitive_batchers[primitive] = rule


@materialized
def _windows(x: jax.Array, *, size: int, axis: int) -> jax.Array:
    """f32[n, h, w, c] -> those around each row (axis 1) or column (axis 2), side by side as channels."""
    count = x.shape[axis] - size + 1
    each = [lax.slice_in_dim(x, i, i + count, axis=axis) for i in range(size)]
    return jnp.concatenate(each, axis=3)


def _patches(x: jax.Array, kernel: Sequence[int], folds: int) -> jax.Array:
    """f32[n, h, w, c] -> f32[n * h * w / folds, numbers]: the windows of `kernel` around each folded column's pixels.

    Windows along rows first, then along columns: the second, larger step copies long runs, several times faster on CPU
    than picking numbers one by one.
    """
    rows = kernel[0] // 2
    x = jnp.pad(_folded_image(x, kernel[1], folds), ((0, 0), (rows, rows), (0, 0), (0, 0)))
    windows = _windows(_windows(x, size=_blocks(kernel[1], folds), axis=2), size=kernel[0], axis=1)
    return windows.reshape(-1, windows.shape[3])


def _forward_patches(x: jax.Array, w: jax.Array) -> jax.Array:
    folds = _folds(x.shape[2], *w.shape[1::2])
    kernel = _folded_kernel(w, folds)
    out = _patches(x, w.shape[:2], folds) @ kernel.reshape(-1, kernel.shape[3])
    return out.reshape(*x.shape[:3], w.shape[3])


def _input_patches(dy: jax.Array, w: jax.Array) -> jax.Array:
    return _forward_patches(dy, jnp.flip(w, (0, 1)).swapaxes(2, 3))


def _weight_patches(x: jax.Array, dy: jax.Array, *, kernel: Sequence[int]) -> jax.Array:
    c_in, c_out = x.shape[3], dy.shape[3]
    folds = _folds(x.shape[2], kernel[1], c_out)
    # With the few channels out as rows, and turned round afterwards: up to three times faster on CPU.
    patches = _patches(x, kernel, folds)
    dw = lax.optimization_barrier(dy.reshape(-1, folds * c_out).T @ patches).T
    return _unfolded(dw, kernel, c_in, c_out, folds)


def _weight_batching(
    args: Sequence[jax.Array], dims: Sequence[int | None], *, kernel: Sequence[int]
) -> tuple[jax.Array, int]:
    return jax.vmap(partial(_weight_patches, kernel=kernel), in_axes=tuple(dims))(*args), 0


_image_batching(_conv, _forward_patches)
_image_batching(_conv_input, _input_patches)
batching.primitive_batchers[_conv_weight] = _weight_batching
