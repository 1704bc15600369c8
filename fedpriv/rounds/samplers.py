"""How a cohort is drawn, and how that is accounted for."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core import random_streams
from fedpriv.core.arguments import Count, CountOrZero, Decay, NonNegative, Positive, Rate, checked
from fedpriv.core.checked_tuples import checking_fields
from fedpriv.core.complaints import require
from fedpriv.core.provenance import constructed, sealed
from fedpriv.core.types import Key
from fedpriv.core.user_functions import asked, gives
from fedpriv.privacy.sampling import (
    Dropping,
    Everyone,
    FixedSize,
    Poisson,
    Sampling,
    WithReplacement,
)
from fedpriv.rounds.subset_sampling import ordered_subset

_MOST_SLOTS = 2**22  # of a Poisson cohort, whose sizes' probabilities are computed one by one


class Answer(NamedTuple):
    """What a member's answer is, beside its message; it may depend on the member's public group and delay alone.

    Attributes:
      weight: f32[] in [0, 1], how much the clipped message counts; None: 1.
      clip_scale: f32[] in (0, 1], times the clip norm is the member's own; None: 1.
      delay: i32[], how many rounds ago the member was given what it answers for; None: in this round.
    """

    weight: jax.Array | None = None
    clip_scale: jax.Array | None = None
    delay: jax.Array | None = None


ALIKE = Answer()
"""Of members that all count alike, and answer at once."""


class Draw(NamedTuple):
    """Who takes part: clients in a round, or records in a local step.

    Attributes:
      ids: i32[slots]; an empty slot has the population's size as its id, so that nobody's state is touched.
      mask: bool[slots], False in an empty slot.
      answer: of each member, leaves [slots].
    """

    ids: jax.Array
    mask: jax.Array
    answer: Answer = ALIKE


@checking_fields
class Sampler(NamedTuple):
    """How a cohort is drawn and how that is accounted for; both are made together, so that they agree.

    Attributes:
      draw: key -> Draw.
      slots: length of a draw's arrays; at least `accounting.most`, the size of the largest possible cohort.
      expected_size: divisor of a mean over the cohort (never the realised size, which may depend on who exists).
      accounting: the same sampling as the accountant sees it.
      seal: see `fedpriv.core.provenance`; leave it out of a sampler of your own.
    """

    draw: Callable[[Key], Draw]
    slots: Count
    expected_size: Positive
    accounting: Sampling
    seal: tuple = ()

    @property
    def most(self) -> int:
        """Most units that one draw can hold."""
        return self.accounting.most

    @property
    def has_memory(self) -> bool:
        """Each draw is as the other."""
        return False

    def first_memory(self) -> tuple[()]:
        """Nothing is remembered."""
        return ()

    def cohort(self, key: Key, schedule: Key, t: jax.Array, memory: Any) -> tuple[Draw, Any]:
        """Who takes part, in any round, see `cohort_drawn`."""
        return drawn_from(self, key), memory

    @property
    def public_sizes(self) -> None:
        """How many records each client holds is no part of how they are drawn, see `PublicSizes`."""
        return None

    @property
    def places(self) -> Sampler:
        """Draws among the places of a client's records: itself."""
        return self

    def draw_among(self, key: Key, size: jax.Array) -> tuple[Draw, float]:
        """(A batch among a client's places, of which `size` are filled, what its sum is divided by)."""
        return drawn_from(self, key), self.expected_size

    def accounting_of(self, size: int | None = None) -> Sampling:
        """The draws among a client's records as the accountant sees them, however many it holds."""
        return self.accounting


def drawn_from(sampler: Sampler, key: Key) -> Draw:
    """Who takes part, as a sampler draws it.

    Raises:
      ValueError: the sampler's `draw` is no function of a key, or gives back something else.
    """
    drawn = asked("draw", sampler.draw, "(key)", key)
    check_draw(sampler, drawn)
    return drawn


def check_draw(sampler: Any, drawn: object) -> None:
    """Raises ValueError: what a sampler's `draw` gave back is no draw of its slots."""
    slots = (sampler.slots,)
    known = isinstance(drawn, Draw) and all(
        jnp.shape(leaf) == slots for leaf in (drawn.ids, drawn.mask, *jax.tree.leaves(drawn.answer))
    )
    gives(
        known,
        "draw",
        sampler.draw,
        drawn,
        f"give fp.types.Draw(ids, mask), each of {sampler.slots} slots",
    )


@checking_fields
class Opening(NamedTuple):
    """A separate sampler for the first rounds, such as a warm start with everyone; the two draw independently.

    Attributes:
      first: draws the first `rounds` rounds.
      rounds: how many.
      then: draws all others.
    """

    first: Sampler
    rounds: CountOrZero
    then: Sampler

    @property
    def accounting(self) -> Sampling:
        """That of the rounds after the first ones."""
        return self.then.accounting

    @property
    def expected_size(self) -> float:
        """That of the rounds after the first ones."""
        return self.then.expected_size


