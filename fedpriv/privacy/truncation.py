"""Poisson cohorts that are cut down to a capacity: how often, and what that costs at most."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from fedpriv.privacy.release import Release
from fedpriv.privacy.sampling import Poisson, Sampling

# dp-accounting fails where rarer cuts underflow; the rounding margin covers leaving them out.
_NEVER = 1e-250
_MEANINGLESS = 500.0  # nats; times a cut's probability, e to this is still far from overflow


def is_cut(sampling: Sampling) -> bool:
    """Whether a cohort is ever cut down (with a probability above 1e-250)."""
    return isinstance(sampling, Poisson) and sampling.can_be_cut and _chance(sampling) > _NEVER


def chance_of_cuts(releases: Iterable[Release]) -> float:
    """Bound on the probability that any of the releases' cohorts is cut."""
    return sum(
        release.steps * release.local_steps * _chance(release.sampling)
        for release in releases
        if isinstance(release.sampling, Poisson) and release.sampling.can_be_cut
    )


def despite_cuts(epsilon_of: Callable[[float], float], chance: float, delta: float) -> float:
    """Epsilon of a run with cuts, from the curve `epsilon_of(delta)` of the same run without them.

    Formal guarantees: an upper bound. Cuts do not look at the data, so that a run and the same run without cuts
    differ with probability at most `chance` on either of two neighbours; an event of the one has at most
    `chance` more or less probability in the other. So (epsilon, delta - chance (1 + e^epsilon)) without cuts
    is (epsilon, delta) with them. The smallest such epsilon is approached from below.
    """
    if chance == 0:
        return epsilon_of(delta)
    epsilon = 0.0
    for _ in range(100):
        left = delta - chance * (1 + math.exp(epsilon))
        needed = epsilon_of(left) if left > 0 else math.inf
        if needed > _MEANINGLESS:
            return math.inf
        if needed <= epsilon:
            return epsilon
        epsilon = needed * (1 + 1e-9) + 1e-12
    return math.inf


def _chance(sampling: Poisson) -> float:
    from scipy.stats import binom

    return float(binom.sf(sampling.capacity, sampling.population, sampling.rate))
