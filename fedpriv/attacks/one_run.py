"""Lower bounds on epsilon from canaries of one run, each there by a fair coin.

S. Mahloujifar, L. Melis, K. Chaudhuri, "Auditing f-Differential Privacy in One Run", ICML 2025, arXiv:2410.22235; T.
Steinke, M. Nasr, M. Jagielski, "Privacy Auditing with One (1) Training Run", NeurIPS 2023, arXiv:2305.08846.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from fedpriv.core.arguments import CountOrZero, Probability, checked
from fedpriv.core.array_arguments import as_numbers
from fedpriv.core.complaints import require
from fedpriv.privacy.profile import PrivacyProfile

Method: TypeAlias = Literal["f_dp", "epsilon_delta", "steinke"]
METHODS: tuple[Method, ...] = get_args(Method)
LeastWrong: TypeAlias = Callable[[float], float]
"""r -> f(1 - r): what is right with probability r is wrong at least so probably, had the coin fallen otherwise."""

_LEAST_CHANCE = 1e-12  # below, 1 - r has no digits left
_HALVINGS = 40


class _Guessed(NamedTuple):
    canaries: int
    made: int
    right: int


def epsilon_one_run(
    scores: np.ndarray,
    present: np.ndarray,
    delta: Probability,
    significance: Probability = 0.05,
    *,
    method: Method = "f_dp",
    guesses: tuple[CountOrZero, CountOrZero] | None = None,
) -> float:
    """Lower bound on epsilon from the scores of canaries that were there by fair coins.

    The canaries with the lowest scores are guessed absent, those with the highest present. How many is fixed before the
    scores are seen, so that nothing is paid for looking. Canaries of several independent runs count as those of one.

    Formal guarantees: let c of m canaries be guessed, and i of the guesses be right with probability p_i. If f is the
    mechanism's trade-off curve, the same in both directions, then for any set T of numbers (Mahloujifar et al.)

        sum_{i in T} i p_i / m  <=  1 - f(sum_{i in T} (c - i + 1) p_{i-1} / m).

    *Proof.* Fix all coins but the j-th, and a side u of that. "The guess on j is u, and with it i guesses are right,
    for an i in T" is an event of the output. By f its probability where the coin is u is at most 1 - f of that where
    it is not: there the guess is wrong, and i - 1 are right. Average over u, j and the other coins, as 1 - f is
    concave: of the m canaries i have right guesses where i are right, and c - i + 1 wrong ones where i - 1 are. The
    tails T = {i, i + 1, ..} bound the probability of v right guesses or more, see `_is_impossible`.

    Args:
      scores: f32[...], of the canaries.
      present: bool[...], of the same shape, whether each was there.
      method: "f_dp": with the curves of Gaussian mechanisms, a bound where the mechanism has such a curve alone;
        "epsilon_delta": with the curve of (epsilon, delta), for any mechanism; "steinke": Theorem 5.2 of Steinke et
        al., for any mechanism.
      guesses: (absent, present), fixed before the scores are seen; a tenth of the canaries each by default, which suits
        epsilons of 1 to 8 and hundreds of canaries. All of them are better where nearly all will be right.

    Returns:
      The bound, in nats, wrong with probability `significance` at most.

    Raises:
      ValueError: probabilities out of range, more guesses than canaries, or arrays of different shapes.
    """
    delta = checked("delta", delta, Probability)
    significance = checked("significance", significance, Probability)
    method = checked("method", method, Method)
    return _bound(_guess(scores, present, guesses), method, delta, significance)


@lru_cache(maxsize=4096)
def _bound(guessed: _Guessed, method: Method, delta: float, significance: float) -> float:
    if 2 * guessed.right <= guessed.made:  # no better than coins
        return 0.0
    if method == "steinke":
        return _steinke(guessed, delta, significance)
    if method == "epsilon_delta":
        return _largest(
            lambda eps: _is_impossible(partial(_approximate, eps, delta), guessed, significance)
        )
    mu = _largest(lambda mu: _is_impossible(partial(_gaussian, mu), guessed, significance))
    import dp_accounting

    return float(dp_accounting.get_epsilon_gaussian(1 / mu, delta)) if mu > 0 else 0.0


def p_value_one_run(
    scores: np.ndarray,
    present: np.ndarray,
    profile: PrivacyProfile,
    *,
    guesses: tuple[CountOrZero, CountOrZero] | None = None,
) -> float:
    """How probable so many right guesses are, at most, if a certificate is right; for its whole trade-off curve.

    Args:
      scores, present, guesses: as `epsilon_one_run`.
      profile: `certificate.profile()`.

    Returns:
      The probability; never below 1e-12. The certificate is refuted at 1 - 1e-6 where it is 1e-6 or less.

    Raises:
      ValueError: as `epsilon_one_run`.
    """
    fits = isinstance(profile, PrivacyProfile)
    require(fits, "profile", profile, "give certificate.profile()")
    return _p_value(_guess(scores, present, guesses), profile)


@lru_cache(maxsize=4096)
def _p_value(guessed: _Guessed, profile: PrivacyProfile) -> float:
    def least_wrong(right: float) -> float:
        return float(profile.false_negative_rate(max(0.0, 1 - right)))

    low, high = math.log(_LEAST_CHANCE), 0.0
    if _is_impossible(least_wrong, guessed, _LEAST_CHANCE):
        return _LEAST_CHANCE
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _is_impossible(least_wrong, guessed, math.exp(middle)):
            high = middle
        else:
            low = middle
    return math.exp(high)


def _guess(scores: np.ndarray, present: np.ndarray, guesses: tuple[int, int] | None) -> _Guessed:
    scores, there = checked_canaries(scores, present)
    scores, there = scores.ravel(), there.ravel()
    guesses = checked("guesses", guesses, tuple[CountOrZero, CountOrZero] | None)
    absent, sure = guesses or (-(-len(scores) // 10),) * 2
    if guesses is None and len(scores) < 2:
        return _Guessed(len(scores), 0, 0)
    remedy = f"give no more than the {len(scores)} canaries"
    require(absent + sure <= len(scores), "guesses", guesses, remedy)
    mixed = np.random.default_rng(0).permutation(len(scores))  # equal scores in no order
    order = mixed[np.argsort(scores[mixed], kind="stable")]
    right = np.sum(~there[order[:absent]]) + np.sum(there[order[len(order) - sure :]])
    return _Guessed(len(scores), absent + sure, int(right))


def checked_canaries(scores: np.ndarray, present: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores and coins of canaries as arrays, of floats and of booleans.

    Raises:
      ValueError: no numbers, or different shapes.
    """
    scores, present = as_numbers("scores", scores), as_numbers("present", present)
    remedy = f"give one for each of the scores, {list(scores.shape)}"
    require(present.shape == scores.shape, "present", present, remedy)
    return np.asarray(scores, np.float64), np.asarray(present, bool)


