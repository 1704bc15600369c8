"""Low-rank adapters in the files of Hugging Face's PEFT, which adapts modules of PyTorch, and back. No PEFT is needed.

In a folder are `adapter_config.json` and `adapter_model.safetensors`. Of a Linear [out, in] PEFT adds (lora_alpha / r)
lora_B lora_A to the weight, lora_A of [r, in] and lora_B of [out, r]: transposed, the A [in, r] and B [r, out] of
`fp.models.adapters`. So are those of an Embedding, which PEFT calls lora_embedding_A and lora_embedding_B.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.arguments import Count, Positive, check_path, checked
from fedpriv.core.array_arguments import check_numbers
from fedpriv.core.complaints import require
from fedpriv.core.files import replacing, to_disk
from fedpriv.core.types import Params
from fedpriv.models.adapter_shapes import Adapter
from fedpriv.models.named_leaves import check_shapes, named_leaves, readable
from fedpriv.models.networks import Model
from fedpriv.models.pytorch_weights import channels_last, placed_entries

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_PREFIX = "base_model.model."  # before a module's name
_FACTORS = {
    "kernel": ("lora_A.weight", "lora_B.weight"),
    "embedding": ("lora_embedding_A", "lora_embedding_B"),
}
_NOT_ALIKE = "make adapters of the same layers and ranks by fp.models.adapters"
# What a config may say without a change of what is computed of the two factors.
_KNOWN = {
    "r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "peft_type", "target_modules",
    "exclude_modules", "layers_to_transform", "layers_pattern", "base_model_name_or_path", "revision",
    "task_type", "inference_mode", "auto_mapping", "lora_dropout", "fan_in_fan_out", "peft_version",
    "megatron_core", "qalora_group_size", "loftq_config", "bias", "init_lora_weights",
    "ensure_weight_tying",
}  # fmt: skip
_VALUES: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "init_lora_weights": (True, False, None, "gaussian", "orthogonal"),  # others change the base
}


class _Module(NamedTuple):
    """A module of PyTorch that has an adapter.

    Attributes:
      name: such as encoder.fc1.
      channels: of the image that it reads flattened, or 1.
      keys: of its two factors in the file.
      adapter: its shapes.
    """

    name: str
    channels: int
    keys: tuple[str, str]
    adapter: Adapter

    @property
    def alpha(self) -> int | float:
        alpha = self.adapter.factor * self.adapter.rank
        return round(alpha) if abs(alpha - round(alpha)) < 1e-9 * alpha else alpha

    @property
    def exactly(self) -> str:
        """The regular expression of its name alone, where PEFT looks for what a name ends in."""
        return f"^{re.escape(self.name)}"


def save_peft(
    folder: str | os.PathLike[str],
    model: Model,
    params: Params,
    state: Mapping[str, Any],
    layers: Mapping[str, str] | None = None,
    *,
    flattened: Mapping[str, Count] | None = None,
    base_model: str = "",
) -> None:
    """Writes adapters of Linears and Embeddings for `peft.PeftModel.from_pretrained(module, folder)`.

    The module is that whose weights the base are, by `pytorch_weights`. With the adapters it computes what the model
    does: PEFT's products of two factors are the model's.

    Args:
      folder: is made; files of its adapter are replaced.
      model: of `adapters`.
      params: of it, such as `history.params()`.
      state, layers, flattened: as `pytorch_weights` was given for the base; of `state` names and shapes are used.
      base_model: what the files call the base, such as its name on Hugging Face.

    Raises:
      ValueError: another model; parameters of another; as `pytorch_weights`; an adapter that PEFT has not: of a
        convolution, of layers that are scanned, of attention's `in_proj_weight`, of a module's own parameter.
      OSError: the files cannot be written.
    """
    from safetensors import numpy

    check_path("folder", folder, "give the path of a folder to make")
    require(isinstance(base_model, str), "base_model", base_model, "give a name, or leave it out")
    modules = _modules(model, state, layers, flattened)
    check_shapes("params", params, _shapes(model))
    arrays = {}
    for path, module in modules.items():
        factors = [np.asarray(params[path][name]).T for name in "AB"]
        factors[0] = channels_last(factors[0], module.adapter.rows // module.channels)
        for key, factor in zip(module.keys, factors, strict=True):
            check_numbers(f"params {readable(path)}", factor)
            arrays[key] = np.ascontiguousarray(factor)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    with replacing(place / WEIGHTS) as weights, replacing(place / CONFIG) as config:
        weights.write_bytes(numpy.save(arrays, metadata={"format": "pt"}))
        to_disk(weights)
        config.write_text(json.dumps(_config([*modules.values()], base_model), indent=2) + "\n")


def load_peft(
    folder: str | os.PathLike[str],
    model: Model,
    state: Mapping[str, Any],
    layers: Mapping[str, str] | None = None,
    *,
    flattened: Mapping[str, Count] | None = None,
) -> Params:
    """The parameters of `model` with the adapters of a folder that PEFT, or `save_peft`, has written.

    Their products are the same. Where lora_alpha differs from the model's alpha, B is scaled.

    Args:
      folder: it may come from anybody: nothing in it is executed.
      model: of `adapters`, with the same layers and ranks, on the base that PEFT's are for.
      state, layers, flattened: as `pytorch_weights` was given for the base; of `state` names and shapes are used.

    Raises:
      ValueError: another model; no such files, or damaged ones; other layers or ranks; what is more than LoRA, such as
        DoRA, biases, or weights that PEFT initialised by a change of the base; numbers that are not finite; as
        `save_peft`.
    """
    check_path("folder", folder, "give the folder of an adapter")
    modules, place = _modules(model, state, layers, flattened), Path(folder)
    config, arrays = _config_in(place / CONFIG), _arrays_in(place / WEIGHTS)
    keys = {key for module in modules.values() for key in module.keys}
    for key in sorted(keys ^ set(arrays)):
        where = "the folder" if key in arrays else "the model"
        raise ValueError(
            f"{place / WEIGHTS}: {key!r:.200} is of {where} alone; {_NOT_ALIKE}, without what is more than LoRA"
        )
    shapes = _shapes(model)
    return {
        path: _factors(place, module, [arrays[key] for key in module.keys], config, shapes[path])
        for path, module in modules.items()
    }


def _modules(
    model: Model,
    state: Mapping[str, Any],
    layers: Mapping[str, str] | None,
    flattened: Mapping[str, Count] | None,
) -> dict[str, _Module]:
    """Path of an adapted leaf -> the module whose weight it is."""
    fits = isinstance(model, Model) and bool(model.adapted) and model.merged is not None
    require(fits, "model", model, "give what fp.models.adapters makes")
    assert model.merged is not None
    wanted = named_leaves(jax.eval_shape(model.merged, _shapes(model)))
    entries, places, channels = placed_entries(model, state, layers, flattened, wanted)
    found = {}
    for path, adapter in model.adapted:
        name = places.get(path, "")
        kind = path.rpartition(".")[2]
        if said := _lacking(adapter, kind, name, np.shape(entries.get(name, 0)), name in state):
            raise ValueError(
                f"model: the adapter of {readable(path)} {said}; leave it out by where= of fp.models.adapters"
            )
        module = name.removesuffix(".weight")
        a, b = (f"{_PREFIX}{module}.{factor}" for factor in _FACTORS[kind])
        found[path] = _Module(module, channels.get(name, 1), (a, b), adapter)
    return found


def _lacking(
    adapter: Adapter, kind: str, name: str, shape: tuple[int, ...], is_entry: bool
) -> str | None:
    """Why PEFT has no such adapter; None where it has.

    Args:
      kind: of the leaf.
      name: of the entry whose place it is.
      shape: of that.
      is_entry: whether the state has it so, not as a part of attention's.
    """
    if adapter.layers:
        return "is of layers that are scanned, which PEFT has not"
    if not name:
        return "is of a leaf for which the state has no entry"
    if not is_entry:
        return (
            "is of attention whose query, key and value are one entry, which PEFT adapts as a whole"
        )
    if kind not in _FACTORS or not name.endswith(".weight") or len(shape) != 2:
        return f"is for {name} {list(shape)}, not for the weight of a Linear or an Embedding"
    if (adapter.rows, adapter.columns) != (shape[::-1] if kind == "kernel" else shape):
        return f"is of a matrix {adapter.rows} x {adapter.columns}, but {name} is {list(shape)}"
    return None


def _shapes(model: Model) -> Params:
    return jax.eval_shape(model.init, jax.random.key(0))


def _config(modules: list[_Module], base_model: str) -> dict[str, Any]:
    first = modules[0]
    rank, alpha = first.adapter.rank, first.alpha
    return {
        "peft_type": "LORA",
        "base_model_name_or_path": base_model or None,
        "task_type": None,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": alpha,
        "rank_pattern": {m.exactly: m.adapter.rank for m in modules if m.adapter.rank != rank},
        "alpha_pattern": {m.exactly: m.alpha for m in modules if m.alpha != alpha},
        # As an expression of whole names: those of a list would be found at the ends of others', too.
        "target_modules": "|".join(re.escape(module.name) for module in modules),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "init_lora_weights": True,
    }


def _config_in(file: Path) -> dict[str, Any]:
    """What the file says, if it is of LoRA alone."""
    try:
        config = json.loads(file.read_bytes())
        for name, patterns, kind in (
            ("r", "rank_pattern", Count),
            ("lora_alpha", "alpha_pattern", Positive),
        ):
            checked(name, config[name], kind)
            for pattern, number in (config.get(patterns) or {}).items():
                re.compile(pattern)
                checked(f"{patterns} {pattern!r:.100}", number, kind)
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        re.error,
    ) as e:
        raise _damaged(file, e) from None
    for name, value in config.items():
        if (value and name not in _KNOWN) or value not in _VALUES.get(name, (value,)):
            raise ValueError(
                f"{file}: {name!r:.100} is {value!r:.100}, which is not mapped; give an adapter of plain LoRA"
            )
    return config


def _arrays_in(file: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError, numpy

    try:
        return numpy.load_file(file)
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise _damaged(file, error) from None


def _damaged(file: Path, error: Exception) -> ValueError:
    said = " ".join(str(error).split())
    return ValueError(
        f"{file}: it cannot be read ({type(error).__name__}: {said:.200}); give the folder of an adapter of PEFT"
    )


def _factors(
    place: Path, module: _Module, given: list[np.ndarray], config: dict[str, Any], shapes: Params
) -> dict[str, jax.Array]:
    a, b = (factor.T for factor in given)
    for name, factor in (("A", a), ("B", b)):
        if factor.shape != shapes[name].shape:
            raise ValueError(
                f"{place / WEIGHTS}: {name} of {module.name} is {list(factor.shape)} there, "
                f"{list(shapes[name].shape)} in the model; {_NOT_ALIKE}"
            )
        check_numbers(f"{place / WEIGHTS}: {module.name}", factor)
    patterns = config.get("alpha_pattern") or {}
    fits = (key for key in patterns if re.match(rf"(.*\.)?({key})$", module.name))
    alpha = patterns.get(next(fits, None), config["lora_alpha"])
    rank = module.adapter.rank
    scale = alpha / (rank**0.5 if config.get("use_rslora") else rank) / module.adapter.factor
    a = channels_last(np.ascontiguousarray(a.T), module.channels).T
    with np.errstate(over="ignore", invalid="ignore"):  # infinity and NaN, which are refused
        b = b if scale == 1 else b.astype(np.float64) * scale
        made = {
            name: jnp.asarray(factor, shapes[name].dtype)
            for name, factor in zip("AB", (a, b), strict=True)
        }
    for name, leaf in made.items():
        if not jnp.isfinite(leaf).all():
            raise ValueError(
                f"{place / WEIGHTS}: {name} of {module.name} is not finite in {leaf.dtype}, with a lora_alpha of "
                f"{alpha:.6g}; give an adapter of finite numbers"
            )
    return made
