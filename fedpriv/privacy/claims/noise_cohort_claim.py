"""Noise cohorts: the epsilon of a training that was not run, whose noise was scaled to a smaller cohort.

F. Granqvist et al., "pfl-research: simulation framework for accelerating research in Private Federated Learning",
NeurIPS 2024, arXiv:2404.06430.
"""

from __future__ import annotations

from fedpriv.core.arguments import CountOrZero, LargeCount, Multiplier, Probability, checked
from fedpriv.core.complaints import require
from fedpriv.privacy.certificate import Claim
from fedpriv.privacy.certify import certify_seen
from fedpriv.privacy.from_rows import declared
from fedpriv.privacy.sampling import Poisson

_REASONS = (
    "Nothing like it was run: the simulation's cohort is smaller, and so is its noise, in proportion, so that the mean "
    "is as noisy as that of the cohort in the formula.",
    "It says what such a training would cost, if there were as many clients and cohorts were Poisson; what this run "
    "costs is certified.",
    "The accuracy is that of the smaller cohort, whose mean varies more from round to round.",
)


def noise_cohort_claim(
    noise_multiplier: Multiplier,
    cohort: LargeCount,
    population: LargeCount,
    rounds: CountOrZero,
    delta: Probability,
) -> Claim:
    """Epsilon of DP-FedAvg with Poisson cohorts of the size that the noise was meant for: an extrapolation.

    A simulation of r clients per round adds the noise of multiplier sigma r / `cohort` to their sum.

    Formal guarantees: none for that simulation; for a training with such cohorts, an upper bound.

    Args:
        noise_multiplier: sigma, of the sum over such a cohort.
        cohort: its expected number of clients.
        population: of how many they are drawn.
        rounds: number of rounds.
        delta: probability, in (0, 1).

    Raises:
        ValueError: for an argument outside its range.
    """
    noise_multiplier = checked("noise_multiplier", noise_multiplier, Multiplier)
    cohort = checked("cohort", cohort, LargeCount)
    population = checked("population", population, LargeCount)
    rounds = checked("rounds", rounds, CountOrZero)
    delta = checked("delta", delta, Probability)
    require(cohort <= population, "population", population, "give at least the cohort")
    sampling = Poisson(population, cohort / population)
    meant = declared("third_party", "client", noise_multiplier, sampling, rounds)
    return Claim(
        epsilon=certify_seen([meant], delta, "third_party").epsilon,
        delta=delta,
        unit="client",
        view="third_party",
        relation="add_or_remove",
        source=f"pfl-research's noise cohort, as if {cohort:,} of {population:,} clients trained per round",
        reproduced=False,
        sound=False,
        reasons=_REASONS,
        status="extrapolation",
    )
