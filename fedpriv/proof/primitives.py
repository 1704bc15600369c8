"""The operations of a traced round that are ours: marks, and what is done for all clients.

A round is traced with a cohort that holds nobody's data. Its calls become these equations, and rules say what they
mean: how labels pass them, how they run (`fedpriv.rounds.running`), how a round is played for an audit. One client
stands for all in the flow of labels: what is summed over the cohort depends on nothing but what clients are given,
which the mark of the call names, what they close over, and who they are. How many they are shows in a sum of what is
the same for all; there the noise of the sum hides a client as it hides its data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, JaxprEqn

from fedpriv.core.identities import Identity
from fedpriv.core.trees import widened
from fedpriv.core.types import PyTree
from fedpriv.proof.flow import Operation, propagate
from fedpriv.proof.labels import Labels, passed


class _Mark(Identity, Operation):
    def transfer(self, eqn: JaxprEqn, labels: list[Labels], rules: Any) -> list[Labels]:
        """As the mark says; those of another round, that is played within this one, mean nothing here."""
        if eqn.params["of"] is not rules.marks:
            return labels
        return rules.marks[eqn.params["number"]].transfer(labels, rules.protected)


class _Clients(Operation):
    multiple_results = True

    def transfer(self, eqn: JaxprEqn, labels: list[Labels], rules: Any) -> list[Labels]:
        """Through the program of one client, which stands for all.

        Its key is made of the client's number, which is as public as the key; and what is stacked is zero where there
        is nobody. So both tell who takes part.
        """
        call, own = rules.marks[eqn.params["number"]], eqn.params["own"]
        (hidden, key), rows, held = labels[:2], labels[2 : 2 + own], labels[2 + own :]
        given = [call.given(name, rules.protected) for name in eqn.params["given"]]
        rows = call.rows(rows, rules.protected)
        held = [passed(eqn, each) for each in held]
        who = frozenset({call.taking_part})
        inputs = [hidden, key | who, *given, *rows, *held]
        found = propagate(eqn.params["program"].jaxpr, inputs, rules)
        summed = eqn.params["summed"]
        return [*found[:summed], *(each | who for each in found[summed:])]


MARK = _Mark("fedpriv_mark")
"""The identity on its arguments; rules know by its `number` what it means."""
CLIENTS = _Clients("fedpriv_clients")
"""(hidden key, key, what clients keep, what the client closes over) -> (sums over the cohort, what is stacked).

Its `program` is that of one client: (hidden key, key, `given` leaf by leaf, own row, what it closes over) -> (what is
summed, what is stacked)."""


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
