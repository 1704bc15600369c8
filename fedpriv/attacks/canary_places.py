"""Where canaries can be in a round: what its calls of `cohort.sum` or `shard.private_mean` release."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, JaxprEqn, jaxpr_as_fun

from fedpriv.attacks.canary_messages import Canaries
from fedpriv.core.places import region, region_of, tap
from fedpriv.core.trees import dimension, flatten
from fedpriv.core.types import PyTree
from fedpriv.mechanisms.described import worst_case_of
from fedpriv.mechanisms.integers import IntegerSum
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.proof.marks import Marks, Sum
from fedpriv.proof.primitives import CLIENTS
from fedpriv.proof.program import RoundProgram
from fedpriv.rounds.private_step import PrivateStep, features_of
from fedpriv.rounds.record_marks import Mean
from fedpriv.rounds.record_samplers import PublicGroups

_PLACE = "canaries_"


class NoPlaceError(ValueError):
    """The algorithm lets nobody take the place of a client, or of a record."""


class Place(NamedTuple):
    """Where something can be injected into a round, such as canaries.

    Attributes:
      release: that of a cohort's sum, or of a private mean.
      name: of the region in the round's program in which its mechanism is.
      bounded: that region; what the mechanism is made of in the round are its first operands.
    """

    release: Sum | Mean
    name: str
    bounded: ClosedJaxpr

    def added(self, made_of: list[Any], direction: PyTree) -> tuple[PyTree, jax.Array]:
        """(What a canary adds in a direction, f32[]: how far that reaches).

        Args:
          made_of: the mechanism, in this round.
        """
        *bounded, reach = jaxpr_as_fun(self.bounded)(*made_of, *jax.tree.leaves(direction))
        return jax.tree.unflatten(jax.tree.structure(direction), bounded), reach


def with_places(marks: Marks, canaries: Canaries, t: jax.Array, value: jax.Array) -> jax.Array:
    """The value, for which a round that is traced has to compute what each release makes of canaries.

    Raises:
      NoPlaceError: records travel as integers, or are drawn in other groups than what was seen.
      ValueError: more canaries of a client than it has records.
    """
    kind = Mean if canaries.per_client else Sum
    made: list[Any] = []
    for number, mark in enumerate(marks):
        if isinstance(mark, kind) and not mark.step.passes_on:
            if isinstance(mark, Mean):
                _check_records(canaries, features_of(mark.step))
            nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), mark.like)
            bounded = _bounded(mark, canaries.length, t)
            made.append(region(f"{_PLACE}{number}", bounded, nothing))
    return tap("canaries", (value, made))[0]


def places_of(program: RoundProgram, canaries: Canaries) -> list[Place]:
    """Those of a round's program; honest canaries find none in messages that a protocol takes.

    Raises:
      NoPlaceError: there is none.
    """
    equations, places = program.program.jaxpr.eqns, []
    calls = [eqn.params for eqn in equations if eqn.primitive is CLIENTS]
    summed = {call["number"] for call in calls if call["summed"]}
    for eqn in equations:
        name = region_of(eqn) or ""
        if name.startswith(_PLACE):
            release: Any = program.marks[int(name.removeprefix(_PLACE))]
            of_records = canaries.per_client and canaries.data is None
            if of_records or release.call in summed:
                places.append(Place(release, name, eqn.params["jaxpr"]))
    if not places:
        of = canaries.per_client
        what = "records with shard.private_mean" if of else "clients with cohort.sum"
        raise NoPlaceError(f"algorithm: canaries find no place in it; protect {what}")
    return places


def made_of(eqn: JaxprEqn, values: list[Any], like: PyTree) -> list[Any]:
    """Of the operands of the region of a place, what its mechanism is made of in the round."""
    return values[: len(values) - len(jax.tree.leaves(like))]


def _bounded(
    release: Sum | Mean, length: float, t: jax.Array
) -> Callable[[PyTree], tuple[PyTree, jax.Array]]:
    """A direction -> (what a canary of that length adds, how far it reaches).

    A heuristic of which nothing is certified bounds nothing.
    """
    used = release.step.mechanism.in_round(t)
    of_records = isinstance(release, Mean)
    integers = (
        None if of_records else features_of(release.step).integer_sum(dimension(release.like))
    )

    def bounded(direction: PyTree) -> tuple[PyTree, jax.Array]:
        if not isinstance(used, Mechanism):
            return direction, jnp.float32(1)
        far = jax.tree.map(lambda leaf: length * leaf, direction)
        contribution = used.clip(far)[0]
        return contribution, _reach(used, integers, contribution)

    return bounded


def _reach(used: Mechanism, integers: IntegerSum | None, contribution: PyTree) -> jax.Array:
    """f32[]: its length in units of the noise, of the z_t of correlated noise; without noise 1."""
    if integers is not None:
        deviation = integers.noise_deviation
        return jnp.linalg.norm(flatten(contribution)) / (deviation or 1.0)
    if used.correlation is not None:
        used = used.correlation.mechanism
    hardest = worst_case_of(used)
    if hardest is None:
        return jnp.float32(1)
    return jnp.linalg.norm(flatten(hardest.whiten(contribution)))


def _check_records(canaries: Canaries, step: PrivateStep) -> None:
    """Raises ValueError: records of which canaries cannot take the places; see `with_places`."""
    if getattr(step.mechanism, "integers", None) is not None:
        raise NoPlaceError(
            "mechanism: records travel as integers; audit the mechanism, with draw_scores"
        )
    if isinstance(step.sampling, PublicGroups):
        _check_group(canaries, step.sampling)
    if canaries.per_client > (held := step.sampling.accounting.population):
        raise ValueError(
            f"per_client: a client has {held} records, not {canaries.per_client} to give up"
        )


def _check_group(canaries: Canaries, records: PublicGroups) -> None:
    """Raises NoPlaceError: canaries are in another group than the one whose draws they are scored by."""
    places = [divmod(j, canaries.per_client) for j in range(len(canaries.present))]
    names = {(i, str(records.groups[i][at])) for i, at in places if at < len(records.groups[i])}
    drawn = {records.accounting_of(records.held[i][name], name) for i, name in names}
    if drawn != {canaries.drawn}:
        groups = sorted({name for _, name in names})
        raise NoPlaceError(
            f"records: canaries take the first records' places, of groups {groups}, which are drawn otherwise than "
            "what was seen; give what is seen of that group, `traced.seen(rounds, kind)`, and let those be of one group"
        )