def _is_impossible(least_wrong: LeastWrong, guessed: _Guessed, chance: float) -> bool:
    """Whether no mechanism with this trade-off curve makes so many right guesses with probability `chance`.

    *Proof.* Let r_i and h_i be the sums of j p_j / m and (c - j) p_j / m over j >= i. The theorem for T = {i, ..} is
    h_{i-1} >= f(1 - r_i). By definition r_{i-1} - r_i = (i - 1) / (c - i + 1) (h_{i-1} - h_i), and r_0 + h_0 = c / m. A
    rise of h adds the more to r the earlier it comes. So r_0 + h_0 is least where all of `chance` lies at v and each
    h_{i-1} is as small as it may be. If that is above c / m, there is no such mechanism.
    """
    m, c, v = guessed
    right, wrong = chance * v / m, chance * (c - v) / m
    for i in range(v - 1, -1, -1):
        more = least_wrong(right) - wrong
        if more <= 0:  # nor will it be later
            return False
        right, wrong = right + i / (c - i) * more, wrong + more
        if right + wrong > c / m:
            return True
    return False


def _gaussian(mu: float, right: float) -> float:
    from scipy.special import ndtr, ndtri

    return float(ndtr(ndtri(right) - mu))


def _approximate(epsilon: float, delta: float, right: float) -> float:
    """Of (epsilon, delta); Dong, Roth and Su 2022, Proposition 2.5."""
    return max(
        1 - delta - math.exp(epsilon) * (1 - right), math.exp(-epsilon) * (right - delta), 0.0
    )


def _largest(refuted: Callable[[float], bool]) -> float:
    """The largest number that is refuted, where all smaller ones are; 0 where none is."""
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def _steinke(guessed: _Guessed, delta: float, significance: float) -> float:
    from jax_privacy.auditing import CanaryScoreAuditor, Explicit

    # The right guesses count as canaries that were there and are seen, the wrong ones as some that were not there.
    m, c, v = guessed
    others = np.zeros(max(m - c, 1))  # the library wants one
    auditor = CanaryScoreAuditor(np.ones(v), np.append(np.ones(c - v), others))
    return float(auditor.epsilon_one_run(significance, delta, threshold_strategy=Explicit(0.5)))
