"""An estimate of epsilon, no bound: as if scores were those of a Gaussian mechanism.

After G. Andrew et al., "One-shot Empirical Privacy Estimation for Federated Learning", ICLR 2024, arXiv:2302.03098,
with an interval and a test of the assumption.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedpriv.attacks.one_run import checked_canaries
from fedpriv.core.arguments import Probability, checked

_QUANTILE = 1.959964  # of the normal distribution, at 97.5 %
_FEWEST = 20  # scores of a side, for the approximations of the tests of normality


class GaussianEstimate(NamedTuple):
    """Of a mechanism whose trade-off curve is Gaussian.

    Attributes:
      epsilon: in nats.
      low, high: its interval at 95 %.
      mu: distance of the means of both sides over their standard deviation; not below 0.
      p_value: of the assumption that scores are normal with one variance. Where it is small the estimate means nothing;
        NaN with fewer than 20 scores of a side.
    """

    epsilon: float
    low: float
    high: float
    mu: float
    p_value: float


def gaussian_estimate(
    scores: np.ndarray, present: np.ndarray, delta: Probability
) -> GaussianEstimate:
    """What epsilon at `delta` would be if the scores of both sides were normal with one variance.

    Then mu_hat / s with s^2 = 1 / n1 + 1 / n0 has the non-central t distribution of n1 + n0 - 2 degrees of freedom and
    centre mu / s. Its normal approximation (N. Johnson, B. Welch, Biometrika 1940), solved for mu, is the interval.
    The test is Tippett's combination of three: skewness and kurtosis of either side (R. D'Agostino, E. Pearson,
    Biometrika 1973) and the F test of equal variances. They are independent where the assumption holds, as the shape
    of normal scores is independent of their variance (Basu 1955).

    Args:
      scores: f32[...], of any number of runs and canaries.
      present: bool[...], of the same shape, whether the canary was there.

    Returns:
      The estimate; all zeros with fewer than two scores of a side.

    Raises:
      ValueError: a delta outside (0, 1), or arrays of different shapes.
    """
    import dp_accounting

    scores, heads = checked_canaries(scores, present)
    delta = checked("delta", delta, Probability)
    there, away = scores[heads], scores[~heads]
    if min(len(there), len(away)) < 2:
        return GaussianEstimate(0.0, 0.0, 0.0, 0.0, math.nan)
    freedom = len(there) + len(away) - 2
    spread = math.sqrt((there.var() * len(there) + away.var() * len(away)) / freedom)
    apart = there.mean() - away.mean()
    if spread == 0:
        sure = math.inf if apart > 0 else 0.0
        return GaussianEstimate(sure, sure, sure, sure, math.nan)
    mu = float(apart / spread)
    around = (1 - 1 / (4 * freedom)) * mu
    error = math.hypot(math.sqrt(1 / len(there) + 1 / len(away)), mu / math.sqrt(2 * freedom))

    def epsilon(mu: float) -> float:
        return float(dp_accounting.get_epsilon_gaussian(1 / mu, delta)) if mu > 0 else 0.0

    low, high = epsilon(around - _QUANTILE * error), epsilon(around + _QUANTILE * error)
    return GaussianEstimate(epsilon(mu), low, high, max(mu, 0.0), _p_value(there, away))


def _p_value(there: np.ndarray, away: np.ndarray) -> float:
    """Of the hypothesis that both sides are normal with one variance."""
    if min(len(there), len(away)) < _FEWEST:
        return math.nan
    from scipy.stats import f, normaltest

    if min(there.var(), away.var()) == 0:
        return 0.0
    ratio, freedom = there.var(ddof=1) / away.var(ddof=1), (len(there) - 1, len(away) - 1)
    equal = 2 * min(f.cdf(ratio, *freedom), f.sf(ratio, *freedom))
    least = min(equal, normaltest(there).pvalue, normaltest(away).pvalue)
    return float(-np.expm1(3 * np.log1p(-min(least, 1.0))))
