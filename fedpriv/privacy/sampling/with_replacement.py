"""Cohorts drawn with replacement."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.core.arguments import LargeCount, Rate, check_fields
from fedpriv.core.complaints import require
from fedpriv.privacy.sampling.kinds_of_units import Case, several
from fedpriv.proof.cases import Cases, Neighbour, Why
from fedpriv.proof.draws import Sampling, Single


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
    full = True
    secret = False
    together = 1.0  # not bounded

    def __post_init__(self) -> None:
        check_fields(self)
        least = 1 / self.population - 1e-12
        remedy = f"give a probability in [1 / population = {least:.3g}, 1]"
        require(self.largest >= least, "largest", self.largest, remedy)

    @property
    def most(self) -> int:
        """Every draw may be another."""
        return self.size

    @property
    def repeats(self) -> int:  # type: ignore[override]
        """By every draw."""
        return self.size

    def cases(self, neighbour: Neighbour, who: Single) -> Cases | Why:
        """One, of a view that knows how often each client is drawn: that secret is not used.

        *Proof.* Each draw is one of theirs with the sum of their probabilities, at most `units` times the largest.
        """
        if neighbour != "zeroed":
            return Why("drawn with replacement, how often each unit is drawn is taken to be known")
        from scipy.stats import binom

        law = several(binom(self.size, min(1.0, who.units * self.largest)), self.size)
        return (Case(1.0, law),)

    def words(self, neighbour: Neighbour) -> tuple[str, ...]:
        """Of weights, and of moves."""
        return (
            "the weights by which cohorts are drawn are public",
            "a unit drawn n times moves a sum by n clip norms, and n is visible",
        )
