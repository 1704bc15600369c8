"""Leaves of a model by their paths, such as params.Dense_0.kernel: what files, patterns and messages call them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from fedpriv.core.types import Params


def named_leaves(params: Params) -> dict[str, Any]:
    """The leaves by their paths; a dot in a part of a path is %2E. Parameters that are one array have the path ""."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {".".join(_escaped(_part(entry)) for entry in path): leaf for path, leaf in leaves}


def _part(entry: Any) -> str:
    (name,) = (getattr(entry, n) for n in ("key", "idx", "name") if hasattr(entry, n))
    return str(name)


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace(".", "%2E")


def check_shapes(name: str, params: Params, wanted: Params) -> None:
    """Raises ValueError: the parameters are not those of one model of the shapes `wanted`."""
    shapes = {path: tuple(leaf.shape) for path, leaf in named_leaves(wanted).items()}
    given = {path: np.shape(leaf) for path, leaf in named_leaves(params).items()}
    seeds = {shape[:1] for shape in given.values()}
    if shapes != given and len(seeds) == 1 and {n: s[1:] for n, s in given.items()} == shapes:
        raise ValueError(
            f"{name}: of {seeds.pop()[0]} seeds together; give those of one, history.params(seed)"
        )
    for path in dict.fromkeys([*shapes, *given]):
        if shapes.get(path) != given.get(path):
            raise ValueError(
                f"{name}: {path or 'it'} has the shape {given.get(path)}, but {shapes.get(path)} in the model; give "
                "its own parameters"
            )
