"""Computes a batch's gradients without forming those that are products: the traced program by other rules than JAX's.

Where a part of it is to be recomputed (`jax.checkpoint`), or is one step of a loop, what is asked of a gradient can be
computed within that part, so that no factors of the whole are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn, Literal

from fedpriv.core.jaxprs import equations, evaluate, scan_operands
from fedpriv.core.types import Example, LossFn, Params
from fedpriv.mechanisms.formed_gradients import formed, is_formed_last
from fedpriv.mechanisms.gradients_of_leaves import (
    Formed,
    Norms,
    OfRecords,
    Total,
    of_layers,
    over_steps,
)
from fedpriv.mechanisms.outer_product_gradients import (
    Paths,
    is_called,
    is_recomputed,
    pays,
    step_back,
)
from fedpriv.mechanisms.outer_products import Stacked, summed

Asked: TypeAlias = Callable[[int, OfRecords, Any], Norms | Total]
"""(number of the leaf, its gradients or a layer's, what was found of these before) -> what is asked of them."""


class FactoredProgram:
    """The gradients of a batch's records, as a program.

    Args:
      loss: of one example, (params, example) -> f32[].

    Attributes:
      args: what it is computed for.
      recomputes: whether parts of it are to be computed again, to save memory.
    """

    def __init__(self, loss: LossFn, params: Params, batch: Example):
        gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0))
        self._program = jax.make_jaxpr(gradients)(params, batch)
        self.args = [*jax.tree.leaves(params), *jax.tree.leaves(batch)]
        self.recomputes = any(is_recomputed(eqn) for eqn, _ in equations(self._program.jaxpr))
        self._paths = Paths(self._program)
        found = [self._paths.factors(v, 0) for v in self._paths.outs]
        self._factored = [f is not None and pays(f) for f in found]
        pairs = zip(found, self._factored, strict=True)
        self._last = [not kept and is_formed_last(f) for f, kept in pairs]

    def formed(self) -> list[jax.Array]:
        """Every leaf's gradients, [B, ...], as JAX computes them."""
        return evaluate(self._program, self.args, lambda eqn, values: NotImplemented)

    def gradients(self) -> list[OfRecords]:
        """Every leaf's gradients, those that have factors as these, all of them kept."""
        pairs = zip(self._run(None, self.args), self._last, strict=True)
        return [
            Formed(formed(found)) if last and isinstance(found, Stacked) else _of_records(found, 0)
            for found, last in pairs
        ]

    def ask(
        self, asked: Asked, args: Sequence[Any], before: Sequence[Norms] | None = None
    ) -> list[Any]:
        """What is asked of every leaf's gradients, `Norms` or `Total`, computed where they are, so that few are kept.

        Args:
          args: `args`, or those behind a barrier.
          before: what was found, for each leaf, when it was asked before.
        """
        found = self._run(asked, args, before)
        given: Sequence[Norms | None] = before or [None] * len(found)
        return [
            f if isinstance(f, Norms | Total) else asked(leaf, _of_records(f, 0), known)
            for leaf, (f, known) in enumerate(zip(found, given, strict=True))
        ]

    def _run(
        self, asked: Asked | None, args: Sequence[Any], before: Sequence[Norms] | None = None
    ) -> list[Any]:
        wants = [Want(leaf, 0, True) for leaf in range(len(self._factored))]
        last = self._last if asked is None else [False] * len(wants)
        factored = [one or other for one, other in zip(self._factored, last, strict=True)]
        run = _Run(factored, asked, dict(enumerate(before or [])))
        return run.level(self._paths, args, wants)


class Want(NamedTuple):
    """That a variable is a leaf's gradients, or a part of them.

    Attributes:
      leaf: its number.
      records: the axis of the records.
      alone: whether it is all of the leaf's gradients, and nothing else.
    """

    leaf: int
    records: int
    alone: bool


class _Zero(NamedTuple):
    """What a loop adds gradients to, first."""

    like: Any


