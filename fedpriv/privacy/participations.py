"""How often a unit takes part, for views that know it: no amplification, but a unit counts only where it takes part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedpriv.privacy.curves import Floats
from fedpriv.privacy.relations import multiplier_for
from fedpriv.privacy.release import Release

_TAIL = 1e-30  # participation counts rarer than this, on either side, are counted as delta = 1
_MOST_VALUES = 10_000  # of the summed precision; more are rounded up to this many cells
_MOST_NESTED = 500  # numbers of rounds of which the releases are counted one by one


def participations(
    releases: Sequence[Release], relation: str = "zero_out"
) -> tuple[Floats, Floats, float]:
    """Distribution of the summed precision sum_k n_k / multiplier_k^2 over the draw of the cohorts.

    n_k counts the releases that the unit is in: a round's draw of `participation` is one for all its local steps, each
    of which has a draw of `sampling` of its own.

    Returns:
        The possible values, their probabilities, and the probability of the values left out (below 1e-29).
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