def parts_of(sampler: Any, rounds: int) -> tuple[tuple[int, Any], ...]:
    """(number of rounds, sampler) of each part of a run: what the engine draws by, whatever a subclass says."""
    if type(sampler) is not Opening:
        return ((rounds, sampler),)
    opened = min(rounds, sampler.rounds)
    return ((opened, sampler.first), (rounds - opened, sampler.then))


def everyone(population: Count) -> Sampler:
    """Samples all clients, every round.

    Raises:
      ValueError: a population below 1.
    """
    population = checked("population", population, Count)
    accounting = Everyone(population)

    def draw(key: Key) -> Draw:
        return Draw(jnp.arange(population, dtype=jnp.int32), jnp.ones(population, bool))

    return sealed(Sampler(draw, population, float(population), accounting))


def fixed_size(population: Count, size: Count) -> Sampler:
    """`size` of `population` clients or records, uniformly without replacement.

    Raises:
      ValueError: a size below 1 or above the population.
    """
    population = checked("population", population, Count)
    size = checked("size", size, Count)
    accounting = FixedSize(population, size)
    subset = ordered_subset(population, size)

    def draw(key: Key) -> Draw:
        return Draw(subset(key), jnp.ones(size, bool))

    return sealed(Sampler(draw, size, float(size), accounting))


def poisson(population: Count, rate: Rate, capacity: Count | None = None) -> Sampler:
    """Each client joins independently with probability `rate`; a random `capacity` are kept of a larger cohort.

    By default the capacity is `capacity_for`'s, at most the population. The cut is accounted for
    (`TruncatedSubsampledGaussianDpEvent`), not a silent approximation. First the binomial size is drawn, then a uniform
    subset of that size.

    Raises:
      ValueError: a population or capacity below 1, or a rate outside (0, 1].
    """
    population = checked("population", population, Count)
    rate = checked("rate", rate, Rate)
    capacity = checked("capacity", capacity, Count | None)
    if capacity is None:
        capacity = min(population, capacity_for(population * rate, rate))
    accounting = Poisson(population, rate, capacity)
    slots = min(capacity, population)
    require(slots <= _MOST_SLOTS, "capacity", slots, f"give at most {_MOST_SLOTS}, or a lower rate")
    high, low = _sizes(population, rate, slots)
    subset = ordered_subset(population, slots)

    def draw(key: Key) -> Draw:
        of_size, of_ids = jax.random.split(key)
        u = jax.random.bits(of_size, (2,), jnp.uint32)
        size = jnp.sum((u[0] > high) | ((u[0] == high) & (u[1] >= low)))
        mask = jnp.arange(slots) < size
        return Draw(jnp.where(mask, subset(of_ids), population), mask)

    return sealed(Sampler(draw, slots, population * rate, accounting))


def _sizes(population: int, rate: float, slots: int) -> tuple[jax.Array, jax.Array]:
    """u32[slots] each, the two halves of P[size <= k] 2^64 for k below `slots`: size = how many 64 random bits reach.

    Rounded down from 40 digits, so that each probability is off by less than 2^-63.
    """
    reached = []
    with decimal.localcontext(prec=40, Emin=decimal.MIN_EMIN):
        out = 1 - decimal.Decimal(rate)
        odds = decimal.Decimal(rate) / out if out else decimal.Decimal(0)
        one = below = out**population
        for k in range(slots):
            reached.append(min(int(below * 2**64), 2**64 - 1))
            one *= odds * (population - k) / (k + 1)
            below += one
    edges = np.array(reached, np.uint64)
    high, low = (part.astype(np.uint32) for part in (edges >> 32, edges & 0xFFFFFFFF))
    return _table(high), _table(low)


def _table(numbers: np.ndarray) -> jax.Array:
    """u32[n], no part of a round that is traced, in which a sampler may be made."""
    with jax.ensure_compile_time_eval():
        return jnp.asarray(numbers, jnp.uint32)


def capacity_for(size: Positive, rate: Rate, deviations: NonNegative = 6.0) -> int:
    """Slots for a Poisson cohort of mean size `size`: the mean plus `deviations` standard deviations.

    `rate` is each client's probability. A normal variable exceeds six deviations once in 1e9 draws, and four once in
    3e4; a cohort of a mean of few clients does so more often. Certificates count the cut either way. It costs most with
    little noise: of 120 clients at rate 0.01, with multiplier 0.6, 1,000 rounds and delta 1e-6, a client's epsilon
    (third party, add or remove) is 10.22 with these 8 slots, and 8.71 with 12 or more.

    Raises:
      ValueError: a size that is not positive, a rate outside (0, 1], or deviations below 0.
    """
    size = checked("size", size, Positive)
    rate = checked("rate", rate, Rate)
    deviations = checked("deviations", deviations, NonNegative)
    return math.ceil(size + deviations * math.sqrt(size * (1 - rate)))


