"""The initial state: it begins without what clients hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from fedpriv.certification.closed_over import ClosedOver, closed_over, private_names
from fedpriv.certification.information_flow import propagate
from fedpriv.certification.known_operations import lines_that_print
from fedpriv.certification.rules import Rules
from fedpriv.core.array_arguments import check_leaves
from fedpriv.core.jaxprs import trace_program
from fedpriv.core.types import Params, PyTree, State
from fedpriv.core.user_code import user_line
from fedpriv.rounds.algorithm import Algorithm, initial_state, made_at
from fedpriv.rounds.marks import Marks
from fedpriv.rounds.privacy_labels import NONE, LeakError, Private, Protected

_NOT_CONCRETE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)

INIT_CLOSED_OVER = "init: it closes over {}; begin without it"


def trace_init(
    algorithm: Algorithm, model: Params, federation: Any
) -> tuple[State, list[ClosedOver]]:
    """Traces `init` with a federation whose arrays nothing can be read from.

    Returns:
      (the initial state, in shapes; the arrays that `init` closes over).

    Raises:
      ValueError: a model that is not of arrays; as `initial_state`.
      LeakError: the state depends on records, on who holds which, or on the clients' sizes, or `init` reads them.
    """
    check_leaves("params", model)
    init, private = unreadable(algorithm, federation)
    try:
        program, state = trace_program(init, model, private)
    except _NOT_CONCRETE as error:
        line = user_line(error)
        raise LeakError(
            f"init: it reads the federation on the host{f' ({line})' if line else ''}; do not use the clients' "
            "examples, rows or sizes"
        ) from None
    lines_that_print(program, "init")
    rules = Rules(Marks(), Protected(algorithm.unit, True))
    models = len(jax.tree.leaves(model))
    label = frozenset({Private("the clients' records or sizes", -1, "init")})
    inputs = [NONE if i < models else label for i in range(len(program.jaxpr.invars))]
    leaves = jax.tree_util.tree_leaves_with_path(state)
    for (path, _), labels in zip(leaves, propagate(program.jaxpr, inputs, rules), strict=True):
        if rules.protected.private(labels):
            name = "state" + jax.tree_util.keystr(path)
            raise LeakError(
                f"init: {name} depends on the clients' records or sizes; do not use them"
            )
    return state, closed_over(program, made_at(algorithm))


def unreadable(
    algorithm: Algorithm, federation: Any
) -> tuple[Callable[[Params, dict[str, PyTree]], State], dict[str, PyTree]]:
    """(`init` of a model and the arrays that say what clients hold; those arrays), to be traced or jitted."""
    if hasattr(federation, "empty"):  # streamed
        federation = federation.empty()

    def init(model: Params, private: dict[str, PyTree]) -> State:
        return initial_state(algorithm, model, federation.replace(**private))

    return init, {name: getattr(federation, name) for name in private_names(federation)}
