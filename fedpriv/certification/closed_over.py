"""The arrays that a traced program closes over: where they are used, and whether they are a federation's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import Jaxpr, JaxprEqn, Literal

from fedpriv.certification.information_flow import NOWHERE, users_line, where
from fedpriv.certification.privacy_labels import LeakError
from fedpriv.core.jaxprs import equations, programs
from fedpriv.data.client_rows import ClientRows
from fedpriv.data.streaming import StreamedFederation
from fedpriv.models.fine_tuning import PUBLIC_BASE


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
    called = [inner for eqn, _ in equations(program.jaxpr) for inner in programs(eqn)]
    found = [
        _used(value, list(_uses(each.jaxpr, var)), made)
        for each in (program, *called)
        for var, value in zip(each.jaxpr.constvars, each.consts, strict=True)
    ]
    # Where JAX writes them into the program itself.
    inside: dict[int, tuple[Any, list[JaxprEqn]]] = {}
    for jaxpr in (program.jaxpr, *(each.jaxpr for each in called)):
        for eqn in jaxpr.eqns:
            for place, atom in enumerate(eqn.invars):
                if is_array(atom):
                    _, uses = inside.setdefault(id(atom.val), (atom.val, []))
                    uses.extend(_uses_in(eqn, place))
        for atom in filter(is_array, jaxpr.outvars):
            inside.setdefault(id(atom.val), (atom.val, []))
    return found + [_used(value, uses, made) for value, uses in inside.values()]


def is_array(atom: Any) -> bool:
    """Whether an input or output is an array that is written into the program, and no number."""
    return isinstance(atom, Literal) and (isinstance(atom.val, jax.Array) or np.ndim(atom.val) > 0)


def _used(array: Any, uses: Sequence[JaxprEqn], made: str | None) -> ClosedOver:
    line = next(filter(None, map(users_line, uses)), made)
    is_base = any(eqn.params.get("name") == PUBLIC_BASE for eqn in uses)
    return ClosedOver(array, line or (where(uses[0]) if uses else NOWHERE), is_base)


def _uses(jaxpr: Jaxpr, var: Any) -> Iterator[JaxprEqn]:
    """The equations that use a variable: those of a program that an equation calls, then the equation itself."""
    for eqn in (eqn for eqn in jaxpr.eqns if _stands_in(eqn, var)):
        yield from _uses_in(eqn, [atom is var for atom in eqn.invars].index(True))


def _stands_in(eqn: JaxprEqn, var: Any) -> bool:
    return any(atom is var for atom in eqn.invars)


def _uses_in(eqn: JaxprEqn, number: int) -> Iterator[JaxprEqn]:
    for inner in (program.jaxpr for program in programs(eqn)):
        place = _place(eqn, inner, number)
        if place is not None:
            yield from _uses(inner, inner.invars[place])
    yield eqn


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


def check_closed_over(arrays: Sequence[ClosedOver], federation: Any, otherwise: str) -> None:
    """Raises LeakError, in the words of `otherwise`: a program closes over some of a federation's arrays."""
    theirs = {name: getattr(federation, name) for name in private_names(federation)}
    blank = _is_blank(theirs.get("client_rows"))
    for path, leaf in jax.tree_util.tree_leaves_with_path(theirs):
        name, held = jax.tree_util.keystr(path), theirs[path[0].key]
        sizes = held.size if isinstance(held, ClientRows) else federation.size
        # What says nothing of its own, and may be 0, 0, ... or 0, 1, 2, ..., which others know, too.
        said = name.endswith((".start", "['most_records']")) and np.ptp(np.asarray(sizes)) == 0
        same = _is if said or (blank and not name.endswith(".size")) else _same
        if any(same(each.array, leaf) for each in arrays):
            raise LeakError(otherwise.format(f"federation{name}"))
    for name, rows in theirs.items():
        if blank or not isinstance(rows, ClientRows):
            continue
        if any(_is_table(each.array, rows) for each in arrays):
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


def _is(one: Any, other: Any) -> bool:
    return one is other


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    same = np.shape(one) == np.shape(other) and np.size(other) > 1
    return same and bool(np.array_equal(one, other))
