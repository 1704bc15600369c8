"""PyTorch's weights as the parameters of a model of JAX, entry by entry, by their names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.arguments import Count, checked
from fedpriv.core.complaints import require
from fedpriv.core.types import Params
from fedpriv.data.datasets.importers import of_tensor
from fedpriv.models.named_leaves import check_shapes, named_leaves, readable
from fedpriv.models.networks import Model

_WEIGHTS = ("kernel", "scale", "embedding")  # what flax calls a layer's weight
_STATE = "give what module.state_dict() returns"
_IN_PROJ = ("in_proj_weight", "in_proj_bias")
_RUNNING = ("running_mean", "running_var", "num_batches_tracked")


def pytorch_weights(
    model: Model,
    state: Mapping[str, Any],
    layers: Mapping[str, str] | None = None,
    *,
    flattened: Mapping[str, Count] | None = None,
    rest: Params | None = None,
) -> Params:
    """The parameters of `model` with the weights of a PyTorch module that computes the same.

    Every entry has one place, and every parameter one entry. Weights of Linear, [out, in], become kernels [in, out],
    those of convolutions, [out, in, height, width], become [height, width, in, out] (with 1 or 3 axes alike), those of
    LayerNorm, GroupNorm and RMSNorm scales. Embeddings, biases and a module's own parameters stay as they are.
    `nn.MultiheadAttention` becomes flax's, with `query`, `key`, `value` and `out` in heads.

    What is no weight has to agree as well, and is not checked: PyTorch's norms add 1e-5 to the variance, flax's 1e-6;
    PyTorch's GELU is exact, flax's is not; its convolutions are padded as they say, flax's to the same size. So compare
    the logits of some inputs.

    Args:
      model: with parameters that are called as flax's: kernel, scale, embedding, bias.
      state: entry -> array or tensor, as `module.state_dict()` and `safetensors.numpy.load_file` return.
      layers: PyTorch's name of a layer, of what holds several, or of an entry -> the model's, such as {"conv1":
        "Conv_0", "encoder": "backbone"}. The longest that fits an entry counts; others are called the same in both.
      flattened: Linear or norm -> channels of the image that it reads flattened, such as {"fc1": 64}: PyTorch flattens
        [channels, height, width], JAX [height, width, channels]. 1 for a layer that is wide enough to read one, and
        does not. You are not asked where neither a convolution nor the model's input says that there are images, as in
        a network of nnx of dense layers alone.
      rest: parameters of the model, such as `model.init(key)`, for those without an entry, such as a new head.

    Raises:
      ValueError: an entry without a place, or two for one; a parameter without an entry, and no `rest`; another shape;
        batch normalisation or a transposed convolution of flax.linen; a norm over several axes; a layer wide enough
        to read a flattened image, with two pixels or more, of which `flattened` says nothing.
    """
    require(isinstance(model, Model) and callable(model.init), "model", model, "give a Model")
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    wanted = named_leaves(shapes)
    if rest is not None:
        check_shapes("rest", rest, shapes)
    entries, placed, channels = placed_entries(model, state, layers, flattened, wanted)
    found = {} if rest is None else dict(named_leaves(rest))
    for path, name in placed.items():
        found[path] = _as_leaf(name, entries[name], channels.get(name, 1), path, wanted[path])
    if missing := [_short(path) for path in wanted if path not in found]:
        raise ValueError(
            f"state: no entry for {', '.join(missing[:5])}; name the layer in layers=, make the model without it "
            "(use_bias=False), or give rest=model.init(key)"
        )
    return jax.tree.unflatten(jax.tree.structure(shapes), [jnp.asarray(found[p]) for p in wanted])


class Placed(NamedTuple):
    """Where the entries of a state are in a model.

    Attributes:
      entries: the arrays by their names, of attention query, key and value apart.
      places: path of a leaf -> the entry whose place it is.
      channels: entry -> of the image that its last axis is, flattened; of others none, or 1.
    """

    entries: dict[str, np.ndarray]
    places: dict[str, str]
    channels: dict[str, int]


def placed_entries(
    model: Model,
    state: Mapping[str, Any],
    layers: Mapping[str, str] | None,
    flattened: Mapping[str, Count] | None,
    wanted: Mapping[str, Any],
) -> Placed:
    """Arguments and errors as those of `pytorch_weights`, of shapes aside.

    Args:
      wanted: the network's leaves by their paths, or their shapes.
    """
    entries = _entries(state)
    placed = _places(entries, layers or {}, wanted)
    _refuse_transposed(model, placed)
    inputs = _inputs(entries, placed)
    told = _told(entries, inputs, flattened or {})
    image = model.built.input.shape if model.built else ()
    _check_told(image, _convolutions(entries, placed, wanted), entries, inputs, told)
    return Placed(entries, placed, told)


def _entries(state: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arrays by their names; of attention query, key and value apart, as flax has them."""
    named = isinstance(state, Mapping) and all(isinstance(name, str) for name in state)
    require(named and len(state) > 0, "state", state, _STATE)
    entries: dict[str, np.ndarray] = {}
    attention = {_outer(name) for name in state if _last(name) in _IN_PROJ}
    for name, value in state.items():
        layer, last, array = _outer(name), _last(name), _weights(name, value)
        if last in _IN_PROJ:
            require(len(array) % 3 == 0, f"state[{name!r}]", array, "give query, key and value")
            kind = last.removeprefix("in_proj_")
            parts = (_joined(layer, part, kind) for part in ("query", "key", "value"))
            entries |= zip(parts, np.split(array, 3), strict=True)
        elif _last(layer) == "out_proj" and _outer(layer) in attention:
            entries[_joined(_outer(layer), "out", last)] = array
        else:
            entries[name] = array
    return entries


