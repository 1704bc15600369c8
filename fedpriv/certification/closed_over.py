"""The arrays that a traced program closes over: where they are used, and whether they are a federation's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import Jaxpr

from fedpriv.certification.information_flow import users_line, where
from fedpriv.certification.privacy_labels import LeakError
from fedpriv.core.jaxprs import equations, programs


def closed_over(program: Any, made: str | None = None) -> list[tuple[Any, str]]:
    """The arrays that a traced program, or one that it calls, closes over, and the line that first uses each.

    Numbers are not among them, nor are scalars of NumPy: both are written into the program.

    Args:
      made: the line to name where the user's code uses an array nowhere itself, having handed it over.
    """
    called = (inner for eqn, _ in equations(program.jaxpr) for inner in programs(eqn))
    return [
        (value, _first_use(each.jaxpr, var) or made or _any_use(each.jaxpr, var))
        for each in (program, *called)
        for var, value in zip(each.jaxpr.constvars, each.consts, strict=True)
    ]


def _any_use(jaxpr: Jaxpr, var: Any) -> str:
    return next((where(eqn) for eqn in jaxpr.eqns if var in eqn.invars), "?")


def _first_use(jaxpr: Jaxpr, var: Any) -> str | None:
    """The line of the user's code that first uses a variable, in this program or one that it calls."""
    for eqn in (eqn for eqn in jaxpr.eqns if var in eqn.invars):
        for inner in (program.jaxpr for program in programs(eqn)):
            place = eqn.invars.index(var) - (len(eqn.invars) - len(inner.invars))
            if place >= 0 and (line := _first_use(inner, inner.invars[place])):
                return line
        if line := users_line(eqn):
            return line
    return None


def check_closed_over(arrays: Sequence[tuple[Any, str]], federation: Any, otherwise: str) -> None:
    """Raises LeakError, in the words of `otherwise`: a program closes over some of a federation's arrays."""
    theirs = {name: getattr(federation, name) for name in private_names(federation)}
    for path, leaf in jax.tree_util.tree_leaves_with_path(theirs):
        if any(_same(constant, leaf) for constant, _ in arrays):
            raise LeakError(otherwise.format("federation" + jax.tree_util.keystr(path)))


def private_names(federation: Any) -> tuple[str, ...]:
    """Of the arrays that say what clients hold; a streamed federation has none of their examples, and no rows."""
    if not hasattr(federation, "repartition"):
        return ("size",)
    return "examples", "size", "rows", "held_out_rows", "held_out_size"


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    same = np.shape(one) == np.shape(other) and np.size(other) > 1
    return same and bool(np.array_equal(one, other))
