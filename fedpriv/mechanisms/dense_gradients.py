"""Gradients of single records of dense networks in closed form: none is ever formed."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.core.leaves import as_float
from fedpriv.core.parameters import check_params
from fedpriv.core.trees import widened
from fedpriv.core.types import Example, Params, PyTree
from fedpriv.mechanisms.outer_products import EXACT, counted, rounding
from fedpriv.mechanisms.per_example import Gradients, PerExample, RecordGradients


def dense_gradients(l2: float) -> Gradients:
    """What `per_example(model.loss, l2)` gives for `models.LogisticRegression` and `models.MLP`.

    A layer z = W^T x + b whose output has the error e = dloss / dz has the gradients x e^T + l2 W and e + l2 b, with
    the squared norms ||x||^2 ||e||^2 + 2 l2 e.(W^T x) + l2^2 ||W||^2 and ||e||^2 + 2 l2 e.b + l2^2 ||b||^2 (I.
    Goodfellow, arXiv:1510.01799). Since the sums may cancel, a bound on their rounding is added. In every product the
    batch is the long axis and the first factor is stored as it is used, which is fast on CPU. Barriers keep XLA from
    changing that order.

    Args:
      l2: weight of the regulariser, which belongs to each record's loss and is clipped with it.

    Raises:
      ValueError: when called, parameters of another model.
    """

    def gradients(params: Params, batch: Example) -> PerExample:
        check_params(params)
        names = _in_order(params)
        layers = [widened(params["params"][name]) for name in names]
        passed = _passed(layers, batch)

        def tree(of_layer: list[dict[str, jax.Array]]) -> PyTree:
            return {"params": dict(zip(names, of_layer, strict=True))}

        def weighted(weights: PyTree) -> Params:
            of_layer = zip(layers, passed, (weights["params"][n] for n in names), strict=True)
            return tree([_weighted(*parts, l2) for parts in of_layer])

        parts = list(zip(layers, passed, strict=True))
        return PerExample(
            tree([_norms(*p, l2) for p in parts]),
            weighted,
            lambda: tree([_each(*p, l2) for p in parts]),
        )

    return RecordGradients(gradients)


def _in_order(params: Params) -> list[str]:
    count = len(params["params"])
    names = [f"Dense_{i}" for i in range(count)]
    if set(names) != set(params["params"]):
        layers = ", ".join(params["params"])
        raise ValueError(
            f"params: layers {layers}; the closed form is that of LogisticRegression and MLP; leave closed_form out"
        )
    return names


class _Passed(NamedTuple):
    """What a batch is at a layer.

    Attributes:
      x: inputs, f32[B, in].
      along: W^T x, f32[out, B].
      error: f32[out, B].
    """

    x: jax.Array
    along: jax.Array
    error: jax.Array


def _passed(layers: list[dict[str, jax.Array]], batch: Example) -> list[_Passed]:
    """A forward and a backward pass."""
    images = widened(as_float(batch["image"]))
    x = images.reshape(images.shape[0], -1)
    inputs, alongs = [], []
    for layer in layers:
        inputs.append(x)
        alongs.append(_product(layer["kernel"].T, x.T))
        z = alongs[-1] + layer["bias"][:, None]
        x = jax.nn.relu(z).T
    label = _classes(batch["label"])
    error = jax.nn.softmax(z, axis=0) - jax.nn.one_hot(label, len(z), axis=0)
    errors = [error]
    for layer, x in zip(reversed(layers), reversed(inputs[1:]), strict=False):
        errors.append((layer["kernel"] @ errors[-1]) * (x.T > 0).astype(x.dtype))
    return [_Passed(*parts) for parts in zip(inputs, alongs, reversed(errors), strict=True)]


def _classes(label: jax.Array) -> jax.Array:
    """Raises ValueError: they are not one integer or boolean for each record."""
    if label.dtype == bool and label.ndim == 1:
        return label.astype(jnp.int32)
    if label.ndim != 1 or not jnp.issubdtype(label.dtype, jnp.integer):
        raise ValueError(
            f"label: {label.dtype}{list(label.shape[1:])} for an example; give the integer of its class, such as "
            "labels.astype(int), or labels.argmax(-1) of one-hot rows"
        )
    return label


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    """a b, a being stored by rows."""
    return jnp.matmul(lax.optimization_barrier(a), b, precision=EXACT)


def _norms(layer: dict[str, jax.Array], at: _Passed, l2: float) -> dict[str, jax.Array]:
    """f32[B] for each tensor of a layer."""
    bias = _squared(at.error, 0)
    kernel = _squared(at.x, 1) * bias
    if l2:
        sizes = [l2**2 * jnp.sum(layer[name] ** 2) for name in ("kernel", "bias")]
        margin = 2 * rounding(sum(layer["kernel"].shape))
        above = [margin * (s + size) for s, size in zip((kernel, bias), sizes, strict=True)]
        kernel += 2 * l2 * jnp.sum(at.error * at.along, 0) + sizes[0] + above[0]
        bias += 2 * l2 * jnp.sum(layer["bias"][:, None] * at.error, 0) + sizes[1] + above[1]
    return {"bias": jnp.sqrt(bias), "kernel": jnp.sqrt(kernel)}


def _squared(x: jax.Array, axis: int) -> jax.Array:
    """Squared norms, not too small where squares of small numbers become 0: the other factor may be large."""
    return jnp.sum(x**2, axis) + x.shape[axis] * jnp.finfo(jnp.float32).tiny


def _weighted(
    layer: dict[str, jax.Array], at: _Passed, weights: dict[str, jax.Array], l2: float
) -> dict[str, jax.Array]:
    def scaled(w: jax.Array) -> jax.Array:
        return jnp.where(w[None] != 0, at.error * w[None], 0.0)  # 0 times NaN would be NaN

    w = weights["kernel"]
    kernel = lax.optimization_barrier(_product(scaled(w), counted(at.x, w))).T
    bias = jnp.sum(scaled(weights["bias"]), 1)
    if l2:
        kernel += l2 * jnp.sum(w) * layer["kernel"]
        bias += l2 * jnp.sum(weights["bias"]) * layer["bias"]
    return {"bias": bias, "kernel": kernel}


def _each(layer: dict[str, jax.Array], at: _Passed, l2: float) -> dict[str, jax.Array]:
    """The layer's gradients, [B, ...]."""
    outer = at.x[:, :, None] * at.error.T[:, None, :]
    return {"bias": at.error.T + l2 * layer["bias"], "kernel": outer + l2 * layer["kernel"]}
