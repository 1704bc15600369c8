"""A trained model in a run's folder: its parameters, and what its network is. Reading it runs no code from there.

FOLDER/model/ALGORITHM/seed-S has `model.safetensors`, the parameters by their paths, and `model.json`, which names a
network of this package and its sizes, or says that the network is not one of these. Of a model that was fine-tuned
these are the parameters of the whole network, base included; what was trained, such as adapters, lies beside them.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.arguments import Seed, check_path, checked
from fedpriv.core.array_arguments import check_numbers
from fedpriv.core.complaints import require
from fedpriv.core.files import replacing, to_disk
from fedpriv.core.types import Params, PyTree
from fedpriv.core.user_code import names_user_code
from fedpriv.models.modules import (
    CNN,
    MLP,
    CharacterLSTM,
    CharacterTransformer,
    DropoutCNN,
    LogisticRegression,
    SigmoidLeNet,
)
from fedpriv.models.named_leaves import check_shapes, named_leaves, readable
from fedpriv.models.networks import Apply, Built, Model, predict
from fedpriv.models.transformer import Transformer

NETWORKS: dict[str, Any] = {
    n.__name__: n
    for n in (
        CNN,
        MLP,
        CharacterLSTM,
        CharacterTransformer,
        DropoutCNN,
        LogisticRegression,
        SigmoidLeNet,
        Transformer,
    )
}
"""What a file may name."""
PARAMETERS, NETWORK = "model.safetensors", "model.json"
_TRAINED = "%trained."  # before the paths of what was fine-tuned; in a path % is %25
MOST_BYTES = (
    2**12
)  # of the description: a pipe would be read for ever, a network of 10^5 layers never be built


class Trained(NamedTuple):
    """A model that was trained.

    Attributes:
      params: its parameters.
      apply: (params, x) -> outputs, for ONE input x; raises ValueError where nobody said what the network is.
    """

    params: Params
    apply: Apply

    @names_user_code
    def predict(self, inputs: PyTree) -> PyTree:
        """The outputs [n, ...] for inputs [n, ...], as `Model.predict`."""
        return predict(self.apply, self.params, inputs)


def model_folder(folder: Path | str, algorithm: str, seed: Seed) -> Path:
    """Where a run keeps the model of an algorithm and a seed.

    Raises:
      ValueError: a name that is not that of a folder inside.
    """
    check_path("folder", folder, "give the path of a run's folder")
    require(isinstance(algorithm, str), "algorithm", algorithm, "give its name")
    seed = checked("seed", seed, Seed)
    if algorithm in ("", ".", "..") or {"/", "\\", "\0"} & set(algorithm):
        raise ValueError(f"algorithm: {algorithm!r} cannot name a folder; give a plain name")
    return Path(folder) / "model" / algorithm / f"seed-{seed}"


def is_kept(folder: Path | str, algorithm: str, seed: Seed) -> bool:
    """Whether the model is kept there, whole."""
    return (model_folder(folder, algorithm, seed) / PARAMETERS).is_file()


def save_model(
    folder: Path | str, algorithm: str, seed: Seed, model: Model, params: Params
) -> None:
    """Saves `params` of `model` for `load_model`; replaces what was there.

    For a fine-tuned model it also saves the whole network's parameters.

    Raises:
      ValueError: a name that cannot name a folder; parameters with other shapes than the model's, such as those of
        several seeds.
      OSError: the files cannot be written.
    """
    from safetensors import numpy

    place = model_folder(folder, algorithm, seed)
    require(hasattr(model, "init"), "model", model, "give what fp.models.classifier makes")
    if callable(model.init):
        check_shapes("params", params, jax.eval_shape(model.init, jax.random.key(0)))
    named = named_leaves(params)
    if model.merged:
        trained = {_TRAINED + name: leaf for name, leaf in named.items()}
        named = named_leaves(model.merged(params)) | trained
    arrays = {name: np.asarray(leaf, order="C") for name, leaf in named.items()}
    for name, array in arrays.items():
        check_numbers(f"params {name}", array)
    place.mkdir(parents=True, exist_ok=True)
    # Neither takes its place before both are written; the parameters, by which a model is known to be kept, come last.
    with replacing(place / PARAMETERS) as parameters, replacing(place / NETWORK) as network:
        parameters.write_bytes(numpy.save(arrays))
        to_disk(parameters)
        network.write_text(json.dumps(_described(model.built), indent=2) + "\n", encoding="utf-8")


def load_model(
    folder: Path | str, algorithm: str, seed: Seed = 0, *, model: Model | None = None
) -> Trained:
    """The model that a run has kept, bit for bit.

    Args:
      folder: folder of the run. It may come from anybody: nothing in it is executed.
      model: the model that was trained, if it is not one of this package. Without it, you get a warning, nested dicts
        as parameters, and no `apply`. A run that fine-tuned returns the whole network, base included, or, if you give
        the fine-tuned model, only what was trained, such as adapters.

    Raises:
      ValueError: there is no such model, or its files are damaged or do not fit the network; says which.
    """
    place = model_folder(folder, algorithm, seed)
    if not is_kept(folder, algorithm, seed):
        raise ValueError(_missing(Path(folder), algorithm, seed))
    arrays, trained = _arrays(place / PARAMETERS)
    if model:
        shapes = jax.eval_shape(model.init, jax.random.key(0))
        params = _like(shapes, trained if model.merged else arrays, place)
        if model.merged:
            _check_base(model.merged(params), arrays, place)
        return Trained(params, model.apply or _unknown("no apply"))
    about = _about(place / NETWORK)
    if about["network"] not in NETWORKS:
        parameters_only = Trained(_nested(arrays, place / PARAMETERS), _unknown(about["network"]))
        lacking = "; these are the parameters alone, in nested dicts"
        warnings.warn(_none_of_ours(about["network"]) + lacking, stacklevel=2)
        return parameters_only
    try:
        built = _rebuilt(about)
        shapes = jax.eval_shape(built.module.init, jax.random.key(0), built.input)
    except Exception as error:  # whatever a damaged file makes a network raise
        raise ValueError(_damaged(place / NETWORK, error)) from None
    return Trained(_like(shapes, arrays, place), built.module.apply)


def _unknown(network: str) -> Apply:
    """In place of the `apply` of a network that nobody has given."""

    def apply(params: Params, x: PyTree) -> PyTree:
        raise ValueError(_none_of_ours(network))

    return apply


def _none_of_ours(network: str) -> str:
    return (
        f"model: the network ({_printable(network)}) is none of this package; give load_model(..., model=...) a Model "
        "with `apply`"
    )


def _missing(folder: Path, algorithm: str, seed: int) -> str:
    if not folder.is_dir():
        return (
            f"folder: there is no {folder}; give the folder of a run, such as its last line names"
        )
    there = sorted(f"{f.parent.name} {f.name}" for f in folder.glob("model/*/seed-*"))
    kept = f"it has {', '.join(there)}" if there else "it has none (--keep-model false, or not yet)"
    return f"folder: {folder} has no model of {algorithm}, seed {seed}; {kept}"


def _damaged(file: Path, error: Exception) -> str:
    said = _printable(" ".join(str(error).split()))
    return f"{file} is damaged ({type(error).__name__}: {said}); train again, or restore it"


def _printable(text: str) -> str:
    """What a file says, without what a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in text[:200])


