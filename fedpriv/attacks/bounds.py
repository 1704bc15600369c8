"""Lower bounds on epsilon from the scores of a distinguisher.

Of many draws of two neighbours: by Clopper-Pearson intervals (M. Jagielski, J. Ullman, A. Oprea, "Auditing
Differentially Private Machine Learning", NeurIPS 2020, arXiv:2006.07709) and by Gaussian differential privacy (M. Nasr
et al., "Tight Auditing of Differentially Private Machine Learning", USENIX Security 2023, arXiv:2302.07956). Of
canaries in one run: T. Steinke, M. Nasr, M. Jagielski, NeurIPS 2023, arXiv:2305.08846.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedpriv.attacks.mechanism_audit import Scores
from fedpriv.core.arguments import Decay, Probability, checked, require
from fedpriv.core.array_arguments import as_numbers


class LowerBounds(NamedTuple):
    """On epsilon, both together wrong with probability `significance` at most.

    Attributes:
      clopper_pearson: for any mechanism; of n draws never above about log n.
      gaussian: for a Gaussian mechanism of any multiplier; 0 where it is none, because of other noise or of random
        participation, or delta is 0.
      significance: 1 - confidence.
    """

    clopper_pearson: float
    gaussian: float
    significance: float

    @property
    def least(self) -> float:
        """What epsilon is at least."""
        return max(self.clopper_pearson, self.gaussian)


def lower_bounds(scores: Scores, delta: Decay, significance: Probability = 0.05) -> LowerBounds:
    """Lower bounds on epsilon at `delta` from the scores of `fedpriv.attacks.mechanism_audit.draw_scores`.

    Args:
      delta: probability, in [0, 1).
      significance: the probability that may be wrong, 0.05 for 95 % confidence.

    Raises:
      ValueError: no scores, or probabilities out of range.
    """
    require(isinstance(scores, Scores), "scores", scores, "give those of fp.attacks.draw_scores")
    delta = checked("delta", delta, Decay)
    significance = checked("significance", significance, Probability)
    from jax_privacy.auditing import CanaryScoreAuditor, Split

    auditor = CanaryScoreAuditor(scores.present, scores.absent)
    options = {"one_sided": False, "threshold_strategy": Split(seed=0)}
    gaussian = scores.noise == {"gaussian"} and scores.certain and delta > 0
    each = significance / 2 if gaussian else significance
    by_counts = float(auditor.epsilon_clopper_pearson(each, delta, **options))
    as_gaussian = _as_gaussian(scores, delta, each) if gaussian else 0.0
    return LowerBounds(by_counts, as_gaussian, significance)


def _as_gaussian(scores: Scores, delta: float, significance: float) -> float:
    """Epsilon of the Gaussian mechanism whose mu is a lower bound on that of the scores.

    The threshold is chosen on one half of the scores, the error rates there are bounded on the other. This is not
    `epsilon_from_gdp` of jax_privacy 2.0, which takes |mu| of upper bounds on both rates: where one of these is near 1
    that is large, whatever the mechanism.
    """
    import dp_accounting

    half_present, half_absent = len(scores.present) // 2, len(scores.absent) // 2
    candidates = np.unique(scores.present[:half_present])
    first = _mu(
        scores.present[:half_present], scores.absent[:half_absent], candidates, significance
    )
    best = candidates[np.argmax(first)]
    mu = _mu(scores.present[half_present:], scores.absent[half_absent:], best, significance)
    return float(dp_accounting.get_epsilon_gaussian(1 / mu, delta)) if mu > 0 else 0.0


def _mu(
    present: np.ndarray, absent: np.ndarray, thresholds: np.ndarray, significance: float
) -> np.ndarray:
    """Lower bounds on mu, each by itself, from guessing "present" at or above a threshold."""
    from scipy.stats import beta, norm

    missed = np.searchsorted(np.sort(present), thresholds, side="left")
    false = len(absent) - np.searchsorted(np.sort(absent), thresholds, side="left")

    def most(count: np.ndarray, n: int) -> np.ndarray:
        return np.where(
            count < n, beta.isf(significance / 2, count + 1, np.maximum(n - count, 0.5)), 1
        )

    return norm.isf(most(false, len(absent))) - norm.ppf(most(missed, len(present)))


def epsilon_one_run(
    scores: np.ndarray, present: np.ndarray, delta: Decay, significance: Probability = 0.05
) -> float:
    """Lower bound on epsilon from the scores of canaries that were there by fair coins (Steinke et al., Theorem 5.2).

    Canaries of several independent runs count as those of one.

    Args:
      scores: f32[...], of the canaries.
      present: bool[...], of the same shape, whether each was there.
      delta: probability, in [0, 1).

    Returns:
      The bound; 0 where fewer than two canaries were there, or were not.

    Raises:
      ValueError: probabilities out of range.
    """
    scores, present = _checked_canaries(scores, present)
    delta = checked("delta", delta, Decay)
    significance = checked("significance", significance, Probability)
    from jax_privacy.auditing import CanaryScoreAuditor, Split

    heads = np.asarray(present, bool)
    if min(heads.sum(), (~heads).sum()) < 2:  # the threshold takes one of each, the bound another
        return 0.0
    auditor = CanaryScoreAuditor(np.asarray(scores)[heads], np.asarray(scores)[~heads])
    # The threshold from some of the canaries, the bound from the others: the default looks at all for both.
    chosen = Split(seed=0)
    return float(auditor.epsilon_one_run(significance, delta, threshold_strategy=chosen))


def epsilon_estimate(scores: np.ndarray, present: np.ndarray, delta: Decay) -> float:
    """Estimate of epsilon, no bound: as if scores were normal with one variance (after Andrew et al., Section 3).

    Args:
      scores, present, delta: as `epsilon_one_run`.

    Raises:
      ValueError: a delta outside [0, 1).
    """
    scores, present = _checked_canaries(scores, present)
    delta = checked("delta", delta, Decay)
    import dp_accounting

    heads = np.asarray(present, bool)
    there, away = np.asarray(scores, np.float64)[heads], np.asarray(scores, np.float64)[~heads]
    if min(len(there), len(away)) < 2:
        return 0.0
    apart = there.mean() - away.mean()
    spread = np.sqrt(
        (there.var(ddof=1) * (len(there) - 1) + away.var(ddof=1) * (len(away) - 1))
        / (len(there) + len(away) - 2)
    )
    if apart <= 0:
        return 0.0
    return float(dp_accounting.get_epsilon_gaussian(spread / apart, delta))


def _checked_canaries(scores: np.ndarray, present: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both as arrays; raises ValueError where they are not of numbers, or of different shapes."""
    scores, present = as_numbers("scores", scores), as_numbers("present", present)
    remedy = f"give one for each of the scores, {list(scores.shape)}"
    require(present.shape == scores.shape, "present", present, remedy)
    return scores, present
