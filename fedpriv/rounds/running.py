"""How a round's program runs: for the clients who are drawn, laid out on the machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.extend.core import JaxprEqn, jaxpr_as_fun

from fedpriv.core.interpreted import inlined
from fedpriv.core.jaxprs import evaluate
from fedpriv.core.places import region_of
from fedpriv.core.types import Key, Metrics, PyTree, State
from fedpriv.proof.given import Given, OfClient
from fedpriv.proof.primitives import CLIENTS, MARK
from fedpriv.proof.program import Arguments, RoundProgram
from fedpriv.proof.reference import Call
from fedpriv.rounds.over_clients import over_clients
from fedpriv.rounds.own_state import STORE
from fedpriv.rounds.remembered_noise import REMEMBER
from fedpriv.rounds.samplers import Draw
from fedpriv.rounds.scheduled_samplers import AnySampler


class Ran(NamedTuple):
    """What a round gives back.

    Attributes:
      state, metrics, not_finite: as `Results`.
      memory: what correlated noise remembers then.
    """

    state: State
    metrics: Metrics
    not_finite: dict[str, jax.Array]
    memory: tuple[PyTree, ...] | None


class RoundToRun(NamedTuple):
    """A round of a run.

    Attributes:
      hidden: the hidden branch of the round.
      key, state: as the algorithm's round is given them.
      t: i32[], rounds done.
      drawn: who takes part, by the `sampler`.
      federation: as a round sees it.
      memory: what correlated noise remembers; None where the round stands alone.
    """

    hidden: Key
    key: Key
    state: State
    t: jax.Array
    sampler: AnySampler
    drawn: Draw
    federation: Any
    memory: tuple[PyTree, ...] | None


def run_round(program: RoundProgram, of: RoundToRun) -> Ran:
    """The round, for those who are drawn.

    Raises:
      ValueError: noise that is correlated over rounds, in a round that stands alone.
    """
    return run_by(Engine(of), program, of)


def run_by(rule: Engine, program: RoundProgram, of: RoundToRun) -> Ran:
    """The round, by a rule."""
    found = evaluate(program.program, jax.tree.leaves(arguments_of(of)), rule)
    results = jax.tree.unflatten(jax.tree.structure(program.out), found)
    return Ran(results.state, results.metrics, results.not_finite, rule.memory_after)


def arguments_of(of: RoundToRun) -> Arguments:
    """Of its program."""
    rows = of.federation.public
    public = jax.tree.map(lambda leaf: leaf[rows], of.federation.examples)
    members = jnp.sum(of.drawn.mask).astype(jnp.int32)
    return Arguments(Given(of.hidden, jnp.int32(of.t), members, public), of.key, of.state)


RunOfClient: TypeAlias = Callable[[OfClient, Sequence[Any]], tuple[list[Any], list[Any]]]
"""(a client, its rows of what all keep) -> (what is summed, what is stacked)."""


class Engine:
    """The rule by which equations run."""

    def __init__(self, of: RoundToRun):
        self._drawn, self._federation, self._memory = of.drawn, of.federation, of.memory
        self._after: list[PyTree] = []
        self._of: dict[Any, Callable[[JaxprEqn, list[Any]], Any]] = {
            MARK: self.mark,
            CLIENTS: self.clients,
            STORE: self.store,
            REMEMBER: self.remember,
        }

    def __call__(self, eqn: JaxprEqn, values: list[Any]) -> Any:
        """The outputs of an equation; NotImplemented of JAX's own."""
        if own := self._of.get(eqn.primitive):
            return own(eqn, values)
        # A region's call is of a new function in every trace, which eager rounds would compile anew.
        return NotImplemented if region_of(eqn) is None else inlined(eqn, values, self)

    @property
    def memory_after(self) -> tuple[PyTree, ...] | None:
        """What is remembered after the round."""
        return tuple(self._after)

    def mark(self, eqn: JaxprEqn, values: list[Any]) -> list[Any]:
        """The identity."""
        return values

    def clients(self, eqn: JaxprEqn, values: list[Any]) -> list[Any]:
        """The program of one client, for each who is drawn."""
        call = Call.of(eqn, values)
        run = jaxpr_as_fun(call.program)

        def client(given: OfClient, rows: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            found = run(*call.arguments(given, rows))
            return found[: call.summed], found[call.summed :]

        total, stacked = self.over_clients(call, client, self._drawn)
        return [*total, *stacked]

    def over_clients(
        self, call: Call, run: RunOfClient, drawn: Draw
    ) -> tuple[list[Any], list[Any]]:
        """(The sums, what is stacked), of what `run` gives back for a client and its rows."""

        def client(
            i: jax.Array, records: PyTree, size: jax.Array, answer: Any, *rows: Any
        ) -> tuple:
            return run(OfClient(records, size, i, answer), rows)

        rows = [leaf.at[drawn.ids].get(mode="clip") for leaf in call.kept]
        return over_clients(client, drawn, self._federation, *rows)

    def store(self, eqn: JaxprEqn, values: list[Any]) -> list[Any]:
        """What clients keep, with new rows of the cohort's."""
        half, ids = len(values) // 2, self._drawn.ids
        pairs = zip(values[:half], values[half:], strict=True)
        return [leaf.at[ids].set(row, mode="drop") for leaf, row in pairs]

    def remember(self, eqn: JaxprEqn, values: list[Any]) -> list[Any]:
        """With what is remembered of earlier rounds."""
        if self._memory is None:
            raise ValueError(
                "mechanism: its noise is correlated over rounds, and this round stands alone; train with fp.simulate"
            )
        leaves, structure = jax.tree.flatten(self._memory[len(self._after)])
        own, held = len(values) - eqn.params["held"], eqn.params["held"]
        found = jaxpr_as_fun(eqn.params["program"])(
            *values[:own], *leaves, *values[len(values) - held :]
        )
        noisy = len(found) - len(leaves)
        self._after.append(jax.tree.unflatten(structure, found[noisy:]))
        return found[:noisy]
