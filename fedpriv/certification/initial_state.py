"""What a round has before it begins: the initial state, and the arrays that it closes over."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from fedpriv.certification.information_flow import NONE, follow, where
from fedpriv.certification.leaks import Rules
from fedpriv.certification.privacy_labels import LeakError, Private
from fedpriv.core.types import Params, PyTree, State
from fedpriv.rounds.algorithm import Algorithm

_NOT_CONCRETE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


def look_at_start(algorithm: Algorithm, model: Params, federation: Any) -> None:
    """Raises LeakError: the initial state depends on records or on the clients' sizes."""
    private = {"examples": federation.examples, "size": federation.size}
    if not hasattr(federation, "repartition"):  # streamed: only public examples are there
        del private["examples"]
    for traced in (private, {k: v for k, v in private.items() if k != "size"}):

        def init(model: Params, traced: dict[str, PyTree]) -> State:
            return algorithm.init(model, federation.replace(**traced))

        try:
            program, out = jax.make_jaxpr(init, return_shape=True)(model, traced)
            break
        except _NOT_CONCRETE:  # sizes may be looked at on the host
            pass
    else:
        raise LeakError("init: it reads records on the host; the state must begin without them")
    check_constants(tuple(constants(program)), federation)
    rules = Rules([], algorithm.unit, True)
    models = len(jax.tree.leaves(model))
    label = frozenset({Private("the clients' records or sizes", -1, "init")})
    given = [NONE if i < models else label for i in range(len(program.jaxpr.invars))]
    found = follow(program.jaxpr, given, rules.marked, rules.step)
    for (path, _), labels in zip(jax.tree_util.tree_leaves_with_path(out), found, strict=True):
        if labels:
            name = "state" + jax.tree_util.keystr(path)
            raise LeakError(
                f"init: {name} depends on the clients' records or sizes; begin without them"
            )


def closed_over(program: Any) -> list[tuple[Any, str]]:
    """The arrays that a traced program, or one that it calls, closes over, and the line that first uses each.

    Numbers are not among them, nor are scalars of NumPy: both are written into the program.
    """
    found = [
        (value, next((where(eqn) for eqn in program.jaxpr.eqns if var in eqn.invars), "?"))
        for var, value in zip(program.jaxpr.constvars, program.consts, strict=True)
    ]
    for eqn in program.jaxpr.eqns:
        for value in jax.tree.leaves(list(eqn.params.values())):
            if isinstance(value, ClosedJaxpr):
                found += closed_over(value)
    return found


def constants(program: Any) -> list[Any]:
    """The arrays of `closed_over`."""
    return [value for value, _ in closed_over(program)]


def check_constants(held: tuple[Any, ...], federation: Any) -> None:
    """Raises LeakError: the round closes over a federation's arrays, past the cohort."""
    theirs = {"examples": federation.examples, "size": federation.size}
    for path, leaf in jax.tree_util.tree_leaves_with_path(theirs):
        if any(_same(constant, leaf) for constant in held):
            name = "federation" + jax.tree_util.keystr(path)
            raise LeakError(
                f"round: it closes over {name}; reach clients through the cohort, and the server's examples by "
                "`cohort.public`"
            )


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    same = np.shape(one) == np.shape(other) and np.size(other) > 1
    return same and bool(np.array_equal(one, other))