def _weights(name: str, value: Any) -> np.ndarray:
    if _last(name) in _RUNNING:
        raise ValueError(
            f"state: {name} is of batch normalisation, which mixes records; put it into the convolution before it by "
            "torch.nn.utils.fusion.fuse_conv_bn_eval, or take a network with GroupNorm"
        )
    array = of_tensor(value)
    floats = hasattr(array, "dtype") and jnp.issubdtype(array.dtype, jnp.floating)
    require(floats, f"state[{name!r}]", array, f"{_STATE}: floats, nothing else")
    array = np.asarray(array)
    finite = bool(np.isfinite(array).all())
    require(finite, f"state[{name!r}]", array, "give finite weights")
    return array


def _joined(*parts: str) -> str:
    return ".".join(filter(None, parts))


def _outer(name: str) -> str:
    return name.rpartition(".")[0]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _places(
    entries: Mapping[str, np.ndarray], layers: Mapping[str, str], wanted: Mapping[str, Any]
) -> dict[str, str]:
    """Path of a leaf -> the entry whose place it is."""
    named = isinstance(layers, Mapping) and all(
        isinstance(n, str) for n in [*layers, *layers.values()]
    )
    require(named, "layers", layers, "give a dict, PyTorch's name of a layer -> the model's")
    by_name = {_short(path): path for path in wanted}
    placed: dict[str, str] = {}
    used: set[str | None] = set()
    for name in entries:
        fits = [layer for layer in layers if f"{name}.".startswith(f"{layer}." if layer else "")]
        layer = max(fits, key=len, default=None)
        used.add(layer)
        parts = (name,) if layer is None else (layers[layer], name[len(layer) :].strip("."))
        place = _joined(*parts)
        weight = _last(place) == "weight"
        options = [place, *(_joined(_outer(place), kind) for kind in _WEIGHTS if weight)]
        there = [option for option in options if option in by_name]
        if len(there) != 1:
            raise ValueError(
                f"state: {name} has no place in the model, which has {_some(by_name)}; name its layer in layers=, or "
                "leave it out of the state"
            )
        path = by_name[there[0]]
        if path in placed:
            raise ValueError(
                f"state: {placed[path]} and {name} are both for {there[0]}; correct layers="
            )
        placed[path] = name
    if idle := set(layers) - used:
        raise ValueError(
            f"layers: {min(idle)!r} is in no entry of the state ({_some(entries)}); correct it"
        )
    return placed


def _inputs(entries: Mapping[str, np.ndarray], placed: Mapping[str, str]) -> dict[str, int]:
    """Entry -> inputs, of Linears and norms: what may read a flattened image."""
    return {
        name: entries[name].shape[-1]
        for path, name in placed.items()
        if entries[name].ndim == (2 if path.endswith("kernel") else 1)
        and path.endswith(("kernel", "scale"))
    }


def _told(
    entries: Mapping[str, np.ndarray], inputs: Mapping[str, int], flattened: Mapping[str, Count]
) -> dict[str, int]:
    """Entry -> channels of the image that its last axis is, flattened.

    Raises:
      ValueError: a layer that is none of the state; channels that do not divide its inputs.
    """
    remedy = "give a dict, layer -> channels"
    require(isinstance(flattened, Mapping), "flattened", flattened, remedy)
    layers = {_outer(name): name for name in inputs}
    found: dict[str, int] = {}
    for layer, given in flattened.items():
        channels = checked(f"flattened[{layer!r}]", given, Count)
        remedy = f"name a Linear or a norm, of {_some(layers)}"
        require(layer in layers, "flattened", layer, remedy)
        name = layers[layer]
        remedy = f"give a divisor of its {inputs[name]} inputs"
        require(inputs[name] % channels == 0, f"flattened[{layer!r}]", channels, remedy)
        norm = entries[name].ndim == 1
        found |= dict.fromkeys((name, _joined(layer, "bias")) if norm else (name,), channels)
    return found


