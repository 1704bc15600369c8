"""PyTorch's weights as the parameters of a model of JAX, entry by entry, by their names."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

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
        [channels, height, width], JAX [height, width, channels]. 1 for a layer that seems to read one, and does not.
      rest: parameters of the model, such as `model.init(key)`, for those without an entry, such as a new head.

    Raises:
      ValueError: an entry without a place, or two for one; a parameter without an entry, and no `rest`; another shape;
        batch normalisation or a transposed convolution of flax.linen; a layer that seems to read a flattened image, of
        which `flattened` says nothing.
    """
    require(isinstance(model, Model) and callable(model.init), "model", model, "give a Model")
    entries = _entries(state)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    wanted = named_leaves(shapes)
    if rest is not None:
        check_shapes("rest", rest, shapes)
    placed = _places(entries, layers or {}, wanted)
    _refuse_transposed(model, placed)
    channels = _channels(model, entries, placed, flattened or {})
    found = {} if rest is None else dict(named_leaves(rest))
    for path, name in placed.items():
        found[path] = _as_leaf(name, entries[name], channels.get(name, 1), path, wanted[path])
    if missing := [_short(path) for path in wanted if path not in found]:
        raise ValueError(
            f"state: no entry for {', '.join(missing[:5])}; name the layer in layers=, make the model without it "
            "(use_bias=False), or give rest=model.init(key)"
        )
    return jax.tree.unflatten(jax.tree.structure(shapes), [jnp.asarray(found[p]) for p in wanted])


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


def _channels(
    model: Model,
    entries: Mapping[str, np.ndarray],
    placed: Mapping[str, str],
    flattened: Mapping[str, Count],
) -> dict[str, int]:
    """Entry -> channels of the image that its last axis is, flattened.

    Raises:
      ValueError: a layer that is none of the state; channels that do not divide its inputs.
    """
    remedy = "give a dict, layer -> channels"
    require(isinstance(flattened, Mapping), "flattened", flattened, remedy)
    flat = {
        _outer(name): entries[name]
        for path, name in placed.items()
        if entries[name].ndim == (2 if path.endswith("kernel") else 1) and _last(name) == "weight"
    }
    found: dict[str, int] = {}
    for layer, given in flattened.items():
        channels = checked(f"flattened[{layer!r}]", given, Count)
        require(layer in flat, "flattened", layer, f"name a Linear or a norm, of {_some(flat)}")
        inputs = flat[layer].shape[-1]
        whole = inputs % channels == 0
        require(whole, f"flattened[{layer!r}]", channels, f"give a divisor of its {inputs} inputs")
        named = ("weight",) if flat[layer].ndim == 2 else ("weight", "bias")
        found |= {_joined(layer, last): channels for last in named}
    _check_told(model, entries, placed, found)
    return found


def _check_told(
    model: Model,
    entries: Mapping[str, np.ndarray],
    placed: Mapping[str, str],
    told: Mapping[str, int],
) -> None:
    """Raises ValueError: a layer of more inputs than the image before it has channels, of which nothing is told."""
    image: tuple[int, ...] = model.built.input.shape if model.built else ()
    channels = image[-1] if len(image) == 3 else 1
    paths = {name: path for path, name in placed.items()}
    for name, array in entries.items():
        kernel = paths[name].endswith("kernel")
        inputs = (
            array.shape[-1] if (kernel and array.ndim == 2) or paths[name].endswith("scale") else 0
        )
        if 1 < channels < inputs and name not in told:
            layer = _outer(name)
            raise ValueError(
                f"flattened: nothing of {layer}, which has {inputs} inputs after {channels} channels; give "
                f"flattened={{{layer!r}: {channels}}} if it reads such an image flattened, else 1"
            )
        if kernel and array.ndim > 1:
            channels = array.shape[0] if array.ndim > 2 else 1


def _as_leaf(name: str, array: np.ndarray, channels: int, path: str, leaf: Any) -> np.ndarray:
    """The entry as the leaf of that path, in its shape and type."""
    given, shape = array.shape, leaf.shape
    if channels > 1:
        array = array.reshape(*given[:-1], channels, -1).swapaxes(-1, -2).reshape(given)
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