def _described(built: Built | None) -> dict[str, Any]:
    if built is None:
        return {"network": "of the user"}
    kind = type(built.module)
    if NETWORKS.get(kind.__name__) is not kind:
        return {"network": f"{kind.__module__}.{kind.__qualname__}"}
    return {
        "network": kind.__name__,
        "fields": {name: getattr(built.module, name) for name in _fields(kind)},
        "input": {"shape": built.input.shape, "dtype": str(built.input.dtype)},
    }


def _about(file: Path) -> dict[str, Any]:
    try:
        if not file.is_file() or file.stat().st_size > MOST_BYTES:
            raise ValueError(f"not a file of at most {MOST_BYTES} bytes")
        about = json.loads(file.read_bytes())
        return {**about, "network": str(about["network"])}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(_damaged(file, error)) from None


def _rebuilt(about: Mapping[str, Any]) -> Built:
    """The network; a list that JSON made of a tuple is one again."""
    kind, given = NETWORKS[about["network"]], about["fields"]
    fields = {name: given[name] for name in _fields(kind)}
    module = kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})
    shape, dtype = about["input"]["shape"], jnp.dtype(about["input"]["dtype"])
    return Built(module, jax.ShapeDtypeStruct(tuple(map(int, shape)), dtype))


def _fields(kind: type) -> list[str]:
    """Those of a network that are not flax's."""
    return [f.name for f in dataclasses.fields(kind) if f.name not in ("parent", "name")]


