"""Audits mechanisms whose epsilon is known exactly, and counts the bounds that are above it.

    python -m fedpriv.experiments.attacks.audit.null 1000

A bound at 95 % may be above the truth in one audit of twenty. "Allowed" is the binomial quantile of that at 1 - 1e-6:
one row in a million exceeds it by chance.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import dp_accounting
import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import binom

from fedpriv.attacks.bounds import best_thresholds, lower_bounds
from fedpriv.attacks.mechanism_audit import Scores
from fedpriv.attacks.one_run import epsilon_one_run, p_value_one_run
from fedpriv.experiments.base.formats import markdown_table
from fedpriv.experiments.base.terminal import say
from fedpriv.privacy import PrivacyProfile

RUNS, CANARIES, SIGNIFICANCE = 2000, (100, 1000), 0.05


class Pair(NamedTuple):
    """Two neighbours whose epsilon is known exactly.

    Attributes:
      delta: of an epsilon, in the worse direction.
      draw: (rng, present: bool[n]) -> log-likelihood ratios.
    """

    name: str
    delta: Callable[[np.ndarray], np.ndarray]
    draw: Callable[[np.random.Generator, np.ndarray], np.ndarray]
    gaussian: bool = False

    def epsilon(self, delta: float) -> float:
        return float(brentq(lambda e: self.delta(e) - delta, 0, 30, xtol=1e-10))

    def scores(self, rng: np.random.Generator, each: int) -> Scores:
        """Of so many draws of each neighbour."""
        there, away = (self.draw(rng, np.full(each, side)) for side in (True, False))
        noise = "gaussian" if self.gaussian else "other"
        return Scores(there, away, frozenset({noise}), self.gaussian)

    def profile(self) -> PrivacyProfile:
        epsilons = np.linspace(0, 12, 1201)
        return PrivacyProfile(epsilons, self.delta(epsilons))


def gaussian(mu: float) -> Pair:
    def delta(eps: np.ndarray) -> np.ndarray:
        return ndtr(mu / 2 - eps / mu) - np.exp(eps) * ndtr(-mu / 2 - eps / mu)

    def draw(rng: np.random.Generator, present: np.ndarray) -> np.ndarray:
        return mu * rng.normal(size=len(present)) + np.where(present, 1, -1) * mu**2 / 2

    return Pair(f"Gaussian, mu {mu:.3g}", delta, draw, gaussian=True)


def subsampled(mu: float, rate: float) -> Pair:
    """For audits of a null: the pair of a mixture of N(0, 1) and, at the rate, N(mu, 1) against N(0, 1)."""

    def excess(eps: np.ndarray, sign: int) -> np.ndarray:
        """(mixture - e^eps normal)_+, or with sign -1 (normal - e^eps mixture)_+, where the ratio is eps."""
        odds = (np.exp(sign * eps) - 1 + rate) / rate
        at = np.where(odds > 0, np.log(np.maximum(odds, 1e-300)) / mu + mu / 2, -40.0)
        mixture, normal = (
            (1 - rate) * ndtr(-sign * at) + rate * ndtr(sign * (mu - at)),
            ndtr(-sign * at),
        )
        first, second = (mixture, normal) if sign > 0 else (normal, mixture)
        return first - np.exp(eps) * second

    def delta(eps: np.ndarray) -> np.ndarray:
        return np.maximum(np.maximum(excess(eps, 1), excess(eps, -1)), 0.0)

    def draw(rng: np.random.Generator, present: np.ndarray) -> np.ndarray:
        x = rng.normal(size=len(present)) + mu * (present & (rng.random(len(present)) < rate))
        return np.log1p(rate * np.expm1(mu * x - mu**2 / 2))

    return Pair(f"subsampled Gaussian, mu {mu:.3g}, rate {rate:.3g}", delta, draw)


def randomised_response(epsilon: float) -> Pair:
    def delta(eps: np.ndarray) -> np.ndarray:
        return np.maximum(np.exp(epsilon) - np.exp(eps), 0.0) / (1 + np.exp(epsilon))

    def draw(rng: np.random.Generator, present: np.ndarray) -> np.ndarray:
        honest = rng.random(len(present)) < 1 / (1 + np.exp(-epsilon))
        return epsilon * np.where(present == honest, 1.0, -1.0)

    return Pair(f"randomised response, epsilon {epsilon:.3g}", delta, draw)


def pairs() -> Iterator[tuple[Pair, float]]:
    """Of an audit of the audits: pairs whose epsilon is known, with the deltas at which they are audited."""
    for epsilon, delta in ((1.0, 5e-3), (4.0, 1e-5)):
        yield gaussian(1 / dp_accounting.get_sigma_gaussian(epsilon, delta)), delta
    yield subsampled(2.0, 0.2), 5e-3
    yield randomised_response(1.0), 1e-5


class Null(NamedTuple):
    """Audits of a pair whose epsilon is known, by one method.

    Attributes:
      exceeded: audits whose bound was above the truth.
      allowed: how many may be.
      median: bound over the truth; NaN of a test.
    """

    method: str
    pair: str
    audits: int
    exceeded: int
    allowed: int
    median: float


def many_runs(pair: Pair, delta: float, audits: int, runs: int = RUNS) -> Iterator[Null]:
    """Audits a pair whose epsilon is known by many runs, half with the unit, half without."""
    rng, truth = np.random.default_rng(0), pair.epsilon(delta)
    fixed = best_thresholds(pair.scores(rng, 20_000), delta, SIGNIFICANCE, runs=runs)
    for name, threshold in ((" thresholds fixed", fixed), (" thresholds found", None)):
        found = [
            lower_bounds(pair.scores(rng, runs // 2), delta, SIGNIFICANCE, threshold=threshold)
            for _ in range(audits)
        ]
        yield _counted("Clopper-Pearson," + name, pair, [b.clopper_pearson / truth for b in found])
        if pair.gaussian:
            ratios = [b.gaussian / truth for b in found if b.gaussian is not None]
            yield _counted("Gaussian," + name, pair, ratios)


def one_run(pair: Pair, delta: float, audits: int, canaries: int) -> Iterator[Null]:
    """Audits a pair whose epsilon is known by canaries that are seen independently of each other."""
    rng, truth, profile = np.random.default_rng(0), pair.epsilon(delta), pair.profile()
    coins = [rng.random(canaries) < 0.5 for _ in range(audits)]
    seen = [(pair.draw(rng, there), there) for there in coins]
    for method in ("f_dp", "epsilon_delta", "steinke"):
        if method == "f_dp" and not pair.gaussian:
            continue
        bounds = [epsilon_one_run(*s, delta, SIGNIFICANCE, method=method) for s in seen]
        name = f"one run of {canaries} canaries, {method}"
        yield _counted(name, pair, [b / truth for b in bounds])
    p_values = np.array([p_value_one_run(*s, profile) for s in seen])
    refuted = np.where(p_values <= SIGNIFICANCE, np.inf, np.nan)
    yield _counted(f"one run of {canaries} canaries, certificate tested", pair, refuted)


def _counted(method: str, pair: Pair, ratios: list[float] | np.ndarray) -> Null:
    audits, above = len(ratios), int(np.sum(np.asarray(ratios) > 1))
    allowed = int(binom.ppf(1 - 1e-6, audits, SIGNIFICANCE))
    return Null(method, pair.name, audits, above, allowed, float(np.median(ratios)))


def null(audits: int, runs: int = RUNS, canaries: tuple[int, ...] = CANARIES) -> Iterator[Null]:
    """Audits every pair whose epsilon is known by every method that is a bound for it."""
    for pair, delta in pairs():
        yield from many_runs(pair, delta, audits, runs)
        for count in canaries:
            yield from one_run(pair, delta, audits, count)


def main() -> int:
    found = list(null(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
    head = ("method", "pair", "audits", "exceeded", "allowed", "median bound over the truth")
    rows = [
        (*map(str, row[:5]), "-" if np.isnan(row.median) else f"{row.median:.2f}") for row in found
    ]
    say(markdown_table([head, *rows]))
    return int(any(row.exceeded > row.allowed for row in found))


if __name__ == "__main__":
    sys.exit(main())
