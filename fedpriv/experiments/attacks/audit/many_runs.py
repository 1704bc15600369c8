"""Audits an algorithm by thousands of whole trainings, in half of which a canary takes part."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedpriv.attacks.bounds import best_thresholds, lower_bounds
from fedpriv.attacks.canaries import SCORED_VIEWS
from fedpriv.attacks.canary_places import NoPlaceError
from fedpriv.attacks.mechanism_audit import Scores
from fedpriv.devices.layout import Strategy
from fedpriv.experiments.attacks.audit.canary import CERTIFIED, WORST, Kind, seen_of
from fedpriv.experiments.attacks.audit.mechanisms import LIMITS, exact_pair, parts_of
from fedpriv.experiments.attacks.audit.repeated_training import (
    Asked,
    RepeatedTraining,
    Scored,
    kept_scores,
)
from fedpriv.experiments.attacks.audit.row import LIKELY, Row, Unaudited, rows_of
from fedpriv.experiments.base.time_left import Remaining
from fedpriv.experiments.config.experiment import Experiment
from fedpriv.experiments.config.ledger import Ledger
from fedpriv.experiments.config.settings import Settings
from fedpriv.privacy import Certificate
from fedpriv.privacy.played import plays_of
from fedpriv.proof.seen import common_neighbour

APART = (2**25, 2**26)
"""Seeds of draws of the exact pair, from those of `audit_mechanisms` and of each other."""
CHOOSING = 100_000
"""Draws of each neighbour that choose the thresholds: their tails are what counts."""
THRESHOLDS = 12
"""Points of the curve that is seen."""


def audit_many_runs(
    experiment: Experiment,
    settings: Settings,
    strategy: Strategy,
    asked: Asked,
    kinds: Sequence[Kind] = (WORST,),
) -> tuple[list[Row], list[Unaudited]]:
    """Audits by many runs every algorithm that adds noise to models or sums, each kind of canary, view and delta."""
    rows: list[Row] = []
    skipped = []
    every = {name: seen_of(experiment.ledger, name, settings.rounds) for name in experiment.entries}
    audited = {
        (name, kind): seen for name, seen in every.items() if seen is not None for kind in kinds
    }
    kept = {of: kept_scores(experiment, *of, settings, asked) for of in audited}
    before = {of: each.load() for of, each in kept.items()}
    remaining = Remaining("trainings with a canary", len(audited) * asked.runs)
    for (name, kind), seen in audited.items():
        try:
            repeated = RepeatedTraining(experiment, settings, strategy, asked, name, kind, seen)
            scored = repeated.train(before[name, kind], kept[name, kind], remaining)
        except NoPlaceError as error:
            remaining.skip(asked.runs)
            skipped.append(Unaudited((name,), str(error)))
        else:
            rows += _rows(name, kind, experiment.ledger, settings.rounds, asked, scored)
    return rows, skipped


def _rows(
    name: str, kind: Kind, ledger: Ledger, rounds: int, asked: Asked, scored: Scored
) -> Iterator[Row]:
    about = {
        "canary": kind,
        "runs": asked.runs,
        "rounds": rounds,
        "seconds": scored.seconds,
    }
    for v, view in enumerate(SCORED_VIEWS):
        exact, other = _exact_pairs(ledger, name, rounds, view, asked)
        if kind != WORST:  # its scores are smaller than those of the pair
            other = None
        seen = _View(
            scored.scores[v], scored.present, exact, other, about, with_errors_at=asked.deltas[0]
        )
        yield from rows_of(seen, name, view, ledger, rounds, asked.deltas)


def _exact_pairs(
    ledger: Ledger, name: str, rounds: int, view: str, asked: Asked
) -> tuple[Scores | None, Scores | None]:
    """Independent draws for the limit and for thresholds; none for these where scores have another scale.

    So they have of the last model, of units certified as replaced, which move sums twice as far as one that becomes
    zero, of noise that is not Gaussian, and where each client adds all of the noise.
    """
    traced, seen_as = ledger.trace(name), CERTIFIED.get(view, view)
    n, (first, second) = asked.runs // 2, (asked.seed + apart for apart in APART)
    limit = exact_pair(traced, seen_as, rounds, LIMITS * n, first)
    seen = [each for each in traced.seen(rounds) if each.view == seen_as]
    every = [plays for plays in map(plays_of, seen) if plays is not None]
    gaussian = all(plays.kind == "gaussian" for plays in every)
    gaussian &= not any(each.step.adder == "own" for stage in traced.stages for each in stage.sums)
    if view != seen_as or not gaussian or common_neighbour(seen) == "replaced":
        return limit, None
    return limit, exact_pair(traced, seen_as, rounds, CHOOSING, second)


class _View(NamedTuple):
    """What a view saw of all runs, and draws of the exact pair for the limit and for thresholds, as `Seen`.

    Attributes:
      scores: f32[runs].
      present: bool[runs].
      about: what was done.
      with_errors_at: the delta whose row has an attacker's errors, which are the same at every delta.
    """

    scores: np.ndarray
    present: np.ndarray
    exact: Scores | None
    other: Scores | None
    about: dict[str, Any]
    with_errors_at: float

    @property
    def method(self) -> str:
        return "Clopper-Pearson"

    @property
    def own(self) -> Scores:
        return Scores(self.scores[self.present], self.scores[~self.present], frozenset(), False)

    def bound(self, delta: float, significance: float) -> float:
        """By counts, at thresholds that were fixed in advance if there are draws for that."""
        return self._by_counts(self.own, delta, significance)

    def limits(self, delta: float) -> list[float]:
        return [self._by_counts(one, delta, LIKELY) for one in parts_of(self.exact)]

    def most(self, delta: float, limit: float | None) -> float:
        return limit or math.log(len(self.present) / 2)

    def beside(self, certificate: Certificate) -> dict[str, Any]:
        """An attacker's errors."""
        if certificate.delta != self.with_errors_at:
            return {}
        seen = seen_errors(self.own.present, self.own.absent)
        return {"errors": {"certified": certified_errors(certificate), "seen": seen}}

    def _by_counts(self, scores: Scores, delta: float, significance: float) -> float:
        fixed = None
        if self.other:
            fixed = best_thresholds(self.other, delta, significance, runs=len(self.present))
        return lower_bounds(scores, delta, significance, threshold=fixed).clopper_pearson


