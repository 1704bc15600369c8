"""The initial state, traced with a federation from which nothing can be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from fedpriv.certification.closed_over import ClosedOver, closed_over, private_names
from fedpriv.core.array_arguments import check_leaves
from fedpriv.core.types import Params, PyTree, State
from fedpriv.core.user_code import user_line
from fedpriv.proof.initial_state import program_of_init
from fedpriv.proof.labels import LeakError
from fedpriv.rounds.algorithm import Algorithm, initial_state, made_at

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
        program, state = program_of_init(init, model, private)
    except _NOT_CONCRETE as error:
        line = user_line(error)
        raise LeakError(
            f"init: it reads the federation on the host{f' ({line})' if line else ''}; do not use the clients' "
            "examples, rows or sizes"
        ) from None
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
