"""Bits and noise together: how messages travel as integers at a target epsilon."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from fedpriv.certification.calibration import least_noise
from fedpriv.certification.certificate import certify
from fedpriv.certification.views import Cohorts, of_clients
from fedpriv.compression.codecs import Wire
from fedpriv.core.arguments import Budget, Count, Positive, Probability, Range, checked
from fedpriv.core.complaints import require, shown
from fedpriv.core.kinds import Rate
from fedpriv.core.types import Key, Metrics
from fedpriv.core.user_code import names_user_code
from fedpriv.data.federation import Federation
from fedpriv.mechanisms.integers import (
    MOST_BITS,
    MOST_SAID,
    IntegerSum,
    SumBits,
    WrapsError,
    discrete_gaussian,
    integer_sum,
    skellam,
)
from fedpriv.mechanisms.mechanisms import gaussian
from fedpriv.pairs.integer_noise import IntegerKind
from fedpriv.privacy import Certificate, certify_seen
from fedpriv.proof.bound import Mechanism
from fedpriv.proof.marks import Sum
from fedpriv.proof.row import seen_of
from fedpriv.proof.seen import View
from fedpriv.rounds.algorithm import Algorithm, ModelState, start
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.parts import check_parts
from fedpriv.rounds.private_step import PrivateStep
from fedpriv.rounds.samplers import everyone
from fedpriv.rounds.scheduled_samplers import AnySampler

ErrorRatio: TypeAlias = Annotated[
    float, Range("a finite number above 1", 1, math.inf, (1, math.inf))
]

_MADE = {"discrete_gaussian": discrete_gaussian, "skellam": skellam}
_TOLERANCE = 1e-4  # of noise multipliers


class CalibratedIntegers(NamedTuple):
    """Sums of integers of a cohort, at a target epsilon.

    Attributes:
      noise: the law of a member's share.
      bits: of a coordinate that travels, and of the sum.
      clip_norm: C, of a message before it is scaled.
      noise_multiplier: deviation of the noise of the sum over the norm of a member's integers.
      scale: what messages are multiplied with before they are rounded.
      squared_norm: of a member's integers, at most.
      share_deviation: of the noise that a member adds to a coordinate, in integers.
      noise_deviation: of the noise of a coordinate of the decoded sum, in units of the messages.
      error_ratio: error of the decoded sum, of noise, rounding with its bias, and wrapping, over that of the
        real-valued Gaussian mechanism with the same epsilon; at most, as the root mean square over coordinates.
      wrap_probability: that a coordinate of the sum wraps, at most.
      uplink: size of a member's message, with what fills the blocks of the rotation.
      certificate: of all rounds, as by `certify`.
    """

    noise: IntegerKind
    bits: int
    clip_norm: float
    noise_multiplier: float
    scale: float
    squared_norm: int
    share_deviation: float
    noise_deviation: float
    error_ratio: float
    wrap_probability: float
    uplink: Wire
    certificate: Certificate

    def mechanism(self) -> Mechanism:
        """For algorithms whose cohorts and messages are those that it was calibrated for."""
        return _MADE[self.noise](self.clip_norm, self.noise_multiplier, bits=self.bits)


@names_user_code
def calibrate_integers(
    epsilon: Budget,
    *,
    clients: Count,
    dimension: Count,
    clip_norm: Positive,
    delta: Probability,
    rounds: Count = 1,
    sampler: AnySampler | None = None,
    view: View = "server_secagg",
    honest: Rate = 1.0,
    bits: SumBits | None = None,
    within: ErrorRatio = 1.1,
    noise: IntegerKind = "discrete_gaussian",
) -> CalibratedIntegers:
    """Scale, rounding bound and noise of sums of integers with which `rounds` rounds cost at most `epsilon`.

    Without `bits`, the fewest at which the error of a sum is at most `within` times that of the real-valued Gaussian
    mechanism with the same epsilon: the root mean square over coordinates, of noise, rounding with its bias, and
    wrapping, whatever the messages are. Its certificate is as by `certify`, of a round which only adds up messages.

    Args:
      epsilon: target, above 0, in nats, of a client.
      clients: n, members of a round's largest cohort, each with a share of the noise.
      dimension: d, values of a message.
      clip_norm: C, in l2.
      delta: probability, in (0, 1).
      rounds: number of rounds T.
      sampler: draws the cohorts, such as `fp.fixed_size(1000, 100)`; None: all n clients take part in every round.
      view, honest: as in `certify`.
      bits: of a coordinate that travels, and of the sum.
      within: largest ratio of the errors, above 1; with `bits` it does not count.
      noise: "discrete_gaussian" or "skellam".

    Raises:
      ValueError: so few bits that sums wrap; no bits reach `within`; no noise reaches the target; draws of another size
        than `clients`, or of which sums of integers are not certified.
    """
    epsilon, delta = checked("epsilon", epsilon, Budget), checked("delta", delta, Probability)
    n, d = checked("clients", clients, Count), checked("dimension", dimension, Count)
    clip_norm, rounds = checked("clip_norm", clip_norm, Positive), checked("rounds", rounds, Count)
    view, honest = checked("view", view, View), checked("honest", honest, Rate)
    bits, within = checked("bits", bits, SumBits | None), checked("within", within, ErrorRatio)
    noise = checked("noise", noise, IntegerKind)
    sampler = everyone(n) if sampler is None else sampler
    check_parts(sampler=sampler)
    most = sampler.accounting.most
    remedy = f"a round draws up to {most}, each with a share of the noise; give {most}"
    require(most == n, "clients", n, remedy)
    require(honest * n >= 1, "honest", honest, f"no share is left of {n}; give {1 / n:.3g} or more")

    search = _Search(epsilon, sampler, d, clip_norm, noise, rounds, delta, view, honest)
    found = search.fewest_bits(within) if bits is None else bits
    if found is None or math.isinf(search.error_ratio(found)):
        raise ValueError(search.why_not(bits, within))
    return search.described(found)


@dataclass(frozen=True, eq=False)
class _Search:
    """For sums that cost at most `epsilon`, by their bits; its fields are arguments of `calibrate_integers`."""

    epsilon: float
    sampler: AnySampler
    dimension: int
    clip_norm: float
    noise: IntegerKind
    rounds: int
    delta: float
    view: View
    honest: float

    @cached_property
    def real(self) -> float:
        """The noise multiplier of the real-valued mechanism."""
        return self._least_noise(lambda m: gaussian(self.clip_norm, m))

    def fewest_bits(self, within: float) -> int | None:
        """At which the ratio of errors is so small, if any."""
        for bits in range(2, MOST_BITS + 1):
            least = self._sum(bits, self.real)  # integers need this noise, or more
            if least.fits and self._ratio(least) <= within and self.error_ratio(bits) <= within:
                return bits
        return None

    def error_ratio(self, bits: int) -> float:
        """Infinite where sums wrap."""
        try:
            return self._ratio(self.at(bits))
        except WrapsError:
            return math.inf

    def why_not(self, bits: int | None, within: float) -> str:
        """So many bits, or any that have the ratio of errors `within`, do not do; and what would."""
        sums = f"sums of {self.sampler.accounting.most} messages of {self.dimension} values"
        fewest, epsilon = self.fewest_bits(sys.float_info.max), shown(self.epsilon)
        if fewest is None:
            return (
                f"epsilon: {epsilon}; its noise is too much for {sums} with {MOST_SAID}; raise it"
            )
        if bits is not None:
            return f"bits: {bits}, but at epsilon {epsilon} {sums} wrap; give {fewest}"
        best = f"{self.error_ratio(MOST_BITS):.5g} with {MOST_BITS} bits"
        return f"within: {shown(within)}, but at epsilon {epsilon} {sums} reach {best}; give more"

    @cache  # noqa: B019 - for as long as the search
    def at(self, bits: int) -> IntegerSum:
        """Of so many bits, with as little noise as does.

        Raises:
          WrapsError: sums need more bits.
        """
        return self._sum(bits, self._least_noise(lambda m: self._mechanism(bits, m)))

    def described(self, bits: int) -> CalibratedIntegers:
        """What was found for so many bits."""
        found = self.at(bits)
        noise, multiplier = found.noise_of_all, found.noise_multiplier
        return CalibratedIntegers(
            noise=self.noise,
            bits=bits,
            clip_norm=self.clip_norm,
            noise_multiplier=multiplier,
            scale=found.scale,
            squared_norm=found.squared_norm,
            share_deviation=math.sqrt(noise.share_variance),
            noise_deviation=found.noise_deviation,
            error_ratio=self._ratio(found),
            wrap_probability=found.wrap_probability,
            uplink=Wire(found.length, bits),
            certificate=self._certificate(self._mechanism(bits, multiplier)),
        )

    def _ratio(self, found: IntegerSum) -> float:
        return found.error / (self.real * self.clip_norm)

    def _sum(self, bits: int, multiplier: float) -> IntegerSum:
        integers = self._mechanism(bits, multiplier).integers
        most = self.sampler.accounting.most
        return integer_sum(integers, self.clip_norm, multiplier, most, self.dimension)

    def _mechanism(self, bits: int, multiplier: float) -> Mechanism:
        return _MADE[self.noise](self.clip_norm, multiplier, bits=bits)

    def _least_noise(self, make: Callable[[float], Mechanism]) -> float:
        return least_noise(lambda m: self._priced(make(m)), self.epsilon, _TOLERANCE)

    def _priced(self, used: Mechanism) -> Certificate:
        """What `_certificate` finds, without a trace."""
        drawn = self.sampler.accounting
        step = PrivateStep(used, self.sampler, "shares")
        message = [Sum("", 0, step, jax.ShapeDtypeStruct((self.dimension,), jnp.float32))]

        def of(group: str) -> Certificate:
            cohorts = Cohorts.of(drawn, self.rounds, group)
            rows = of_clients(message, cohorts, "client", 0, False, "")
            seen = [seen_of(row, self.honest) for row in rows if row.view == self.view]
            return certify_seen(seen, self.delta, self.view)

        return max(map(of, drawn.group_names or ("",)), key=lambda each: each.epsilon)

    def _certificate(self, used: Mechanism) -> Certificate:
        """Of rounds whose only call is a sum of all members' messages."""

        def send(key: Key, shard: Shard) -> jax.Array:
            return shard.examples[0]

        def round(key: Key, state: ModelState, cohort: Cohort) -> tuple[ModelState, Metrics]:
            total, metrics, _ = cohort.sum(send, key, mechanism=used)
            return ModelState(total, state.round + 1), metrics

        message = jax.ShapeDtypeStruct((self.dimension,), jnp.float32)
        senders = Federation.blank(message, self.sampler.accounting.population, per_client=1)
        summing = Algorithm(start, round, self.sampler)
        options: Any = {"view": self.view, "honest": self.honest}
        return certify(summing, message, senders, self.rounds, self.delta, **options)
