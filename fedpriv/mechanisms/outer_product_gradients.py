"""Finds the gradients of a batch's records that are products or look-ups, in the traced program of all gradients.

From each gradient the program, `vmap` of `grad`, is followed back: through what only moves entries, through sums, calls
and loops. What is found is true of any program: no step relies on where that came from.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var, primitives

from fedpriv.core.jaxprs import programs, scan_operands
from fedpriv.mechanisms.entries import Move, shape_of
from fedpriv.mechanisms.gradients_of_leaves import Layers, over_steps
from fedpriv.mechanisms.looked_up import looked_up
from fedpriv.mechanisms.outer_products import OneHot, Product, Stacked, length, summed

_LARGE = 2**18
"""Entries, from which on a sequence's gradient costs more to form than its rows' products with each other."""
_REMAT = frozenset(("remat", "remat2", "checkpoint"))
SUMS = (primitives.add_p, primitives.add_jaxvals_p)


class Step(NamedTuple):
    """An equation that sums its inputs, if there are several, and may put each record's entries in another order.

    Attributes:
      inputs: one or two.
      records: their axis of the records.
      move: what becomes of the other axes.
    """

    inputs: Sequence[Any]
    records: int
    move: Move | None = None


def step_back(eqn: JaxprEqn, records: int) -> Step | None:
    """What an equation does to gradients whose records are along an axis of its result; None if it is no `Step`."""
    shape = shape_of(eqn.outvars[0])
    rest = (*shape[:records], *shape[records + 1 :])
    if eqn.primitive is lax.transpose_p:
        axes = eqn.params["permutation"]
        before = axes[records]
        move = tuple(axis - (axis > before) for axis in axes if axis != before)
        return Step(eqn.invars, before, ("transpose", move))
    if eqn.primitive is lax.reshape_p:
        same = records == 0 and shape_of(eqn.invars[0])[:1] == shape[:1]
        plain = same and eqn.params["dimensions"] is None and len(eqn.invars) == 1
        return Step(eqn.invars, 0, ("reshape", rest)) if plain else None
    if eqn.primitive is lax.squeeze_p:
        axes = range(len(shape_of(eqn.invars[0])))
        kept = [axis for axis in axes if axis not in eqn.params["dimensions"]]
        return Step(eqn.invars, kept[records], ("reshape", rest))
    if eqn.primitive is lax.convert_element_type_p:
        variables: list[Any] = [*eqn.invars, *eqn.outvars]
        floats = all(jnp.issubdtype(v.aval.dtype, jnp.floating) for v in variables)
        return Step(eqn.invars, records) if floats else None
    barrier = eqn.primitive.name == "optimization_barrier" and len(eqn.invars) == 1
    return Step(eqn.invars, records) if barrier or eqn.primitive in SUMS else None


def is_called(eqn: JaxprEqn) -> bool:
    """Whether it calls a program once, on its inputs: a jitted function, or one that is computed again."""
    return eqn.primitive.name in ("jit", "pjit") or is_recomputed(eqn)


def is_recomputed(eqn: JaxprEqn) -> bool:
    """Whether it is a part of the backward pass that computes something of the forward pass again."""
    return eqn.primitive.name in _REMAT and bool(eqn.params.get("differentiated"))


class Paths:
    """A program's ways back from its results."""

    def __init__(self, program: ClosedJaxpr):
        self.program = program
        jaxpr = program.jaxpr
        self._made = {v: (eqn, k) for eqn in jaxpr.eqns for k, v in enumerate(eqn.outvars)}
        used = [*jaxpr.outvars, *(v for eqn in jaxpr.eqns for v in eqn.invars)]
        self._uses = Counter(v for v in used if isinstance(v, Var))
        self._called: dict[int, Paths] = {}

    def made(self, atom: Any) -> tuple[JaxprEqn | None, int]:
        """(the equation that computes it, the number among its results); None for an input or a constant."""
        return (None, 0) if isinstance(atom, Literal) else self._made.get(atom, (None, 0))

    def is_used_once(self, atom: Any) -> bool:
        """Counting that the program gives it."""
        return not isinstance(atom, Literal) and self._uses[atom] == 1

    def is_zero(self, atom: Any) -> bool:
        """Whether it is known to be zeros."""
        if isinstance(atom, Literal):
            return bool(atom.val == 0) if jnp.ndim(atom.val) == 0 else False
        eqn, _ = self.made(atom)
        return (
            eqn is not None
            and eqn.primitive is lax.broadcast_in_dim_p
            and self.is_zero(eqn.invars[0])
        )

    @property
    def outs(self) -> list[Any]:
        """The program's results."""
        return self.program.jaxpr.outvars

    def within(self, eqn: JaxprEqn) -> Paths:
        """Those of the program that an equation calls."""
        if id(eqn) not in self._called:
            self._called[id(eqn)] = Paths(programs(eqn)[0])
        return self._called[id(eqn)]

    def origin(self, eqn: JaxprEqn, records: int) -> Callable[..., Stacked] | None:
        """From the inputs of an equation to the factors of its result, if it is a product or a look-up."""
        if eqn.primitive is lax.dot_general_p:
            return _product(eqn) if records == 0 else None
        found: Any = looked_up(eqn, records)
        return found if found is not None and self.is_zero(eqn.invars[0]) else None

    def summands(self, atom: Any) -> list[Any]:
        """What it is the sum of, of which no part of the sum is used otherwise."""
        eqn, _ = self.made(atom)
        if eqn is None or eqn.primitive not in SUMS or not self.is_used_once(atom):
            return [atom]
        return [part for v in eqn.invars for part in self.summands(v)]

    def accumulated(self, eqn: JaxprEqn, number: int) -> list[Any] | None:
        """What the steps of a loop add, variables of its program, to something it carries, which is zeros first.

        None, if they do anything else with it.
        """
        constants, carried, _ = scan_operands(eqn, eqn.invars)
        inner = self.within(eqn)
        before = inner.program.jaxpr.invars[len(constants) + number]
        parts = inner.summands(inner.outs[number])
        alone = inner.is_used_once(before) and parts.count(before) == 1 and len(parts) > 1
        if not alone or not self.is_zero(carried[number]):
            return None
        return [part for part in parts if part is not before]

    def factors(self, atom: Any, records: int) -> Stacked | Layers | None:
        """The shapes of a gradient's factors; None if it has none.

        Args:
          records: its axis of the records.
        """
        eqn, number = self.made(atom)
        if eqn is None:
            return None
        if origin := self.origin(eqn, records):
            variables: list[Any] = list(eqn.invars)
            shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in variables]
            return jax.eval_shape(lambda *values: origin(*values), *shapes)
        if step := step_back(eqn, records):
            found = self._sum([v for v in step.inputs if not self.is_zero(v)], step.records)
            return found.move(step.move) if found and step.move else found
        if eqn.primitive is lax.scan_p:
            return self._of_loop(eqn, number, records)
        if not is_called(eqn):
            return None
        inner = self.within(eqn)
        return inner.factors(inner.outs[number], records)

    def _sum(self, parts: Sequence[Any], records: int) -> Stacked | Layers | None:
        found: Any = None
        for at, part in enumerate(parts):
            more: Any = self.factors(part, records)
            both = isinstance(found, Stacked) and isinstance(more, Stacked)
            found = more if at == 0 else summed(found, more) if both else None
            if found is None:
                return None
        return found

    def _of_loop(self, eqn: JaxprEqn, number: int, records: int) -> Stacked | Layers | None:
        inner = self.within(eqn)
        carried = len(scan_operands(eqn, eqn.invars)[1])
        if number >= carried:
            each = inner.factors(inner.outs[number], records - 1) if records else None
            return Layers(each) if each else None
        parts = self.accumulated(eqn, number)
        each = inner._sum(parts, records) if parts else None
        if not isinstance(each, Stacked):
            return None
        steps = lambda x: jnp.zeros((eqn.params["length"], *x.shape), x.dtype)  # noqa: E731
        return jax.eval_shape(lambda: over_steps(jax.tree.map(steps, each)))