def _arrays(file: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """By their paths: those of the network, and those that were trained if not all were."""
    from safetensors import SafetensorError, numpy

    try:
        arrays = numpy.load_file(file)
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise ValueError(_damaged(file, error)) from None
    for name, array in arrays.items():
        if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
            raise ValueError(
                f"{file}: {_printable(name)} is {array.dtype}, which JAX would shorten; set JAX_ENABLE_X64=true"
            )
    trained = [name for name in arrays if name.startswith(_TRAINED)]
    return arrays, {name.removeprefix(_TRAINED): arrays.pop(name) for name in trained}


def _nested(arrays: Mapping[str, np.ndarray], file: Path) -> Params:
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        *outer, last = map(unquote, name.split("."))
        inside = tree
        for part in outer:
            inside = inside.setdefault(part, {}) if isinstance(inside, dict) else inside
        if not isinstance(inside, dict) or last in inside:
            raise ValueError(_damaged(file, KeyError(name)))
        inside[last] = jnp.asarray(array)
    return tree[""] if list(tree) == [""] else tree  # parameters that are one array have no path


def _like(shapes: Params, arrays: Mapping[str, np.ndarray], place: Path) -> Params:
    """The arrays as the tree of a network's parameters.

    Raises:
      ValueError: one is missing, too much, or of another shape.
    """
    wanted = {name: _kind(leaf) for name, leaf in named_leaves(shapes).items()}
    there = {name: _kind(array) for name, array in arrays.items()}
    for name in dict.fromkeys([*wanted, *there]):
        kept, own = there.get(name, "nothing"), wanted.get(name, "nothing")
        if kept != own:
            leaf, remedy = _printable(readable(name)), "give the model that was trained"
            raise ValueError(f"{place}: {leaf} is {kept} there, {own} in the network; {remedy}")
    leaves = [jnp.asarray(arrays[name]) for name in wanted]
    return jax.tree.unflatten(jax.tree.structure(shapes), leaves)


def _check_base(base: Params, arrays: Mapping[str, np.ndarray], place: Path) -> None:
    """Raises ValueError: the network is not the one that was kept, but for rounding."""
    for name, leaf in named_leaves(base).items():
        array = arrays.get(name, np.zeros(0))
        kept = array.astype(np.float64)
        real = jnp.issubdtype(array.dtype, jnp.floating)
        rounding = max(1e-5, float(jnp.finfo(array.dtype).eps)) if real else 0.0
        rounding *= np.abs(kept).max(initial=0)
        made = np.asarray(leaf).astype(np.float64)
        if made.shape != kept.shape or not np.allclose(made, kept, 0, rounding, equal_nan=True):
            raise ValueError(
                f"{place}: {_printable(name)} differs with this base; give the model with the base that it was "
                "trained on"
            )


def _kind(leaf: Any) -> str:
    """Its shape, and whether it holds real numbers; the type of these is the file's, which may be a shorter one."""
    real = jnp.issubdtype(leaf.dtype, jnp.floating)
    return f"{'real' if real else leaf.dtype}{list(leaf.shape)}"
