"""Composition by privacy loss distributions (PLD), with dp-accounting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fedpriv.privacy import curves
from fedpriv.privacy.relations import multiplier_for
from fedpriv.privacy.release import Release
from fedpriv.privacy.sampling import Poisson, Sampling
from fedpriv.privacy.truncation import chance_of_cuts, despite_cuts, is_cut

# Margin, as a probability, for the rounding of the Fourier transforms that compose privacy losses: a constant and
# an amount for every round. Against the closed form 10^4, 10^5 and 10^6 rounds fall short of the truth by 2e-13, 2e-12
# and 2e-11 (see the tests).
_ROUNDING, _ROUNDING_PER_ROUND = 1e-13, 1e-16
_CELLS, _COMPOSED_CELLS = 5e4, 1e6  # aimed at for the losses of one round, and of all rounds
_FINEST, _COARSEST = 1e-4, 64.0  # nats; dp-accounting's own default, and where e^width is safe


def pld_epsilon(releases: Sequence[Release], relation: str, delta: float) -> float:
    """Smallest epsilon that the composed privacy loss distribution certifies; infinity where there is none.

    Formal guarantees: an upper bound. Add-or-remove: the tight pair of Zhu, Dong and Wang 2022 for Poisson cohorts;
    with a capacity, for Gaussian noise, the truncated pair of dp-accounting (arXiv 2508.15089), for Laplace noise the
    distance to the run without cuts. Replace-one: `curves.replace_delta`. Zero-out: `curves.shown_delta`.

    Args:
        releases: positive, finite multipliers, at least one step.
        relation: "add_or_remove", "replace_one" or "zero_out".
        delta: probability, in (0, 1).
    """
    interval = cell_width(releases, relation)
    if interval > _COARSEST:
        return math.inf
    composed = compose(releases, relation, interval)

    margin = _ROUNDING + _ROUNDING_PER_ROUND * sum(r.steps * r.local_steps for r in releases)

    def epsilon_of(delta: float) -> float:
        if delta <= margin:
            return math.inf
        return float(composed.get_epsilon_for_delta(delta - margin))

    ignored = [r for r in releases if relation != "zero_out" and not _knows_cuts(r)]
    return despite_cuts(epsilon_of, chance_of_cuts(ignored), delta)


def compose(releases: Sequence[Release], relation: str, interval: float) -> Any:
    """Privacy loss distribution of all rounds of all releases; equal rounds are composed at once."""
    composed = None
    for release in releases:
        multiplier = multiplier_for(release, relation)
        once = _round(release.sampling, release.noise, multiplier, relation, interval)
        # Where to truncate is the best over many orders of a moment bound; the largest may overflow.
        with np.errstate(over="ignore"):
            if release.local_steps > 1:  # composing cuts off tails, even once
                once = once.self_compose(release.local_steps)
            once = _taking_part(once, release)
            rounds = once.self_compose(release.steps)
        composed = rounds if composed is None else composed.compose(rounds)
    return composed


def cell_width(releases: Sequence[Release], relation: str) -> float:
    """Width of a cell in nats: 1e-4, or as many powers of two above as keep the arrays small.

    Wide cells cost tightness, never soundness. Powers of two let calls with different numbers of rounds share the
    cached distribution of a round.
    """
    once = spread = 0.0
    for release in releases:
        multiplier = multiplier_for(release, relation)
        spread += release.steps * release.local_steps * release.sampling.rate / multiplier**2
        if is_cut(release.sampling):
            multiplier /= 2  # a client that is cut makes room for another: it moves the sum twice
        once = max(once, _largest_loss(release.noise, multiplier))
    composed = spread / 2 + 10 * math.sqrt(spread)
    width = max(once / _CELLS, composed / _COMPOSED_CELLS) / _FINEST
    return float(_FINEST * 2.0 ** max(0, math.ceil(math.log2(width))))


def _taking_part(block: Any, release: Release) -> Any:
    """The losses of a round for a view that is told whether the unit's client takes part: 0 where it does not."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    if release.participation is None or release.participation.rate == 1:
        return block
    rate = release.participation.rate

    def mixed(pmf: Any) -> Any:
        dense = pmf.to_dense_pmf()
        low = min(dense._lower_loss, 0)
        high = max(dense._lower_loss + dense.size - 1, 0)
        probabilities = np.zeros(high - low + 1)
        start = dense._lower_loss - low
        probabilities[start : start + dense.size] = rate * dense._probs
        probabilities[-low] += 1 - rate
        return pld_pmf.DensePLDPmf(
            dense._discretization, low, probabilities, rate * dense._infinity_mass, True
        )

    remove, add = block._pmf_remove, block._pmf_add
    if block._symmetric:
        return pld.PrivacyLossDistribution(mixed(remove))
    return pld.PrivacyLossDistribution(mixed(remove), mixed(add))


def _largest_loss(noise: str, multiplier: float) -> float:
    """Nats; for Gaussian noise ten standard deviations: the mass beyond is below 1e-22."""
    if noise == "laplace":
        return 1 / multiplier
    return 1 / (2 * multiplier**2) + 10 / multiplier


def _knows_cuts(release: Release) -> bool:
    """Whether the distribution of a round knows of the cut to a capacity."""
    return release.noise == "gaussian"


@lru_cache(maxsize=32)
def _round(
    sampling: Sampling, noise: str, multiplier: float, relation: str, interval: float
) -> Any:
    """Privacy loss distribution of one round; `multiplier` is relative to `relation`'s distance."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    if relation != "add_or_remove":
        curve = {"replace_one": curves.replace_delta, "zero_out": curves.shown_delta}[relation]
        last = math.ceil(_largest_loss(noise, multiplier) / interval)
        return _from_curve(lambda e: curve(e, multiplier, sampling.rate, noise), last, interval)
    options = {"value_discretization_interval": interval}
    if noise == "laplace":
        return pld.from_laplace_mechanism(multiplier, sampling_prob=sampling.rate, **options)
    if isinstance(sampling, Poisson) and is_cut(sampling):
        return pld.from_truncated_subsampled_gaussian_mechanism(
            sampling.population, sampling.rate, sampling.capacity, multiplier, **options
        )
    return pld.from_gaussian_mechanism(multiplier, sampling_prob=sampling.rate, **options)


def _from_curve(curve: Callable[[np.ndarray], np.ndarray], last: int, interval: float) -> Any:
    """A curve as a pessimistic distribution on -last..last cells (Doroshenko et al. 2022, Algorithm 1)."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    deltas = curve(np.arange(-last, last + 1) * interval)
    # The curve covers both directions.
    return pld.PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, -last, last, deltas)
    )