def with_replacement(sizes: Sequence[Positive], size: Count) -> Sampler:
    """`size` draws with replacement; each is client i with probability p_i = sizes[i] / sum(sizes).

    X. Li et al., "On the Convergence of FedAvg on Non-IID Data", ICLR 2020, scheme I: the mean over the draws, equally
    weighted, is an unbiased estimate of sum_i p_i w_i. A client drawn twice fills two slots with the same message.

    Args:
      sizes: [clients], positive weights, such as the number of records of each client.
      size: M, number of draws.

    Raises:
      ValueError: weights that are not positive and finite, or no draws.
    """
    weights = np.array(checked("sizes", sizes, Sequence[Positive]))
    require(len(weights) > 0, "sizes", sizes, "give the records of each client")
    size = checked("size", size, Count)
    # Integers of 31 bits: the probabilities that are drawn by are multiples of 2^-31, and so are those accounted for.
    edges = np.round(np.cumsum(weights / weights.sum()) * 2**31).astype(np.int64)
    largest = float(np.diff(edges, prepend=0).max()) / 2**31
    accounting = WithReplacement(len(weights), size, largest)
    inner = _table(edges[:-1])

    def draw(key: Key) -> Draw:
        drawn = jax.random.bits(key, (size,), jnp.uint32) >> 1
        ids = jnp.searchsorted(inner, drawn, side="right").astype(jnp.int32)
        return Draw(ids, jnp.ones(size, bool))

    return sealed(Sampler(draw, size, float(size), accounting))


def check_plain(sampler: Any) -> None:
    """Raises ValueError: it is none of `everyone`, `fixed_size` and `poisson`, as they are made."""
    drawn = getattr(sampler, "accounting", sampler)
    known = type(sampler) is Sampler and constructed(sampler)
    known = known and type(drawn) in (Everyone, FixedSize, Poisson)
    remedy = "give one of fp.everyone, fp.fixed_size and fp.poisson, as it is"
    require(known, "sampler", drawn, remedy)


def dropping(sampler: Sampler, rate: Decay, noise: Literal["whole", "lost"] = "whole") -> Sampler:
    """As `sampler`, but each member vanishes with probability `rate` before it sends anything.

    Members vanish independently of one another and of data. The round does not wait for them: their slots are empty,
    what they keep is unchanged, they cause no traffic, and a mean divides by the expected number of members who stay. A
    Poisson cohort is cut to its capacity after members have vanished.

    Formal guarantees: those of the certificate; proofs are in `fedpriv.privacy.sampling`. Towards a third party, who
    vanishes has to stay as secret as who is drawn. Members who vanish together are not covered; without `dropping`, a
    fraction `honest` of the noise bounds what they take along. Nor are members who vanish for reasons of their data:
    that they do says something of it, which no noise hides.

    Args:
      sampler: `everyone`, `fixed_size` or `poisson`.
      rate: p, in [0, 1); 0, or less than 2^-33, returns `sampler`.
      noise: "whole": a sum always has all of its noise, as those who stay, or whoever sums, make up for missing shares.
        "lost": each of the s members drawn adds 1 / s of the variance, and the shares of those who vanish are missing;
        if all vanish, nothing is released. Members who each add all of the noise take it along either way.

    Raises:
      ValueError: a rate outside [0, 1); a sampler of your own, with replacement, or whose members already vanish;
        "lost" noise of a Poisson cohort, as its size is secret and so nobody knows its share.
    """
    fits = isinstance(sampler, Sampler)
    remedy = "give one of fp.everyone, fp.fixed_size and fp.poisson, on each side of an Opening"
    require(fits, "sampler", sampler, remedy)
    rate = checked("rate", rate, Decay)
    noise = checked("noise", noise, Literal["whole", "lost"])
    check_plain(sampler)
    drawn = sampler.accounting
    if rate == 0:
        return sampler
    if isinstance(drawn, Poisson):
        remedy = "the size of a Poisson cohort is secret, so nobody knows its share; give 'whole', or draw fixed_size"
        require(noise == "whole", "noise", noise, remedy)
        return poisson(drawn.population, drawn.rate * (1 - rate), drawn.capacity)
    # Of 32 random bits: the probability that is drawn by is a multiple of 2^-32, and so is that accounted for.
    numbers = min(round(rate * 2**32), 2**32 - 1)
    dropout = numbers / 2**32
    if dropout == 0:
        return sampler
    accounting = Dropping(drawn.population, drawn.most, dropout, noise == "lost")
    vanishes = np.uint32(numbers)

    def draw(key: Key) -> Draw:
        members = sampler.draw(key)
        bits = jax.random.bits(jax.random.fold_in(key, random_streams.VANISHING), (sampler.slots,))
        stays = bits >= vanishes
        return Draw(jnp.where(stays, members.ids, drawn.population), stays)

    expected_size = sampler.expected_size * (1 - dropout)
    return sealed(Sampler(draw, sampler.slots, expected_size, accounting))
