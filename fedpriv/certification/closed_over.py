"""The arrays that a traced program closes over: where they are used, and whether they are a federation's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import Jaxpr, JaxprEqn, Literal

from fedpriv.core.equation_lines import NOWHERE, users_line, where
from fedpriv.core.jaxprs import programs
from fedpriv.core.program_text import is_array
from fedpriv.data.client_rows import ClientRows
from fedpriv.data.streaming import StreamedFederation
from fedpriv.models.fine_tuning import PUBLIC_BASE
from fedpriv.proof.initial_state import check_apart
from fedpriv.proof.labels import LeakError


class ClosedOver(NamedTuple):
    """An array that a program closes over.

    Attributes:
      array: itself.
      line: that first uses it.
      is_base: whether it is of the public base of a model that is fine-tuned.
    """

    array: Any
    line: str
    is_base: bool


def closed_over(program: Any, made: str | None = None) -> list[ClosedOver]:
    """The arrays that a traced program, or one that it calls, closes over.

    They are JAX's arrays of any shape, and NumPy's of one dimension or more. Numbers are not among them, nor are
    scalars of NumPy, which cannot be told from numbers.

    Args:
      made: the line to name where the user's code uses an array nowhere itself, having handed it over.
    """
    walk = _Walk([], [], {})
    walk.through(program.jaxpr, *walk.enter(program))
    # Where JAX writes them into the program itself.
    inside = {id(each): each for of_program in walk.inside for each in of_program}
    return [_used(each, made) for each in (*walk.constants, *inside.values())]


class _Held(NamedTuple):
    """An array that a program holds, and the equations that use it, those of a program before the one that calls it."""

    array: Any
    uses: list[JaxprEqn]


class _Walk(NamedTuple):
    """One walk through a program and all that it calls, in which the uses of every array are found.

    Attributes:
      constants: of the programs, in the order in which they are called.
      inside: of each program, the arrays that are written into it.
      written: these, by the identity of the array.
    """

    constants: list[_Held]
    inside: list[list[_Held]]
    written: dict[int, _Held]

    def enter(self, program: Any) -> tuple[dict[Any, _Held], list[_Held]]:
        """(What the constants of a program hold, a list for what is written into it)."""
        held = [_Held(value, []) for value in program.consts]
        self.constants.extend(held)
        self.inside.append([])
        return dict(zip(program.jaxpr.constvars, held, strict=True)), self.inside[-1]

    def through(self, jaxpr: Jaxpr, known: dict[Any, _Held], inside: list[_Held]) -> None:
        """Through a program, of whose variables some are `known` to hold an array."""

        def held(atom: Any) -> _Held | None:
            if not isinstance(atom, Literal):
                return known.get(atom)
            if not is_array(atom):
                return None
            inside.append(self.written.setdefault(id(atom.val), _Held(atom.val, [])))
            return inside[-1]

        for eqn in jaxpr.eqns:
            given = [held(atom) for atom in eqn.invars]
            called = [(each.jaxpr, *self.enter(each)) for each in programs(eqn)]
            for inner, constants, written in called:
                self.through(inner, constants | _passed(eqn, inner, given), written)
            for each in {id(each): each for each in given if each}.values():
                each.uses.append(eqn)
        for atom in jaxpr.outvars:
            held(atom)


def _used(held: _Held, made: str | None) -> ClosedOver:
    array, uses = held
    line = next(filter(None, map(users_line, uses)), made)
    is_base = any(eqn.params.get("name") == PUBLIC_BASE for eqn in uses)
    return ClosedOver(array, line or (where(uses[0]) if uses else NOWHERE), is_base)


def _passed(eqn: JaxprEqn, inner: Jaxpr, given: Sequence[_Held | None]) -> dict[Any, _Held]:
    """By the inputs of a program that an equation calls, the arrays that it hands on to it."""
    places = ((_place(eqn, inner, number), each) for number, each in enumerate(given) if each)
    return {inner.invars[place]: each for place, each in places if place is not None}


def _place(eqn: JaxprEqn, inner: Jaxpr, place: int) -> int | None:
    """Of an equation's input among those of a program that it calls; None where this does not get it.

    A program gets the last inputs of its equation; the condition of a loop also the first, without the body's own.
    """
    is_condition = eqn.primitive.name == "while" and inner is eqn.params["cond_jaxpr"].jaxpr
    first = eqn.params["cond_nconsts"] if is_condition else 0
    others = len(eqn.invars) - len(inner.invars)
    if place < first:
        return place
    return place - others if place - others >= first else None


def check_closed_over(arrays: Iterable[Any], federation: Any, otherwise: str) -> None:
    """Raises LeakError, in the words of `otherwise`: a program closes over some of a federation's arrays."""
    held = [*arrays]
    theirs = {name: getattr(federation, name) for name in private_names(federation)}
    blank = _is_blank(theirs.get("client_rows"))
    for path, leaf in jax.tree_util.tree_leaves_with_path(theirs):
        name, of = jax.tree_util.keystr(path), theirs[path[0].key]
        sizes = of.size if isinstance(of, ClientRows) else federation.size
        # What says nothing of its own, and may be 0, 0, ... or 0, 1, 2, ..., which others know, too.
        said = name.endswith((".start", "['most_records']")) and np.ptp(np.asarray(sizes)) == 0
        only = said or (blank and not name.endswith(".size"))
        check_apart([x for x in held if x is leaf] if only else held, {name: leaf}, otherwise)
    for name, rows in theirs.items():
        if blank or not isinstance(rows, ClientRows):
            continue
        if any(_is_table(each, rows) for each in held):
            raise LeakError(otherwise.format(f"federation[{name!r}].table"))


def _is_blank(rows: ClientRows | None) -> bool:
    """Whether they are of `Federation.blank`: one number in memory, and nobody's."""
    return rows is not None and isinstance(rows.order, np.ndarray) and not any(rows.order.strides)


def _is_table(array: Any, rows: ClientRows) -> bool:
    """Whether it is the table of these rows, which is made only where the shape is the same: it may be large."""
    same = np.shape(array) == (*rows.start.shape, rows.capacity)
    return same and bool(np.array_equal(array, rows.table))


def private_names(federation: Any) -> tuple[str, ...]:
    """Names of arrays that say what clients hold; a streamed federation has others, and its cohorts but their sizes."""
    if isinstance(federation, StreamedFederation):
        return "examples", "size", "offsets", "most_records", "order", "held_out_rows"
    if not hasattr(federation, "repartition"):
        return ("size",)
    return "examples", "client_rows", "held_out_rows"