class _Run:
    """One computation of a program.

    Args:
      factored: for each leaf, whether its gradients are to be factors.
      asked: what is asked of them at the end of each part; None: nothing, they are given.
      before: what was found of leaves before, of those within a loop for its current step.
    """

    def __init__(self, factored: Sequence[bool], asked: Asked | None, before: dict[int, Norms]):
        self._factored, self._asked, self._before = factored, asked, before

    def level(self, paths: Paths, values: Sequence[Any], outs: Sequence[Want | None]) -> list[Any]:
        """A program's results, those of which `outs` says that they are gradients as factors or as what is asked."""
        wants = self._wants(paths, outs)

        def rule(eqn: JaxprEqn, given: list[Any]) -> Any:
            out = self._rule(paths, wants, eqn, given)
            if out is NotImplemented:
                given[:] = _arrays(eqn, given, wants)
            return out

        found = evaluate(paths.program, values, rule)
        given = zip(found, paths.outs, outs, strict=True)
        return [
            value if want or isinstance(v, Literal) else _array(value, wants.get(v))
            for value, v, want in given
        ]

    def _wants(self, paths: Paths, outs: Sequence[Want | None]) -> dict[Any, Want]:
        """For each variable on the ways back."""
        wants: dict[Any, Want] = {}
        todo = [(v, want) for v, want in zip(paths.outs, outs, strict=True) if want]
        while todo:
            variable, want = todo.pop()
            if not self._factored[want.leaf] and not (self._asked and want.alone):
                continue
            eqn, _ = paths.made(variable)
            if isinstance(variable, Literal) or wants.get(variable, want).records != want.records:
                continue
            want = want._replace(alone=_is_alone(paths, variable, want))
            wants[variable] = want
            if eqn is None or paths.origin(eqn, want.records):
                continue
            step = step_back(eqn, want.records)
            if step is not None:
                alone = want.alone and len(step.inputs) == 1
                inner = Want(want.leaf, step.records, alone)
                todo += [(v, inner) for v in step.inputs]
        return wants

    def _rule(self, paths: Paths, wants: dict[Any, Want], eqn: JaxprEqn, values: list[Any]) -> Any:
        outs = [wants.get(v) for v in eqn.outvars]
        if not any(outs):
            return NotImplemented
        if eqn.primitive is lax.scan_p:
            return self._loop(paths.within(eqn), eqn, _arrays(eqn, values, wants), outs)
        if is_called(eqn):
            return self._call(paths.within(eqn), eqn, _arrays(eqn, values, wants), outs)
        want = outs[0]
        if len(outs) > 1 or want is None:
            return NotImplemented
        if self._factored[want.leaf] and (origin := paths.origin(eqn, want.records)):
            return [origin(*_arrays(eqn, values, wants))]
        step = step_back(eqn, want.records)
        return NotImplemented if step is None else _stepped(paths, eqn, step.move, values)

    def _call(
        self, inner: Paths, eqn: JaxprEqn, values: list[Any], outs: Sequence[Want | None]
    ) -> list[Any]:
        if not is_recomputed(eqn):
            return self.level(inner, values, outs)
        # As JAX does, so that XLA does not find what was computed before, and keep it.
        apart = eqn.params["prevent_cse"]
        if apart is True or (apart and any(apart)):
            values = list(lax.optimization_barrier(values))
        found = self._part(inner, values, outs)
        return list(lax.optimization_barrier(found)) if self._asked else found

    def _part(self, paths: Paths, values: Sequence[Any], outs: Sequence[Want | None]) -> list[Any]:
        """As `level`, with what is asked in place of gradients that are in this part alone."""
        found, asked = self.level(paths, values, outs), self._asked
        for k, (v, want) in enumerate(zip(paths.outs, outs, strict=True)):
            if (
                asked
                and want
                and _is_alone(paths, v, want)
                and not isinstance(found[k], Norms | Total)
            ):
                gradients = _of_records(found[k], want.records)
                found[k] = asked(want.leaf, gradients, self._before.get(want.leaf))
        return found

    def _loop(
        self, inner: Paths, eqn: JaxprEqn, values: list[Any], outs: Sequence[Want | None]
    ) -> list[Any]:
        """A scan: of leaves that it runs through, gradients by layers; of those that all its steps use, their sum."""
        constants, start, runs = scan_operands(eqn, values)
        carried = outs[: len(start)]
        added = [k for k, want in enumerate(carried) if want and self._factored[want.leaf]]
        wants = [
            *(want and want._replace(alone=False) for want in carried),
            *(want and want._replace(records=want.records - 1) for want in outs[len(start) :]),
        ]
        wants = [want if want and want.records >= 0 else None for want in wants]
        kept = [k for k in range(len(start)) if k not in added]
        before = self._of_steps(inner, wants)
        fixed = _Fixed(runs)

        def step(state: list[Any], x: tuple[list[Any], dict[int, Norms]]) -> tuple[Any, Any]:
            now: list[Any] = [_Zero(v) for v in start]
            for k, value in zip(kept, state, strict=True):
                now[k] = value
            run = _Run(self._factored, self._asked, {**self._before, **x[1]})
            out = run._part(inner, [*constants, *now, *x[0]], wants)
            new = fixed.without([[out[k] for k in added], out[len(start) :]], x[0])
            return [out[k] for k in kept], new

        options = {name: eqn.params[name] for name in ("length", "reverse", "unroll")}
        state, new = lax.scan(step, [start[k] for k in kept], (runs, before), **options)
        sums, given = fixed.together(new)
        after = {
            **dict(zip(kept, state, strict=True)),
            **dict(zip(added, map(over_steps, sums), strict=True)),
        }
        layers = [v if isinstance(v, jax.Array) else of_layers(v) for v in given]
        return [*(after[k] for k in range(len(start))), *layers]

    def _of_steps(self, inner: Paths, wants: Sequence[Want | None]) -> dict[int, Norms]:
        """What was found before of leaves each of whose layers is one step's."""
        pairs = zip(inner.outs, wants, strict=True)
        leaves = [want.leaf for v, want in pairs if want and _is_alone(inner, v, want)]
        return {leaf: self._before[leaf] for leaf in leaves if leaf in self._before}


