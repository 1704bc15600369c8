"""What a round has before it begins: the initial state, and the arrays that it closes over."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

from fedpriv.certification.information_flow import NONE, follow, programs, users_line, where
from fedpriv.certification.leaks import Rules
from fedpriv.certification.privacy_labels import LeakError, Private
from fedpriv.core.types import Params, PyTree, State
from fedpriv.core.user_code import user_line
from fedpriv.rounds.algorithm import Algorithm

_NOT_CONCRETE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


def look_at_start(
    algorithm: Algorithm, model: Params, federation: Any
) -> tuple[State, list[tuple[Any, str]]]:
    """The initial state, in shapes, which is computed from what is public: the model, shapes, public examples.

    And the arrays that `init` closes over, with the line that uses each.

    Raises:
      LeakError: it depends on records, on who holds which, or on the clients' sizes, which are given as arrays that
        nothing can be read from; and in which line.
    """
    private = {"examples": federation.examples, "size": federation.size}
    if hasattr(federation, "repartition"):  # in memory
        private["rows"] = federation.rows
    else:  # streamed: only public examples are there
        del private["examples"]

    def init(model: Params, private: dict[str, PyTree]) -> State:
        return algorithm.init(model, federation.replace(**private))

    try:
        program, state = jax.make_jaxpr(init, return_shape=True)(model, private)
    except _NOT_CONCRETE as error:
        line = user_line(error)
        raise LeakError(
            f"init: it reads the clients' {' or '.join(private)} on the host{f' ({line})' if line else ''}; begin "
            "without them"
        ) from None
    held = closed_over(program)
    check_constants(tuple(value for value, _ in held), federation)
    rules = Rules([], algorithm.unit, True)
    models = len(jax.tree.leaves(model))
    label = frozenset({Private("the clients' records or sizes", -1, "init")})
    given = [NONE if i < models else label for i in range(len(program.jaxpr.invars))]
    found = follow(program.jaxpr, given, rules)
    for (path, _), labels in zip(jax.tree_util.tree_leaves_with_path(state), found, strict=True):
        if rules.private(labels):
            name = "state" + jax.tree_util.keystr(path)
            raise LeakError(
                f"init: {name} depends on the clients' records or sizes; begin without them"
            )
    return state, held


def closed_over(program: Any) -> list[tuple[Any, str]]:
    """The arrays that a traced program, or one that it calls, closes over, and the line that first uses each.

    Numbers are not among them, nor are scalars of NumPy: both are written into the program.
    """
    found = [
        (value, _first_use(program.jaxpr, var) or "?")
        for var, value in zip(program.jaxpr.constvars, program.consts, strict=True)
    ]
    for eqn in program.jaxpr.eqns:
        for value in jax.tree.leaves(list(eqn.params.values())):
            if isinstance(value, ClosedJaxpr):
                found += closed_over(value)
    return found


def _first_use(jaxpr: Jaxpr, var: Any, deep: bool = False) -> str | None:
    """The line of the user's code that first uses a variable, in this program or one that it calls; else any line."""
    uses = [eqn for eqn in jaxpr.eqns if var in eqn.invars]
    for eqn in uses:
        for inner in programs(eqn):
            place = eqn.invars.index(var) - (len(eqn.invars) - len(inner.invars))
            if place >= 0 and (line := _first_use(inner, inner.invars[place], deep=True)):
                return line
        if line := users_line(eqn):
            return line
    return where(uses[0]) if uses and not deep else None


def constants(program: Any) -> list[Any]:
    """The arrays of `closed_over`."""
    return [value for value, _ in closed_over(program)]


def check_constants(held: tuple[Any, ...], federation: Any) -> None:
    """Raises LeakError: the round closes over a federation's arrays, past the cohort."""
    theirs = {name: getattr(federation, name) for name in ("examples", "size")}
    if hasattr(federation, "repartition"):
        theirs["rows"] = federation.rows
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
