"""Noise of integers, as what is seen is made of it: the law says by itself how far a unit moves the sum."""

from __future__ import annotations

from typing import Any

from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.proof.cases import Noisy


class NoisyIntegers(Noisy):
    """As `Noisy`: `far` is 1 of a unit that is zeroed."""

    noise: IntegerNoise
    words = (
        "members rotate, round and add their shares of the noise as the plan of the sum says; numbers of the noise are "
        "within 2^-145 of their law in total variation, which delta counts"
    )
    no_part = "no member's whole share of the noise is left"

    @property
    def kind(self) -> str:
        """Of noise."""
        return self.noise.kind

    @property
    def multiplier(self) -> float:
        """Of a unit that is zeroed."""
        return self.noise.multiplier

    @property
    def least(self) -> float:
        """The multiplier below which floats are no bound."""
        return 1e-4

    def moved(self, by: float) -> NoisyIntegers:
        """Squared norms of integers are whole numbers."""
        return NoisyIntegers(self.noise.moved(by))

    def left(self, part: float) -> NoisyIntegers | None:
        """Whole shares alone."""
        if part == 1:
            return self
        left = self.noise.with_part(part)
        return None if left is None else NoisyIntegers(left)

    def share(self, members: int) -> NoisyIntegers:
        """A share has a law of its own."""
        return NoisyIntegers(self.noise.share)


def of_several(noisy: Noisy, units: int) -> Noisy:
    """Of so many units, each with noise of its own: integers of all of them are one longer sum."""
    if isinstance(noisy, NoisyIntegers):
        return NoisyIntegers(noisy.noise.of_several(units))
    return noisy


def noise_of(kind: Any, far: float, integers: IntegerNoise | None) -> Noisy:
    """Real noise of that kind, or that of integers."""
    return Noisy(kind, far) if integers is None else NoisyIntegers(integers)
