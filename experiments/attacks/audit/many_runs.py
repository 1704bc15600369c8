"""Audits an algorithm by thousands of whole trainings, in half of which a worst-case canary takes part."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from experiments.attacks.audit.canary import CERTIFIED, bounded, release_of
from experiments.attacks.audit.errors import certified_errors, seen_errors
from experiments.attacks.audit.exact_pair import LIMITS, exact_pair, of_limits
from experiments.attacks.audit.kept_scores import Scored
from experiments.attacks.audit.repeated_training import Asked, RepeatedTraining, kept_scores
from experiments.attacks.audit.row import LIKELY, SURE, Row, Unaudited
from experiments.base.time_left import Remaining
from experiments.config.experiment import Experiment, Ledger
from experiments.config.settings import Settings
from fedpriv.attacks.bounds import best_thresholds, lower_bounds
from fedpriv.attacks.canaries import VIEWS, NoPlaceError
from fedpriv.attacks.estimates import gaussian_estimate
from fedpriv.attacks.mechanism_audit import Scores
from fedpriv.devices.layout import Strategy
from fedpriv.privacy.relations import relation_of

APART = (2**25, 2**26)
"""Seeds of draws of the exact pair, from those of `audit_mechanisms` and of each other."""
CHOOSING = 100_000
"""Draws of each neighbour that choose the thresholds: their tails are what counts."""


def audit_many_runs(
    experiment: Experiment, settings: Settings, strategy: Strategy, asked: Asked
) -> tuple[list[Row], list[Unaudited]]:
    """Every algorithm that adds noise to models or sums, for each view and each delta."""
    rows: list[Row] = []
    skipped = []
    ledger = experiment.ledger
    releases = {name: release_of(ledger, name, settings.rounds) for name in experiment.entries}
    audited = {name: release for name, release in releases.items() if release is not None}
    kept = {name: kept_scores(experiment, name, settings, asked) for name in audited}
    before = {name: each.load() for name, each in kept.items()}
    remaining = Remaining("trainings with a canary", len(audited) * asked.runs)
    for name, release in audited.items():
        try:
            repeated = RepeatedTraining(experiment, settings, strategy, asked, name, release)
            scored = repeated.train(before[name], kept[name], remaining)
        except NoPlaceError as error:
            remaining.skip(asked.runs)
            skipped.append(Unaudited((name,), str(error)))
        else:
            rows += _rows(name, ledger, settings.rounds, asked, scored)
    return rows, skipped


def _rows(name: str, ledger: Ledger, rounds: int, asked: Asked, scored: Scored) -> Iterator[Row]:
    for v, view in enumerate(VIEWS):
        audit = _View(
            scored.scores[v], scored.present, *_exact_pairs(ledger, name, rounds, view, asked)
        )
        for delta in asked.deltas:
            said = bounded(ledger, name, rounds, view, delta)
            limits = audit.limits(delta)
            least = audit.bound(delta, LIKELY)
            found = {
                "method": "Clopper-Pearson",
                "significance": LIKELY,
                **of_limits(least, limits),
                "estimate": gaussian_estimate(audit.scores, audit.present, delta)._asdict(),
            }
            if delta == asked.deltas[0]:  # the curves are the same at every delta
                seen = seen_errors(audit.own.present, audit.own.absent)
                found["errors"] = {"certified": certified_errors(said.certificate), "seen": seen}
            yield Row(
                (name,),
                (view,),
                said.claim,
                said.certificate,
                least=least,
                surely=audit.bound(delta, SURE),
                most=found["limit"] or math.log(asked.runs / 2),
                about={"runs": asked.runs, "rounds": rounds, "seconds": scored.seconds},
                audited=found,
            )


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
    seen = [release for release in traced.releases(rounds) if release.view == seen_as]
    gaussian = all(release.noise == "gaussian" and not release.own_noise for release in seen)
    if view != seen_as or not gaussian or relation_of(seen, seen_as) == "replace_one":
        return limit, None
    return limit, exact_pair(traced, seen_as, rounds, CHOOSING, second)


class _View(NamedTuple):
    """What a view saw of all runs, and draws of the exact pair for the limit and for thresholds.

    Attributes:
      scores: f32[runs].
      present: bool[runs].
    """

    scores: np.ndarray
    present: np.ndarray
    exact: Scores | None
    other: Scores | None

    @property
    def own(self) -> Scores:
        return Scores(self.scores[self.present], self.scores[~self.present], frozenset(), False)

    def bound(self, delta: float, significance: float) -> float:
        """By counts, at thresholds that were fixed in advance if there are draws for that."""
        return self._by_counts(self.own, delta, significance)

    def limits(self, delta: float) -> list[float]:
        """The same bound of as many draws of the exact pair, several times; none where there are no draws."""
        if not self.exact:
            return []
        parts = (np.split(side, LIMITS) for side in (self.exact.present, self.exact.absent))
        each = [self.exact._replace(present=p, absent=a) for p, a in zip(*parts, strict=True)]
        return [self._by_counts(one, delta, LIKELY) for one in each]

    def _by_counts(self, scores: Scores, delta: float, significance: float) -> float:
        fixed = None
        if self.other:
            fixed = best_thresholds(self.other, delta, significance, runs=len(self.present))
        return lower_bounds(scores, delta, significance, threshold=fixed).clopper_pearson
