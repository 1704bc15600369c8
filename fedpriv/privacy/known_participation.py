"""How often a unit takes part, for views that know it: no amplification, but a unit counts only where it takes part."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedpriv.privacy import counts
from fedpriv.privacy.curves import Floats
from fedpriv.privacy.relations import multiplier_for
from fedpriv.privacy.release import Release

_TAIL = 1e-30  # participation counts rarer than this, on either side, are counted as delta = 1
_MOST_VALUES = 10_000  # of the summed precision; more are rounded up to this many cells
_MOST_PAIRS = 10**7  # of values side by side
_NARROW = 5e-3  # of the smallest value, of which that is half a percent


def participations(
    releases: Sequence[Release], relation: str = "zero_out"
) -> tuple[Floats, Floats, float]:
    """How often a unit takes part: the law of the summed precision sum_k n_k / multiplier_k^2 over the cohorts' draw.

    n_k counts the releases that the unit is in, each with the square of how often it is drawn for it: a round's draw of
    `participation` is one for all its local steps, each of which has a draw of `sampling` of its own.

    Returns:
        The possible values, their probabilities, and the probability of the values left out (below 1e-29).
    """
    values, weights, missing = np.zeros(1), np.ones(1), 0.0
    for release in releases:
        n, chances, left_out = count(release)
        missing += left_out
        if len(values) * len(n) > _MOST_PAIRS:
            values, weights = _merged(values, weights, _MOST_PAIRS // 4000)
            n, chances = _merged(n, chances, 4000)
        values = np.add.outer(values, n / multiplier_for(release, relation) ** 2).ravel()
        weights = np.multiply.outer(weights, chances).ravel()
        values, weights = _merged(values, weights, _MOST_VALUES)
    return values, weights, missing


def count(release: Release) -> tuple[Floats, Floats, float]:
    """(n, the sum of squares of how often a unit is drawn; their probabilities; that of those left out)."""
    drawn, known = release.sampling, release.participation
    once = drawn.most_often == 1
    if known is None and once:
        return _binomial(release.rounds * release.local_steps, drawn.rate)
    if known is not None and once and drawn.rate == 1:
        rounds, chances, missing = _binomial(release.rounds, known.rate)
        return rounds * release.local_steps, chances, missing
    n, chances = drawn.times_drawn()
    of_round = counts.total(counts.from_values(n**2, chances), release.local_steps)
    if known is not None:
        of_round = counts.sometimes(of_round, known.rate)
    whole_run = counts.total(of_round, release.rounds)
    return whole_run.values, whole_run.chances, whole_run.missing


def _binomial(trials: int, rate: float) -> tuple[Floats, Floats, float]:
    from scipy.stats import binom

    count = binom(trials, rate)
    # The upper end by the number of the others: scipy's `isf` gives up on tails this thin.
    low, others = (max(int(binom(trials, p).ppf(_TAIL)), 0) for p in (rate, 1 - rate))
    n = np.arange(low, trials - others + 1)
    return n.astype(float), count.pmf(n), float(count.cdf(n[0] - 1) + count.sf(n[-1]))


def _merged(values: Floats, weights: Floats, most: int) -> tuple[Floats, Floats]:
    """Equal values as one; where there are more than `most`, rounded up: a larger precision has the larger delta.

    To cells of one width, or where that is much beside the smallest value, of one ratio.
    """
    if len(values) > most:
        low, high = values.min(), values.max()
        width = (high - low) / most
        least = values[values > 0].min()
        if width <= _NARROW * least:
            values = low + np.ceil((values - low) / width) * width
        else:
            step = math.log(high / least) / most
            with np.errstate(divide="ignore"):
                cells = np.ceil(np.log(values / least) / step - 1e-9)
            values = least * np.exp(cells * step) * (1 + 1e-8 * step)
    values, where = np.unique(values, return_inverse=True)
    return values, np.bincount(where, weights).astype(np.float64)
