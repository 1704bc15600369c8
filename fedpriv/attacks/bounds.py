"""Lower bounds on epsilon from the scores of a distinguisher between many draws of two neighbours.

By Clopper-Pearson intervals, as in M. Jagielski, J. Ullman, A. Oprea, "Auditing Differentially Private Machine
Learning", NeurIPS 2020, arXiv:2006.07709, but of the precision of guesses in both directions; and by Gaussian
differential privacy, as in M. Nasr et al., "Tight Auditing of Differentially Private Machine Learning", USENIX Security
2023, arXiv:2302.07956.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from fedpriv.attacks.mechanism_audit import Scores
from fedpriv.core.arguments import Count, Decay, Probability, checked
from fedpriv.core.complaints import require
from fedpriv.proof.noise import Floats

Pair: TypeAlias = tuple[float, float]

_FOR_COINS = 0.05  # parts of the significance
_FOR_SHARE = 0.05
_CHOOSING = 4  # one in so many draws chooses the thresholds where none are given
_SHARES = 48  # of guesses that are tried, of each kind


class Thresholds(NamedTuple):
    """The guess is "absent" at or below the first of a pair, "present" at or above the second, and between them none.

    Attributes:
      epsilon: for the bound on epsilon.
      mu: for the bound on the mu of a Gaussian mechanism.
    """

    epsilon: Pair
    mu: Pair


class LowerBounds(NamedTuple):
    """On epsilon, each wrong with probability `significance` at most.

    Attributes:
      clopper_pearson: for any mechanism; of n draws never above about log n.
      gaussian: for a Gaussian mechanism of any multiplier; None where it is none, because of other noise or of random
        participation, or delta is 0.
      significance: 1 - confidence.
    """

    clopper_pearson: float
    gaussian: float | None
    significance: float

    @property
    def least(self) -> float:
        """What epsilon is at least: the Gaussian bound where there is one."""
        return self.clopper_pearson if self.gaussian is None else self.gaussian


def lower_bounds(
    scores: Scores,
    delta: Decay,
    significance: Probability = 0.05,
    *,
    threshold: Thresholds | None = None,
) -> LowerBounds:
    """Lower bounds on epsilon at `delta` from the scores of `fedpriv.attacks.mechanism_audit.draw_scores`.

    Formal guarantees: of N draws, each of either neighbour by a fair coin, let a share G be guessed, with precision p,
    so that a draw is guessed rightly with probability p G and wrongly with (1 - p) G. (epsilon, delta) bounds the
    guesses "present" and the guesses "absent"; the mean of both is p G <= e^epsilon (1 - p) G + delta, with delta / 2
    where one of them is never made. So e^epsilon >= (p - delta / G) / (1 - p), which rises with p and G. The number of
    guesses is binomial of N and G, that of right ones among them of p: Clopper and Pearson bound both from below.
    Likewise p G <= Phi(mu + Phi^-1((1 - p) G)) for a mu-Gaussian mechanism, as trade-off curves are convex: mu >=
    Phi^-1(p G) - Phi^-1((1 - p) G), which rises with p and G, too.

    Args:
      delta: probability, in [0, 1).
      significance: the probability that may be wrong, 0.05 for 95 % confidence.
      threshold: chosen before these scores were seen, by `best_thresholds` of others; without, a quarter of the scores
        chooses it and the rest is counted.

    Returns:
      The bounds. As the numbers of both neighbours are given and not tossed, coins choose which draws are counted: all
      but about 4 sqrt(N) of them at a significance of 5 %. They are seeded by the scores.

    Raises:
      ValueError: no scores, or probabilities out of range.
    """
    _check_scores(scores)
    delta = checked("delta", delta, Decay)
    significance = checked("significance", significance, Probability)
    fits = threshold is None or isinstance(threshold, Thresholds)
    require(fits, "threshold", threshold, "give those of fp.attacks.best_thresholds(..), or None")
    rng = _generator(scores)
    present, absent = rng.permutation(scores.present), rng.permutation(scores.absent)
    if threshold is None:
        i, j = len(present) // _CHOOSING, len(absent) // _CHOOSING
        if min(i, j) == 0:
            return _bounds(scores, 0.0, 0.0, delta, significance)
        first = scores._replace(present=present[:i], absent=absent[:j])
        present, absent = present[i:], absent[j:]
        threshold = best_thresholds(first, delta, significance, runs=len(present) + len(absent))
    present, absent = _tossed(present, absent, significance, rng)
    of_epsilon = _count(present, absent, threshold.epsilon)
    of_mu = _count(present, absent, threshold.mu)
    epsilon = _epsilon(*_rates(*of_epsilon, significance), _given_up(threshold.epsilon, delta))
    return _bounds(
        scores, float(epsilon), float(_mu(*_rates(*of_mu, significance))), delta, significance
    )


def best_thresholds(
    scores: Scores, delta: Decay, significance: Probability = 0.05, *, runs: Count
) -> Thresholds:
    """The thresholds at which `lower_bounds` of so many draws are largest, if their scores are distributed as these.

    They keep `lower_bounds` valid for other scores only, whatever these are: such as those of `draw_scores` for the
    certified releases.

    Args:
      runs: draws of both neighbours together that will be audited.

    Raises:
      ValueError: as `lower_bounds`; no draws.
    """
    _check_scores(scores)
    delta = checked("delta", delta, Decay)
    significance = checked("significance", significance, Probability)
    runs = checked("runs", runs, Count)
    pooled = np.sort(np.concatenate([scores.present, scores.absent]))
    shares = np.geomspace(min(0.25, 5 / len(pooled)), 0.5, _SHARES)
    inside = np.unique(np.minimum(len(pooled) * shares, (len(pooled) - 1) / 2).astype(int))
    low = np.append(-np.inf, np.unique(pooled[inside]))[:, None]
    high = np.append(np.unique(pooled[-1 - inside]), np.inf)[None, :]
    right, wrong = _guesses(scores.present, scores.absent, low, high)
    rates = _rates(runs, runs * (right + wrong), runs * right, significance)
    bounds = np.where(low < high, _epsilon(*rates, _given_up((low, high), delta)), -1.0)
    i, j = np.unravel_index(np.argmax(bounds), bounds.shape)
    return Thresholds((float(low[i, 0]), float(high[0, j])), _around_the_middle(scores))


def _around_the_middle(scores: Scores) -> Pair:
    """Where the standard error of mu is nearly least, whatever mu up to 3: a guess beyond 0.6 standard deviations."""
    middle = (np.mean(scores.present) + np.mean(scores.absent)) / 2
    far = 0.6 * np.sqrt((np.var(scores.present) + np.var(scores.absent)) / 2)
    return float(middle - far), float(middle + far)


def _check_scores(scores: Scores) -> None:
    require(isinstance(scores, Scores), "scores", scores, "give those of fp.attacks.draw_scores")
    both = min(len(scores.present), len(scores.absent)) > 0
    require(both, "scores", scores, "give some of each neighbour")


def _generator(scores: Scores) -> np.random.Generator:
    """Seeded by the scores: another one in another audit, and the same for the same scores."""
    digest = hashlib.sha256(np.concatenate([scores.present, scores.absent]).tobytes()).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))


def _tossed(
    present: np.ndarray, absent: np.ndarray, significance: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The scores of as many draws, each of a neighbour by a fair coin, as there will be enough scores of both for.

    Where there are not after all, with a probability F, all coins are tossed again. Given that there are, nothing has
    more than 1 / (1 - F) times its probability, which `_FOR_COINS` pays for.
    """
    from scipy.stats import binom

    def too_many(runs: int) -> float:
        return float(binom.sf([len(present), len(absent)], runs, 0.5).sum())

    every = range(1, len(present) + len(absent) + 1)
    runs = bisect_right(every, _FOR_COINS * significance, key=too_many)
    there = int(rng.binomial(runs, 0.5))
    while there > len(present) or runs - there > len(absent):
        there = int(rng.binomial(runs, 0.5))
    return present[:there], absent[: runs - there]


