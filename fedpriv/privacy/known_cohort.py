"""Views that know who takes part: no amplification, but a client counts only when it takes part.

The neighbouring relation is *zero-out*: the unit's contributions become zero while its
participation stays as it is. (Adding or removing a client could not be hidden from a view that sees
the cohort.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedpriv.privacy.curves import Floats, epsilon_of_mixture
from fedpriv.privacy.cuts import is_cut
from fedpriv.privacy.losses import pld_epsilon
from fedpriv.privacy.reading import is_exact
from fedpriv.privacy.relations import multiplier_for
from fedpriv.privacy.release import Release
from fedpriv.privacy.renyi import rdp_epsilon
from fedpriv.privacy.sampling import WithReplacement, takes_all

_TAIL = 1e-30  # participation counts rarer than this, on either side, are counted as delta = 1
_MOST_VALUES = 10_000  # of the summed precision; more are rounded up to this many cells
_MOST_NESTED = 500  # numbers of rounds of which the releases are counted one by one
ANALYTIC = "analytic Gaussian curve, root rounded up"


def epsilons(releases: Sequence[Release], relation: str, delta: float) -> dict[str, float]:
    """Accountant -> epsilon for a view that sees the participation pattern; positive, finite multipliers.

    Formal guarantees: each is an upper bound. For Gaussian noise "PLD" is the exact
    delta(eps) = E_n[delta_Gauss(eps; sqrt(sum_k n_k / multiplier_k^2))], n_k ~
    Bin(steps_k, rate_k) independent, solved for eps; it is attained by a unit that
    always contributes in one direction at full norm. With Laplace noise it is discretised.

    *Why the mixture is right.* The output is the pair (B, Y): the pattern B of who took part, and
    the releases Y. Under zero-out B has the same law for both neighbours, because cohorts are drawn
    without looking at the data. So H_a((B, Y) || (B, Y')) = sum_b Pr[b] H_a(Y | b || Y' | b): no
    pattern has to be bounded by the worst one, and the average is an identity, not an
    approximation. Given b with n participations, the rounds without the unit have the same
    conditional law given the past, and each of the n others is a Gaussian release of a unit of
    whitened norm at most 1 / multiplier that may depend on the past; adaptively composed they are
    dominated by one Gaussian with separation sqrt(n) / multiplier (Dong, Roth and Su 2022). A
    larger norm only increases every term. The Rényi divergence of the pair is, in the same way,
    1 / (a - 1) times the logarithm of an average.

    The number is an average over the draw of the cohorts. Once they are drawn, a client that took
    part n times has lost delta_Gauss(eps; sqrt(n) / multiplier), more than this if n is above the
    average.

    A cohort cut to a capacity is counted at the rate before the cut: the true count is
    stochastically smaller.

    Args:
        releases: positive, finite multipliers.
        relation: "zero_out".
        delta: probability, in (0, 1).
    """
    if is_exact(releases, relation):
        found = {"PLD": epsilon_of_mixture(*participations(releases, relation), delta)}
    else:
        found = {"PLD": pld_epsilon(releases, relation, delta)}
    by_rdp = rdp_epsilon(releases, relation, delta)
    return found if by_rdp is None else found | {"RDP": by_rdp}


def participations(
    releases: Sequence[Release], relation: str = "zero_out"
) -> tuple[Floats, Floats, float]:
    """Distribution of the summed precision sum_k n_k / multiplier_k^2 over the draw of the cohorts.

    n_k counts the releases that the unit is in: a round's draw of `participation` is one for all its local steps,
    each of which has a draw of `sampling` of its own.

    Returns:
        The possible values, their probabilities, and the probability of the values left out (below
        1e-29).
    """
    values, weights, missing = np.zeros(1), np.ones(1), 0.0
    for release in releases:
        n, chances, left_out = _count(release)
        missing += left_out
        values = np.add.outer(values, n / multiplier_for(release, relation) ** 2).ravel()
        weights = np.multiply.outer(weights, chances).ravel()
        values, weights = _merged(values, weights, _MOST_VALUES)
    return values, weights, missing


def _count(release: Release) -> tuple[Floats, Floats, float]:
    """(n, their probabilities, that of those left out): how many releases the unit is in."""
    if release.participation is None:
        return _binomial(release.steps * release.local_steps, release.sampling.rate)
    rounds, chances, missing = _binomial(release.steps, release.participation.rate)
    if release.sampling.rate == 1:
        return rounds * release.local_steps, chances, missing
    rounds, chances = _merged(rounds, chances, _MOST_NESTED)
    counts, weights = [], []
    for n, chance in zip(np.ceil(rounds), chances, strict=True):
        count, of_count, left_out = _binomial(int(n) * release.local_steps, release.sampling.rate)
        counts.append(count)
        weights.append(chance * of_count)
        missing += chance * left_out
    found = _merged(np.concatenate(counts), np.concatenate(weights), _MOST_VALUES)
    return *found, missing


def _binomial(trials: int, rate: float) -> tuple[Floats, Floats, float]:
    from scipy.stats import binom

    count = binom(trials, rate)
    # The upper end by the number of the others: scipy's `isf` gives up on tails this thin.
    low, others = (max(int(binom(trials, p).ppf(_TAIL)), 0) for p in (rate, 1 - rate))
    n = np.arange(low, trials - others + 1)
    return n.astype(float), count.pmf(n), float(count.cdf(n[0] - 1) + count.sf(n[-1]))


def _merged(values: Floats, weights: Floats, most: int) -> tuple[Floats, Floats]:
    """Equal values as one; where there are more than `most`, rounded up: a larger precision has the larger delta."""
    if len(values) > most:
        low = values.min()
        width = (values.max() - low) / most
        values = low + np.ceil((values - low) / width) * width
    values, where = np.unique(values, return_inverse=True)
    return values, np.bincount(where, weights).astype(np.float64)


def bound(releases: Sequence[Release], view: str) -> str:
    """Which side of the truth the Gaussian number lies on."""
    drawn = [d for r in releases for d in (r.sampling, r.participation) if d is not None]
    exact = all(r.noise_is_split for r in releases) and not any(
        is_cut(d) or isinstance(d, WithReplacement) for d in drawn
    )
    if view == "third_party":  # which need not know who takes part
        exact &= all(map(takes_all, drawn))
    return f"upper, attained in the worst case: {ANALYTIC}" if exact else f"upper: {ANALYTIC}"


def assumptions(releases: Sequence[Release]) -> tuple[str, ...]:
    """What must hold, in words."""
    fresh = "the noise is fresh in every round, and what hides the unit is unknown to the view"
    if all(takes_all(r.participation or r.sampling) for r in releases):
        return ("every unit takes part in every round", fresh)
    pattern = "who takes part is visible, and is drawn without looking at the data"
    average = "delta is an average over the draw of the cohorts, independent from round to round"
    return (pattern, average, fresh)