def certified_errors(certificate: Certificate) -> dict[str, Any] | None:
    """A certificate's trade-off curve, which no attacker on trainings is below; None where nothing is certified."""
    if not math.isfinite(certificate.epsilon):
        return None
    numbers = certificate.operational_numbers()
    return {
        "false_positive_rates": numbers.false_positive_rates,
        "false_negative_rates": numbers.false_negative_rates,
    }


def seen_errors(
    present: np.ndarray, absent: np.ndarray, significance: float = 0.05
) -> list[dict[str, Any]]:
    """Of many whole trainings: rates with Clopper-Pearson intervals, of guessing "present" from some thresholds on.

    Each interval holds with probability 1 - significance, for a threshold that was fixed in advance; these are read off
    the scores, for a picture.
    """
    few = 1 / max(len(absent), 2)
    wanted = np.unique(np.quantile(absent, 1 - np.geomspace(few, 0.99, THRESHOLDS)))
    return [
        {
            "false_positives": _rate(int((absent >= at).sum()), len(absent), significance),
            "false_negatives": _rate(int((present < at).sum()), len(present), significance),
        }
        for at in wanted
    ]


def _rate(count: int, n: int, significance: float) -> dict[str, float]:
    from scipy.stats import binomtest

    interval = binomtest(count, n).proportion_ci(1 - significance, method="exact")
    return {"rate": count / n, "low": float(interval.low), "high": float(interval.high)}