def _guesses(
    present: np.ndarray, absent: np.ndarray, low: ArrayLike, high: ArrayLike
) -> tuple[Floats, Floats]:
    """Probabilities of a right and of a wrong guess, where a fair coin chooses between such scores."""
    present, absent = np.sort(present), np.sort(absent)

    def at_most(scores: np.ndarray) -> Floats:
        return np.searchsorted(scores, low, side="right") / (2 * len(scores))

    def at_least(scores: np.ndarray) -> Floats:
        return 0.5 - np.searchsorted(scores, high, side="left") / (2 * len(scores))

    return at_least(present) + at_most(absent), at_least(absent) + at_most(present)


def _count(present: np.ndarray, absent: np.ndarray, pair: Pair) -> tuple[int, int, int]:
    """(Draws, guesses, right guesses)."""
    low, high = pair

    def says_present(scores: np.ndarray) -> int:
        return int(np.sum(scores >= high))

    def says_absent(scores: np.ndarray) -> int:
        return int(np.sum((scores <= low) & (scores < high)))

    right = says_present(present) + says_absent(absent)
    wrong = says_present(absent) + says_absent(present)
    return len(present) + len(absent), right + wrong, right


def _rates(
    runs: ArrayLike, made: ArrayLike, right: ArrayLike, significance: float
) -> tuple[Floats, Floats]:
    """(Precision, share of draws that are guessed), both from below."""
    for_precision = significance * (1 - _FOR_COINS - _FOR_SHARE)
    return _at_least(right, made, for_precision), _at_least(made, runs, _FOR_SHARE * significance)


def _at_least(successes: ArrayLike, trials: ArrayLike, significance: float) -> Floats:
    """Clopper and Pearson's lower bound on a probability."""
    from scipy.special import betaincinv

    successes, trials = np.asarray(successes, float), np.asarray(trials, float)
    some = successes > 0
    failures = np.where(some, trials - successes, 0.0)
    return np.where(
        some, betaincinv(np.where(some, successes, 1.0), failures + 1, significance), 0.0
    )


def _given_up(pair: tuple[ArrayLike, ArrayLike], delta: float) -> Floats:
    """Delta, half of it where only one guess is ever made."""
    low, high = pair
    return delta * (np.isfinite(low).astype(float) + np.isfinite(high)) / 2


def _epsilon(precision: Floats, share: Floats, delta: ArrayLike) -> Floats:
    lost = np.asarray(delta) / np.maximum(share, 1e-300)
    ratio = np.maximum(precision - lost, 0.0) / (1 - precision)
    return np.log(np.maximum(ratio, 1.0))


def _mu(precision: Floats, share: Floats) -> Floats:
    from scipy.special import ndtri

    better = np.where(precision > 0.5, precision, 0.5)  # no better than a coin: nothing
    share = np.clip(share, 1e-300, 1.0)
    return np.asarray(ndtri(better * share) - ndtri((1 - better) * share))


def _bounds(
    scores: Scores, epsilon: float, mu: float, delta: float, significance: float
) -> LowerBounds:
    import dp_accounting

    gaussian = None
    if scores.noise == {"gaussian"} and scores.certain and delta > 0:
        gaussian = float(dp_accounting.get_epsilon_gaussian(1 / mu, delta)) if mu > 0 else 0.0
    return LowerBounds(epsilon, gaussian, significance)