def pays(gradients: Stacked | Layers) -> bool:
    """Whether factors have fewer numbers than a record's gradient, and are less work.

    The gradient of a small tensor is formed in less time than its rows' products with each other, but for a single row
    and for look-ups, whose products are cheap, and whose gradients are mostly zeros.
    """
    while isinstance(gradients, Layers):
        gradients = gradients.each  # type: ignore[assignment]
    widths = [_sizes(p) for p in gradients.products]
    (_, i, o, _), *_ = widths
    rows = sum(rows for rows, *_ in widths)
    numbers = sum(rows * (1 + min(i, o) if table else i + o) for rows, i, o, table in widths)
    table = any(table for *_, table in widths)
    quick = rows**2 <= 16 * max(i, o) if table else rows == 1
    return numbers < i * o and (quick or i * o >= _LARGE)


def _sizes(product: Product) -> tuple[int, int, int, bool]:
    """(rows, i, o, whether it is of a table)."""
    sides = (product.left, product.right)
    places = [x for x in sides if isinstance(x, OneHot)]
    i, o = (x.width if isinstance(x, OneHot) else x.shape[2] for x in sides)
    return length(product.left), i, o, bool(places)


def _product(eqn: JaxprEqn) -> Callable[..., Stacked] | None:
    """Of one product of matrices for each record."""
    contracted, batch = eqn.params["dimension_numbers"]
    shapes = [shape_of(v) for v in eqn.invars]
    used = list(zip(shapes, contracted, batch, strict=True))
    if len(batch[0]) != 1 or min(len(s) - len(c) - 1 for s, c, _ in used) < 1:
        return None

    def factors(left: jax.Array, right: jax.Array) -> Stacked:
        rows = [_rows(x, c, b) for x, (_, c, b) in zip((left, right), used, strict=True)]
        entries = shape_of(eqn.outvars[0])[1:]
        moves: tuple[Move, ...] = (("reshape", entries),) if len(entries) != 2 else ()
        return Stacked((Product(*rows),), moves)

    return factors


def _rows(x: jax.Array, contracted: Sequence[int], batch: Sequence[int]) -> jax.Array:
    """[B, T, all other axes]."""
    rest = [axis for axis in range(x.ndim) if axis not in (*contracted, *batch)]
    rows = math.prod(x.shape[axis] for axis in contracted)
    widths = math.prod(x.shape[axis] for axis in rest)
    return x.transpose(*batch, *contracted, *rest).reshape(x.shape[batch[0]], rows, widths)
