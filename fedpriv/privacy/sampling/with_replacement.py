"""Cohorts drawn with replacement."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fedpriv.core.arguments import Count, LargeCount, Rate, check_fields, require
from fedpriv.pairs.curves import Floats
from fedpriv.privacy.sampling.protocol import Adjacency, DrawCase, Sampling, any_of, several


@dataclass(frozen=True)
class WithReplacement(Sampling):
    """`size` draws with replacement among the `population` clients, each draw a client with a fixed probability.

    A client that is drawn several times sends the same message, which counts as often. `largest` is the largest of the
    clients' probabilities; the accounting is a bound for all others, who are drawn stochastically less often.

    Raises:
        ValueError: a population or size below 1, or `largest` outside [1 / population, 1].
    """

    population: LargeCount
    size: LargeCount
    largest: Rate

    def __post_init__(self) -> None:
        check_fields(self)
        least = 1 / self.population - 1e-12
        remedy = f"give a probability in [1 / population = {least:.3g}, 1]"
        require(self.largest >= least, "largest", self.largest, remedy)

    @property
    def most(self) -> int:
        """Most units that one draw can hold."""
        return self.size

    @property
    def rate(self) -> float:
        """Probability that the likeliest client takes part in a round: 1 - (1 - largest)^size."""
        return -math.expm1(self.size * math.log1p(-self.largest)) if self.largest < 1 else 1.0

    @property
    def adjacency(self) -> Adjacency:
        """Its secrecy is not used."""
        return "zero_out"

    def cases(self) -> tuple[DrawCase, ...]:
        """One, of a view that is not told how often; nothing is certified by it, see `adjacency`."""
        return (DrawCase(1.0, self.rate, 1.0),)

    def cases_of_several(self, units: Count) -> tuple[DrawCase, ...]:
        """One: each draw is one of theirs with the sum of their probabilities, at most `units` times the largest."""
        from scipy.stats import binom

        times = several(binom(self.size, min(1.0, units * self.largest)), self.size)
        return (DrawCase(1.0, any_of(times), 1.0, times),)

    def times_drawn(self) -> tuple[Floats, Floats]:
        """0 to `size` times: binomial."""
        from scipy.stats import binom

        n = np.arange(self.size + 1)
        return n.astype(float), binom.pmf(n, self.size, self.largest)

    @property
    def most_often(self) -> int:
        """By every draw."""
        return self.size

    def how_drawn(self, what: str, some_vanish: bool) -> tuple[str, ...]:
        """Nothing has to hold, as nothing of it is secret."""
        return ()

    @property
    def takes_all(self) -> bool:
        """Where all draws are of one client."""
        return self.largest == 1

    @property
    def is_secret(self) -> bool:
        """The view is taken to know how often each client is drawn."""
        return False

    @property
    def stands_alone(self) -> bool:
        """How often each client is drawn is taken to be known."""
        return True

    @property
    def has_one_size(self) -> bool:
        """A client counts as often as it is drawn."""
        return True

    @property
    def together(self) -> float:
        """Not bounded."""
        return 1.0

    def one_message(self) -> tuple[Sampling, int]:
        """Each draw sends its own."""
        return replace(self, size=1), self.size

    def remembered(self) -> Sampling:
        """There is nothing to give away."""
        return self
