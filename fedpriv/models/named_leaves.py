"""Leaves of a model by their paths, such as params.Dense_0.kernel: what files, patterns and messages call them."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.complaints import require, shown
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


def readable(path: str) -> str:
    """A leaf's name for people: with its own dots, such as of an adapter, which has the path of its matrix."""
    return re.sub("%(25)*2E", ".", path) or "the array"


def matching(name: str, pattern: str, paths: Collection[str]) -> list[str]:
    """Those of the paths in which the regular expression is found.

    Args:
      name: what an error calls the pattern.

    Raises:
      ValueError: there are none, or it is no regular expression.
    """
    remedy = "give a regular expression, such as 'Dense_0' or 'kernel$'"
    require(isinstance(pattern, str), name, pattern, remedy)
    try:
        found = [path for path in paths if re.search(pattern, path)]
    except re.error as error:
        raise ValueError(f"{name}: {shown(pattern)} ({error}); {remedy}") from None
    if not found:
        some = ", ".join([*paths][:9]) + ", ..." * (len(paths) > 9)
        raise ValueError(
            f"{name}: {shown(pattern)} matches none of the possible leaves ({some or 'there are none'}); {remedy}"
        )
    return found


def check_shapes(name: str, params: Params, wanted: Params) -> None:
    """Raises ValueError: as `misfit` says."""
    if said := misfit(params, wanted):
        raise ValueError(f"{name}: {said}")


def misfit(params: Params, wanted: Params) -> str | None:
    """Why the parameters are not those of one model like `wanted`, its shapes, with a remedy; None where they are."""
    shapes = {path: list(leaf.shape) for path, leaf in named_leaves(wanted).items()}
    given = {path: list(np.shape(leaf)) for path, leaf in named_leaves(params).items()}
    own = "give its own parameters, with init, loss and score of one model"
    if shapes == given:
        return _no_floats(named_leaves(params), named_leaves(wanted), own)
    seeds = {shape[0] if shape else None for shape in given.values()}
    if len(seeds) == 1 and {path: shape[1:] for path, shape in given.items()} == shapes:
        return f"an axis of seeds, of length {seeds.pop()}; give those of one, history.params(seed)"
    missing = [readable(path) for path in shapes if path not in given]
    others = [readable(path) for path in given if path not in shapes]
    if missing or others:
        lacking = f"{missing[0]} is missing" if missing else ""
        beside = f"{others[0]} is not of the model" if others else ""
        return f"{', '.join(filter(None, (lacking, beside)))}; {own}"
    path = next(path for path in shapes if shapes[path] != given[path])
    return f"{readable(path)} has the shape {given[path]}, but {shapes[path]} in the model; {own}"


def _no_floats(params: dict[str, Any], wanted: dict[str, Any], remedy: str) -> str | None:
    """Which of the leaves is of floats in one alone; floats may have another precision."""
    for path, leaf in wanted.items():
        kinds = [jnp.result_type(leaf_) for leaf_ in (params[path], leaf)]
        if len({jnp.issubdtype(kind, jnp.floating) for kind in kinds}) > 1:
            return f"{readable(path)} is of {kinds[0]}, but of {kinds[1]} in the model; {remedy}"
    return None