def _convolutions(
    entries: Mapping[str, np.ndarray], placed: Mapping[str, str], wanted: Mapping[str, Any]
) -> list[tuple[int, int]]:
    """Channels in and out of the model's kernels that may be convolutions, also of those without an entry."""
    return [
        leaf.shape[-2:]
        for path, leaf in wanted.items()
        if path.endswith("kernel") and len(leaf.shape) > 2
        if path not in placed or entries[placed[path]].ndim > 2  # else it is of attention
    ]


def _check_told(
    image: tuple[int, ...],
    convolutions: Collection[tuple[int, int]],
    entries: Mapping[str, np.ndarray],
    inputs: Mapping[str, int],
    told: Mapping[str, int],
) -> None:
    """Raises ValueError: nothing is told of layers whose inputs are enough for two pixels of an image.

    That of any convolution, as the state's order is not that of the calls: safetensors sorts it. Without any, the
    model's input, whose shape `image` is, if it is known. And where a layer has as many inputs as that, it as a whole.
    """
    colours = image[-1] if len(image) > 2 else 1
    channels = {out for _, out in convolutions} or {colours}
    channels.discard(1)
    # A norm as wide as a convolution is one of its channels, unless a Linear as wide reads what is flattened.
    flat = {inputs[name] for name, count in told.items() if count > 1 and name in inputs}
    of_channels = {width for both in convolutions for width in both} - flat
    asked: dict[str, set[int]] = {}
    for name, width in inputs.items():
        enough = bool(channels) and width >= 2 * min(channels)
        norm = entries[name].ndim == 1 and width in of_channels
        possible = set(channels) if enough and not norm else set()
        if colours > 1 and width == prod(image):
            possible.add(colours)
        if possible and name not in told:
            asked[_outer(name)] = possible
    if asked:
        some = " or ".join(map(str, sorted(set().union(*asked.values()))))
        raise ValueError(
            f"flattened: nothing of {_some(asked)}; give flattened={{{', '.join(f'{n!r}: N' for n in asked)}}}, of "
            f"each the channels of the image that it reads flattened, such as {some}, or 1 if it reads none"
        )


def _as_leaf(name: str, array: np.ndarray, channels: int, path: str, leaf: Any) -> np.ndarray:
    """The entry as the leaf of that path, in its shape and type."""
    given, shape = array.shape, leaf.shape
    if path.endswith("scale") and _last(name) == "weight" and array.ndim > 1:
        raise ValueError(
            f"state: {name} of {list(given)} is of a norm over {array.ndim} axes, which may be in another order here; "
            "leave its weight and bias out, give rest=, and put them into the parameters yourself"
        )
    array = channels_last(array, channels)
    if path.endswith("kernel") and array.ndim > 1:
        array = np.moveaxis(array, (0, 1), (-1, -2))
    heads = len(shape) == array.ndim + 1 and prod(shape) == array.size
    if heads and (array.ndim == 1 or shape[0] == array.shape[0] or shape[-1] == array.shape[-1]):
        array = array.reshape(shape)
    if array.shape != shape:
        raise ValueError(
            f"state: {name} of {list(given)} is {list(array.shape)} here, but {_short(path)} of the model has "
            f"{list(shape)}; give both the same layer (of Hugging Face's Conv1D, the transposed weight)"
        )
    return array.astype(leaf.dtype)


def channels_last(array: np.ndarray, channels: int) -> np.ndarray:
    """With its last axis, [channels, pixels] of a flattened image, in the order of [pixels, channels]."""
    if channels == 1:
        return array
    return array.reshape(*array.shape[:-1], channels, -1).swapaxes(-1, -2).reshape(array.shape)


def _refuse_transposed(model: Model, placed: Mapping[str, str]) -> None:
    """Raises ValueError: an entry is for a transposed convolution, which shapes alone do not always tell."""
    if model.built is None:
        return
    found: list[str] = []

    def seen(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        if isinstance(context.module, nn.ConvTranspose):
            found.append(".".join(context.module.path))
        return call(*args, **kwargs)

    with nn.intercept_methods(seen):
        jax.eval_shape(model.built.module.init, jax.random.key(0), model.built.input)
    for path, name in placed.items():
        if _outer(_short(path)) in found:
            raise ValueError(
                f"state: {name} is for {_short(path)} of a transposed convolution, which is not mapped; take another "
                "layer, or put its weights into the parameters yourself"
            )


def _short(path: str) -> str:
    """A leaf's name without the outermost dict of flax.linen."""
    return readable(path).removeprefix("params.")


def _some(names: Any) -> str:
    listed = list(names)
    return ", ".join(listed[:6]) + ", ..." * (len(listed) > 6) or "nothing"
