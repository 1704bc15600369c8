"""Bits and noise together: how messages travel as integers at a target epsilon."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from fedpriv.certification.calibration import smallest
from fedpriv.certification.client_releases import Cohorts, of_clients
from fedpriv.certification.marks import Sum
from fedpriv.compression.codecs import Wire
from fedpriv.core.arguments import (
    Budget,
    Count,
    Positive,
    Probability,
    Range,
    Rate,
    checked,
    require,
    shown,
)
from fedpriv.core.user_code import names_user_code
from fedpriv.mechanisms.integers import IntegerSum, SumBits, discrete_gaussian, integer_sum, skellam
from fedpriv.mechanisms.mechanisms import Mechanism, gaussian
from fedpriv.privacy import Certificate, Everyone, certify_releases
from fedpriv.privacy.integer_sums import IntegerKind
from fedpriv.privacy.release import View
from fedpriv.privacy.sampling import Accounting
from fedpriv.rounds.private_step import PrivateStep

ErrorRatio: TypeAlias = Annotated[
    float, Range("a finite number above 1", 1, math.inf, (1, math.inf))
]

_MADE = {"discrete_gaussian": discrete_gaussian, "skellam": skellam}
_MOST_BITS = 30
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
      error_ratio: error of a coordinate of the decoded sum, of noise, rounding and wrapping, over that of the
        real-valued Gaussian mechanism with the same epsilon.
      wrap_probability: that a coordinate of the sum wraps, at most.
      uplink: size of a member's message, with what fills the blocks of the rotation.
      certificate: of all rounds.
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
    sampling: Accounting | None = None,
    view: View = "server_secagg",
    honest: Rate = 1.0,
    bits: SumBits | None = None,
    within: ErrorRatio = 1.1,
    noise: IntegerKind = "discrete_gaussian",
) -> CalibratedIntegers:
    """Scale, rounding bound and noise of sums of integers with which `rounds` rounds cost at most `epsilon`.

    Without `bits`, the fewest at which the error is at most `within` times that of the real-valued Gaussian mechanism.

    Args:
      epsilon: target, above 0, in nats, of a client.
      clients: n, members of a round's largest cohort, each with a share of the noise.
      dimension: d, values of a message.
      clip_norm: C, in l2.
      delta: probability, in (0, 1).
      rounds: number of rounds T.
      sampling: how cohorts are drawn, such as `fp.fixed_size(1000, 100).accounting`; None: all n clients every round.
      view, honest: as in `certify`.
      bits: of a coordinate that travels, and of the sum.
      within: largest ratio of the errors, above 1; with `bits` it does not count.
      noise: "discrete_gaussian" or "skellam".

    Raises:
      ValueError: so few bits that sums wrap; no bits reach `within`; no noise reaches the target; draws of another size
        than `clients`, or of which sums of integers are not certified.
    """
    epsilon = checked("epsilon", epsilon, Budget)
    n, d = checked("clients", clients, Count), checked("dimension", dimension, Count)
    clip_norm = checked("clip_norm", clip_norm, Positive)
    bits = checked("bits", bits, SumBits | None)
    within = checked("within", within, ErrorRatio)
    noise = checked("noise", noise, IntegerKind)
    rounds, delta = checked("rounds", rounds, Count), checked("delta", delta, Probability)
    view, honest = checked("view", view, View), checked("honest", honest, Rate)
    drawn = Everyone(n) if sampling is None else sampling
    remedy = "give what a sampler says of its draws, such as fp.fixed_size(1000, 100).accounting"
    require(isinstance(drawn, Accounting), "sampling", sampling, remedy)
    require(drawn.most == n, "clients", n, f"a round draws up to {drawn.most}; give that number")
    require(honest * n >= 1, "honest", honest, f"no share is left of {n}; give {1 / n:.3g} or more")

    search = _Search(epsilon, drawn, d, clip_norm, noise, rounds, delta, view, honest)
    if bits is None:
        bits = search.fewest_bits(within)
    elif search.at(bits) is None:
        enough = next((b for b in range(bits + 1, _MOST_BITS + 1) if search.at(b)), None)
        remedy = f"give {enough}" if enough else f"more than {_MOST_BITS} are needed"
        raise ValueError(
            f"bits: {bits}, but at epsilon {shown(epsilon)} sums of {n} messages of {d} values wrap; {remedy}"
        )
    return search.described(bits)


@dataclass(frozen=True, eq=False)
class _Search:
    """For sums that cost at most `epsilon`, by their bits; its fields are arguments of `calibrate_integers`."""

    epsilon: float
    sampling: Accounting
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
        at = lambda m: self._certificate(gaussian(self.clip_norm, m), self.rounds)  # noqa: E731
        return smallest(at, self.epsilon, _TOLERANCE)

    def fewest_bits(self, within: float) -> int:
        """At which the ratio of errors is so small, which falls with the bits."""

        def could(bits: int) -> bool:
            """With the noise of the real mechanism, which integers need at least."""
            least = self._sum(bits, self.real)
            return least.fits and self._ratio(least) <= within

        def do(bits: int) -> bool:
            found = self.at(bits)
            return found is not None and self._ratio(found) <= within

        low = next((bits for bits in range(2, _MOST_BITS + 1) if could(bits)), _MOST_BITS)
        if do(low):
            return low
        if not do(_MOST_BITS):
            found = self.at(_MOST_BITS)
            best = "wrap" if found is None else f"reach {self._ratio(found):.5g}"
            raise ValueError(
                f"within: {shown(within)}, but sums of {_MOST_BITS} bits {best} at epsilon {shown(self.epsilon)}; "
                "raise it"
            )
        return bisect_left(range(_MOST_BITS), True, low + 1, key=do)

    @cache  # noqa: B019 - for as long as the search
    def at(self, bits: int) -> IntegerSum | None:
        """With enough noise; None: it makes sums wrap."""
        if not self._sum(bits, self.real).fits:
            return None
        nothing = self._certificate(gaussian(self.clip_norm, self.real), 0)

        def certificate_at(multiplier: float) -> Certificate:
            """Where sums wrap the search ends, as if there were enough."""
            fits = self._sum(bits, multiplier).fits
            return (
                self._certificate(self._mechanism(bits, multiplier), self.rounds)
                if fits
                else nothing
            )

        found = self._sum(bits, smallest(certificate_at, self.epsilon, _TOLERANCE))
        return found if found.fits else None

    def described(self, bits: int) -> CalibratedIntegers:
        """What was found for so many bits, which do."""
        found = self.at(bits)
        assert found is not None
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
            certificate=self._certificate(self._mechanism(bits, multiplier), self.rounds),
        )

    def _ratio(self, found: IntegerSum) -> float:
        return found.error / (self.real * self.clip_norm)

    def _sum(self, bits: int, multiplier: float) -> IntegerSum:
        integers = self._mechanism(bits, multiplier).integers
        return integer_sum(integers, self.clip_norm, multiplier, self.sampling.most, self.dimension)

    def _mechanism(self, bits: int, multiplier: float) -> Mechanism:
        return _MADE[self.noise](self.clip_norm, multiplier, bits=bits)

    def _certificate(self, used: Mechanism, rounds: int) -> Certificate:
        """Of rounds whose only call is a sum of all members' messages."""
        step = PrivateStep(used, _Drawn(self.sampling), "shares")
        message = jax.ShapeDtypeStruct((self.dimension,), jnp.float32)
        cohorts = Cohorts.of(self.sampling, rounds)
        releases = of_clients([Sum("", 0, step, message)], cohorts, "client", 0, False, "")
        return certify_releases(releases, self.delta, self.view, honest=self.honest)


class _Drawn(NamedTuple):
    """As much of a sampler as accounting needs."""

    accounting: Accounting
