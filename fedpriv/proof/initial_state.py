"""The initial state: it begins without what clients hold, and programs hold none of it either.

The program of `init` is given what clients hold as inputs with a label, and none reaches the state. What a program
holds itself, its constants, has no label: so none of these may be a federation's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from fedpriv.core.complaints import require
from fedpriv.core.jaxprs import equations, programs, trace_program
from fedpriv.core.types import Params, PyTree, State
from fedpriv.proof.flow import propagate
from fedpriv.proof.labels import NONE, LeakError, Private, Protected
from fedpriv.proof.marks import Marks, Rules
from fedpriv.proof.operations import check_operations


def program_of_init(
    init: Callable[[Params, PyTree], State], model: Params, private: PyTree
) -> tuple[ClosedJaxpr, State]:
    """(The program of `init`, traced; the initial state, in shapes).

    Args:
      private: all that says what clients hold.

    Raises:
      LeakError: the state depends on it.
      ValueError: operations that are not known, or are somebody's own.
    """
    program, state = trace_program(init, model, private)
    for each in check_operations(program, "init").operations:
        ours = type(each).__module__.startswith("fedpriv.")
        require(ours, "init", each.name, "begin without operations of your own")
    public, label = len(jax.tree.leaves(model)), Private("what clients hold", -1, "init")
    inputs = [NONE if i < public else frozenset({label}) for i in range(len(program.in_avals))]
    found = propagate(program.jaxpr, inputs, Rules(Marks(), Protected(None)))
    for (path, _), labels in zip(jax.tree.leaves_with_path(state), found, strict=True):
        if labels:
            name = "state" + jax.tree_util.keystr(path)
            raise LeakError(
                f"init: {name} depends on the clients' records or sizes; do not use them"
            )
    return program, state


def held_by(program: ClosedJaxpr) -> Iterator[Any]:
    """The constants of a program, and of all that it calls."""
    yield from program.consts
    yield from _written(program.jaxpr.outvars)
    for eqn, _ in equations(program.jaxpr):
        yield from _written(eqn.invars)
        for inner in programs(eqn):
            yield from (*inner.consts, *_written(inner.jaxpr.outvars))


def _written(atoms: Iterable[Any]) -> Iterator[Any]:
    return (atom.val for atom in atoms if isinstance(atom, Literal))


def check_apart(arrays: Iterable[Any], theirs: Mapping[str, Any], otherwise: str) -> None:
    """Raises LeakError, in the words of `otherwise`: one of the arrays is a federation's own, or equal to one.

    A number that is equal may be anybody's.
    """
    held = [*arrays]
    for name, own in theirs.items():
        if any(each is own or _equal(each, own) for each in held):
            raise LeakError(otherwise.format(f"federation{name}"))


def _equal(one: Any, other: Any) -> bool:
    same = np.shape(one) == np.shape(other) and np.size(other) > 1
    return same and bool(np.array_equal(one, other))