class _Fixed:
    """What a loop's steps give, without the arrays that the loop runs through, of which there would be copies.

    Args:
      runs: these arrays.
    """

    def __init__(self, runs: Sequence[Any]):
        self._runs = runs

    def without(self, given: Any, x: Sequence[Any]) -> list[Any]:
        """The arrays in what a step gives that are not its own `x`."""
        leaves, self._tree = jax.tree.flatten(given)
        self._at = [next((k for k, v in enumerate(x) if v is leaf), None) for leaf in leaves]
        return [leaf for leaf, k in zip(leaves, self._at, strict=True) if k is None]

    def together(self, new: Sequence[Any]) -> Any:
        """What all steps give, of those arrays with a leading axis of the steps."""
        rest = iter(new)
        every = [next(rest) if k is None else self._runs[k] for k in self._at]
        return jax.tree.unflatten(self._tree, every)


def _is_alone(paths: Paths, variable: Any, want: Want) -> bool:
    return want.alone and paths.is_used_once(variable)


def _stepped(paths: Paths, eqn: JaxprEqn, move: Any, values: Sequence[Any]) -> Any:
    """What moving entries, or adding, makes of gradients."""
    pairs = zip(values, eqn.invars, strict=True)
    parts = [v for v, x in pairs if not isinstance(v, _Zero) and not paths.is_zero(x)]
    if not parts or not all(isinstance(v, OfRecords | Norms | Total) for v in parts):
        return NotImplemented
    if len(parts) == 1:
        return [parts[0].move(move) if move else parts[0]]
    both = [summed(*parts)] if all(isinstance(v, Stacked) for v in parts) else [None]
    return both if both[0] is not None else NotImplemented


def _of_records(value: Any, records: int) -> OfRecords:
    if isinstance(value, OfRecords):
        return value
    return Formed(jnp.moveaxis(value, records, 0))


def _arrays(eqn: JaxprEqn, values: Sequence[Any], wants: dict[Any, Want]) -> list[Any]:
    known = [None if isinstance(v, Literal) else wants.get(v) for v in eqn.invars]
    return [_array(value, want) for value, want in zip(values, known, strict=True)]


def _array(value: Any, want: Want | None) -> Any:
    """The gradients themselves, where something else is done with them."""
    if isinstance(value, _Zero):
        return jnp.zeros_like(value.like)
    if not isinstance(value, OfRecords):
        return value
    assert want is not None
    return jnp.moveaxis(value.formed(), 0, want.records)
