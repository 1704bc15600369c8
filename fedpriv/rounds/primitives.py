"""The equations of a traced round that are ours: marks, and what is done for all clients, stored or remembered.

A round is traced with a cohort that holds nobody's data. Its calls become these equations, and rules say what they
mean: how labels pass them (`fedpriv.certification.rules`), how they run (`fedpriv.rounds.running`), how a round is
played for an audit. What no rule takes care of does not compile, but for marks and taps, which are the identity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Primitive
from jax.interpreters import ad, batching, mlir

from fedpriv.core.places import TAP
from fedpriv.core.trees import widened
from fedpriv.core.types import PyTree

MARK = Primitive("fedpriv_mark")
"""The identity on its arguments; rules know by its `number` what it means."""
CLIENTS = Primitive("fedpriv_clients")
"""(hidden key, key, what clients keep, what the client closes over) -> (sums over the cohort, what is stacked).

Its `program` is that of one client: (hidden key, key, `given` leaf by leaf, own row, what it closes over) -> (what is
summed, what is stacked)."""
STORE = Primitive("fedpriv_store")
"""(what all clients keep, new rows of the cohort's) -> what all keep then."""
REMEMBER = Primitive("fedpriv_remember")
"""What the engine remembers from round to round for an equation: its program gives the outputs, and the memory then."""
for _each in (MARK, CLIENTS, STORE, REMEMBER):
    _each.multiple_results = True
OURS = (MARK, CLIENTS, STORE, REMEMBER, TAP)

MARK.def_impl(lambda *arrays, **_: list(arrays))
MARK.def_abstract_eval(lambda *avals, **_: list(avals))
mlir.register_lowering(
    MARK, mlir.lower_fun(lambda *arrays, **_: list(arrays), multiple_results=True)
)


def _batched(arrays: Sequence[Any], axes: Sequence[Any], **mark: Any) -> tuple[Any, Any]:
    return MARK.bind(*arrays, **mark), axes


def _derived(arrays: Sequence[Any], tangents: Sequence[Any], **mark: Any) -> tuple[Any, Any]:
    return MARK.bind(*arrays, **mark), list(tangents)


batching.primitive_batchers[MARK] = _batched
ad.primitive_jvps[MARK] = _derived


class ProgramOfOne(NamedTuple):
    """A function, traced; what it closes over is given to it last.

    Attributes:
      program: closes over nothing.
      held: what it has to be given after its own arguments: arrays, and values of the trace around it.
      out: what it gives back, in shapes.
    """

    program: ClosedJaxpr
    held: tuple[Any, ...]
    out: Any


def program_of_one(fn: Callable[..., Any], *like: Any) -> ProgramOfOne:
    """`fn`, traced by itself for arguments of these shapes."""
    traced, out = jax.make_jaxpr(fn, return_shape=True)(*like)
    jaxpr = traced.jaxpr
    jaxpr = jaxpr.replace(constvars=[], invars=[*jaxpr.invars, *jaxpr.constvars])
    return ProgramOfOne(ClosedJaxpr(jaxpr, ()), tuple(traced.consts), out)


def in_shapes(tree: PyTree) -> PyTree:
    """Its arrays' shapes and types."""

    def of(leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf))

    return jax.tree.map(of, tree)


@CLIENTS.def_effectful_abstract_eval
def _of_clients(
    *_: Any,
    program: ClosedJaxpr,
    given: tuple[str, ...],
    summed: int,
    slots: int,
    own: int,
    number: int,
) -> tuple[list[ShapedArray], Any]:
    first, others = program.out_avals[:summed], program.out_avals[summed:]
    sums = jax.eval_shape(widened, [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in first])
    stacked = [ShapedArray((slots, *a.shape), a.dtype) for a in others]
    return [*(ShapedArray(s.shape, s.dtype) for s in sums), *stacked], program.effects


@STORE.def_abstract_eval
def _stored(*avals: Any, number: int) -> list[ShapedArray]:
    return [ShapedArray(a.shape, a.dtype) for a in avals[: len(avals) // 2]]


@REMEMBER.def_effectful_abstract_eval
def _remembered(*_: Any, program: ClosedJaxpr, memory: int, held: int) -> tuple[list[Any], Any]:
    return list(program.out_avals[: len(program.out_avals) - memory]), program.effects
