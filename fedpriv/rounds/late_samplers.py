"""Samplers whose members answer late: who answers in a server step, and for which model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core import random_streams
from fedpriv.core.arguments import Count, NonNegative, check_fields, checked
from fedpriv.core.complaints import require
from fedpriv.core.provenance import constructed, sealed
from fedpriv.core.types import Key, PyTree
from fedpriv.core.user_functions import asked
from fedpriv.privacy.sampling import Accounting, MinimumSeparation
from fedpriv.privacy.sampling.grouped import GroupedTurns
from fedpriv.rounds.delays import DelayLaw
from fedpriv.rounds.group_names import digest_of
from fedpriv.rounds.participation_samplers import least_lots
from fedpriv.rounds.samplers import Draw, Sampler
from fedpriv.rounds.scheduled_samplers import AnySampler, ScheduledSampler

Staleness: TypeAlias = Callable[[int], float] | Sequence[NonNegative] | None
"""Delay -> how much an answer counts, such as `lambda d: 1 / (1 + d) ** 0.5`; or a weight for each delay from 0 on."""

_LIGHTEST = 1e-6  # of weights of a class


@dataclass(frozen=True)
class FreeClients:
    """Draws `buffer` clients, uniformly, of those that have no answer out; who answers when is no secret.

    A client that answered in step t, and whose next answer is d steps late, answers again in step t + d + 1 at the
    earliest: it is given its next model once its last answer is in. The engine remembers 8 bytes per client.

    Formal guarantees: `MinimumSeparation(population, buffer, b)` for every outcome of the draws, b the larger of
    `separation` and the least delay plus 1; of speed classes, each by its own least delay, so that a certificate has
    one for each class (`of_groups`).

    *Proof.* The delay d of a client's next answer is drawn when it answers, in step t, and it is remembered as free
    from step t + max(d + 1, separation) on; it is not drawn before. Neither draw looks at data.

    Attributes:
      population: number of clients.
      buffer: K, answers in a server step.
      separation: fewest steps from one answer of a client to its next, also where these are not late. The longer, the
        less epsilon is certified.

    Raises:
      ValueError: a number below 1, or more answers than clients.
    """

    population: Count
    buffer: Count
    separation: Count = 1

    def __post_init__(self) -> None:
        check_fields(self)
        remedy = f"give at most the population, {self.population}"
        require(self.buffer <= self.population, "buffer", self.buffer, remedy)


class Out(NamedTuple):
    """What is remembered of clients' answers.

    Attributes:
      free: i32[clients], the step from which on each may answer.
      delay: i32[clients], of its next answer; -1 before the first one.
    """

    free: jax.Array
    delay: jax.Array


def late(
    who: AnySampler | FreeClients, delay: DelayLaw, staleness: Staleness = None
) -> tuple[AnySampler, float]:
    """(The sampler whose members answer late, the largest weight of an answer, over which theirs are).

    Formal guarantees: the sampler's own accounting; a member's answer is weighted by at most 1, and where speed classes
    are told apart, by at most the largest weight of its class.

    *Proof.* Let the delay of each client in each step be drawn beforehand, whether or not it takes part, and be known
    to the view: its law depends on the client's number alone, and so is the same for neighbours. Given all delays, the
    draws are as without them.

    Raises:
      ValueError: no such sampler or law; weights that are none; classes of another number of clients; buffers that may
        not be full.
    """
    kinds = (Sampler, ScheduledSampler, FreeClients)
    remedy = "give one such as fp.FreeClients(1000, buffer=10) or fp.poisson(1000, rate=0.01)"
    require(isinstance(who, kinds), "sampler", who, remedy)
    population = who.population if isinstance(who, FreeClients) else who.accounting.population
    if delay.classes is not None:
        remedy = f"give one for each of {population} clients"
        require(len(delay.classes) == population, "delay: classes", len(delay.classes), remedy)
    weights, largest = _weights(staleness, delay)
    if isinstance(who, FreeClients):
        return sealed(_of_the_free(who, delay, weights)), largest
    once = who.accounting.of_a_round.repeats == 1
    remedy = "a client may be in a buffer several times; give one that draws without replacement"
    require(once, "sampler", who.accounting, remedy)
    if delay.most_late == 0:
        return who, largest
    beside: Any = _beside_turns if who.accounting.turns is not None else _beside
    made: AnySampler = who._replace(draw=beside(who, delay, weights), seal=())
    return sealed(made) if constructed(who) else made, largest


def _weights(staleness: Staleness, delay: DelayLaw) -> tuple[np.ndarray | None, float]:
    """(f32[most_late + 1], weights over the largest, or None where all are 1; the largest)."""
    if staleness is None:
        return None, 1.0
    every = range(delay.most_late + 1)
    given: Any = staleness
    if callable(staleness):
        given = [_number(asked("staleness", staleness, "(delay)", d)) for d in every]
    weights = checked("staleness", given, Callable[..., Any] | Sequence[NonNegative])
    remedy = f"give a weight for each delay from 0 to {delay.most_late}"
    require(len(weights) == len(every), "staleness", weights, remedy)
    possible = [weights[d] for delays in delay.possible.values() for d in delays]
    largest = max(possible)
    require(largest > 0, "staleness", weights, "give some delay a weight above 0")
    if min(possible) == largest:
        return None, largest
    return np.minimum(np.array(weights) / largest, 1).astype(np.float32), largest


def _heaviest(delays: Sequence[int], weights: np.ndarray | None) -> float:
    """The largest weight of an answer with one of these delays; above 0, where all weigh nothing."""
    return 1.0 if weights is None else max(_LIGHTEST, *(float(weights[d]) for d in delays))


def _number(weight: Any) -> Any:
    """Of an array without axes its number, if it is known while the algorithm is made."""
    traced = isinstance(weight, jax.core.Tracer)
    return weight if traced or jnp.shape(weight) else np.asarray(weight).item()


def _answering(members: Draw, delay: jax.Array, weights: np.ndarray | None) -> Draw:
    answer = members.answer._replace(delay=delay)
    if weights is not None:
        weight = jnp.asarray(weights)[delay]
        weight = weight if answer.weight is None else weight * answer.weight
        answer = answer._replace(weight=weight)
    return members._replace(answer=answer)


def _beside(who: Sampler, law: DelayLaw, weights: np.ndarray | None) -> Callable[[Key], Draw]:
    def draw(key: Key) -> Draw:
        members = who.draw(key)
        of_delays = jax.random.fold_in(key, random_streams.DELAYS)
        return _answering(members, law.draw(of_delays, members.ids), weights)

    return draw


def _beside_turns(
    who: ScheduledSampler, law: DelayLaw, weights: np.ndarray | None
) -> Callable[[Key, jax.Array, PyTree], tuple[Draw, PyTree]]:
    def draw(key: Key, t: jax.Array, memory: PyTree) -> tuple[Draw, PyTree]:
        members, memory = who.draw(key, t, memory)
        of_delays = jax.random.fold_in(jax.random.fold_in(key, t), random_streams.DELAYS)
        return _answering(members, law.draw(of_delays, members.ids), weights), memory

    return draw


def _of_the_free(who: FreeClients, law: DelayLaw, weights: np.ndarray | None) -> ScheduledSampler:
    """As `FreeClients`."""
    n, size = who.population, who.buffer
    least, most = ({c: pick(d) for c, d in law.possible.items()} for pick in (min, max))
    members = Counter(law.labels) or {c: n for c in most}
    rests = {c: max(late, who.separation - 1) for c, late in most.items()}
    each = sum(min(members[c], size * rest) for c, rest in rests.items())
    out = min(size * max(rests.values()), each)
    remedy = (
        f"up to {out} of {n} clients may have answers out, or rest, so buffers may not be full; give a smaller buffer, "
        "or a law that is cut earlier"
    )
    require(size + out <= n, "buffer", size, remedy)
    apart = {c: max(late + 1, who.separation) for c, late in least.items()}
    turns = {c: MinimumSeparation(n, size, b) for c, b in apart.items()}
    accounting: Accounting = next(iter(turns.values()))
    if len(turns) > 1:
        digest = digest_of([np.array(law.labels)])
        counts = tuple(_heaviest(law.possible[c], weights) for c in turns)
        accounting = GroupedTurns(
            n, size, tuple(turns.items()), counts, digest, law.labels, of_answers=True
        )

    def init() -> Out:
        free = jnp.zeros(n, jnp.int32)
        return Out(free, free - 1)

    def draw(key: Key, t: jax.Array, memory: Out) -> tuple[Draw, Out]:
        of_lots, of_first, of_next = jax.random.split(jax.random.fold_in(key, t), 3)
        ids, mask = least_lots(memory.free <= t, jax.random.bits(of_lots, (n,), jnp.uint32), size)
        delay = memory.delay.at[ids].get(mode="fill", fill_value=0)
        delay = jnp.where(delay < 0, law.draw(of_first, ids), delay)
        later = law.draw(of_next, ids)
        again = t + jnp.maximum(later + 1, who.separation)
        free = memory.free.at[ids].set(again, mode="drop")
        memory = Out(free, memory.delay.at[ids].set(later, mode="drop"))
        return _answering(Draw(ids, mask), delay, weights), memory

    return ScheduledSampler(draw, size, float(size), accounting, init)
