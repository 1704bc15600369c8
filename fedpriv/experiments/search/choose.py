"""Choosing among the points of a sweep by their scores on folds of the training records (`folds=N`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedpriv.engine.client_metric_names import parsed
from fedpriv.engine.metric_words import in_percent
from fedpriv.experiments.base.formats import field_name, mean_and_std
from fedpriv.experiments.base.spread import Spread
from fedpriv.experiments.runs.contents import Summary
from fedpriv.experiments.search.sweep_grid import FOLD, Point
from fedpriv.experiments.tables.grid import Grid
from fedpriv.models.score import better_higher
from fedpriv.privacy.certificate import NOT_COVERED

UNCOVERED = (
    "the folds are clients' records: no epsilon covers a choice by these scores, neither for a fold's model nor for "
    "one trained with the chosen settings (--best-of MEAN certifies a choice by public test records)"
)


def not_covered(metric: str) -> str:
    """What a choice on folds is, in the words of certificates."""
    return f"{NOT_COVERED}the settings were chosen by {metric} on clients' training records"


class Score(NamedTuple):
    """The score of an algorithm at a point of a sweep, on folds.

    Attributes:
      algorithm: its key; `name` is for people.
      values: swept field -> its value, as given.
      metric: by which points are compared.
      spread: of the metric after the last round, one value per fold, each the mean over the seeds; None where the
        training of a fold diverged.
    """

    algorithm: str
    values: Mapping[str, str]
    metric: str
    spread: Spread | None
    name: str = ""


def scores(found: Sequence[tuple[Point, Summary]]) -> list[Score]:
    """The scores on folds to choose by, of each algorithm at each point."""
    folds: dict[tuple, list[float | None]] = {}
    names: dict[str, str] = {}
    for point, summary in found:
        values = tuple((field, text) for field, text in point.values.items() if field != FOLD)
        for name in dict.fromkeys([*summary.rounds, *summary.diverged]):
            names[name] = summary.name_of(name)
            lost = name in summary.diverged
            mean = None if lost else summary.last(name)[summary.metric].mean
            folds.setdefault((name, values), []).append(mean)
    metric = found[0][1].metric
    return [
        Score(key, dict(values), metric, _spread(each), names[key])
        for (key, values), each in folds.items()
    ]


def _spread(each: Sequence[float | None]) -> Spread | None:
    return None if None in each else Spread.of(np.array(each))


def best(each: Sequence[float | None], higher: bool) -> int | None:
    """Which score on folds is the first of the best; None where none is a number."""
    known = {i: x for i, x in enumerate(each) if x is not None and not math.isnan(x)}
    return (max if higher else min)(known, key=known.__getitem__, default=None)


def chosen(found: Sequence[Score], higher: Sequence[str]) -> dict[str, Score]:
    """The point of the best mean over folds, by algorithm; without those that diverged everywhere.

    Args:
      higher: metrics that are better when higher, beside accuracies.
    """
    winners = {}
    for name in dict.fromkeys(score.algorithm for score in found):
        own = [score for score in found if score.algorithm == name]
        means = [score.spread.mean if score.spread else None for score in own]
        at = best(means, better_higher(own[0].metric, higher))
        if at is not None:
            winners[name] = own[at]
    return winners


def table(found: Sequence[Score], winners: Mapping[str, Score], folds: int) -> Grid:
    """A table of the scores on folds, a line for each point and algorithm."""
    fields, metric = list(found[0].values), found[0].metric
    shown = metric + " (%)" * in_percent(metric) + ", not private"
    head = [*map(field_name, fields), "algorithm", shown, "chosen"]
    rows = []
    for score in found:
        cells = [*score.values.values(), score.name or score.algorithm]
        cells += [mean_and_std(score.spread, metric) if score.spread else "diverged"]
        rows.append([*cells, "*" * (winners.get(score.algorithm) is score)])
    of_clients = "on records of single clients, which are not of the fold that was held out"
    where = of_clients if parsed(metric) else "on the fold that was held out"
    said = (
        f"{metric} after the last round, {where}: mean ± standard deviation (n - 1) over {folds} "
        "folds of the training records; *: the best mean of the algorithm"
    )
    return Grid(head, rows, {}, [said, not_covered(metric), UNCOVERED], len(fields))
