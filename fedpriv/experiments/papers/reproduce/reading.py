"""Numbers read from run folders, as cells take them: of one training, or what one has more than another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedpriv.experiments.base.spread import Spread
from fedpriv.experiments.papers.reproduce.item import Cell, Read, Training, Value
from fedpriv.experiments.runs.contents import Line, Summary
from fedpriv.experiments.runs.run_folder import RunFolder

CHANCE = 10.0
"""Accuracy in % of a model that predicts one of ten classes."""


def lines(run: RunFolder) -> Sequence[Line]:
    """For a cell: the evaluations of the one algorithm that was trained; none where it diverged before the first."""
    (of_algorithm,) = run.lines.values() or [()]
    return of_algorithm


def summary(run: RunFolder) -> Summary:
    """For a cell: the summary of a run that ended, as all are that items are made of."""
    assert run.summary is not None
    return run.summary


def complete(run: RunFolder) -> bool:
    """For a cell: whether a run did not diverge."""
    return summary(run).status == "complete"


def value(spread: Spread, factor: float = 1) -> Value:
    return over_seeds(factor * np.array(spread.per_seed))


def over_seeds(per_seed: np.ndarray) -> Value:
    spread = Spread.of(per_seed)
    return Value(spread.mean, spread.std, spread.per_seed)


def best_accuracy(run: RunFolder) -> Value:
    """For a cell: best test accuracy over the evaluations, per seed, in %."""
    each = [100 * np.array(line.of_score["accuracy"].per_seed) for line in lines(run)]
    return over_seeds(np.fmax.reduce(each))


def final_accuracy(run: RunFolder) -> Value:
    """For a cell: test accuracy after the last round, in %."""
    ended = summary(run)
    (name,) = ended.rounds
    return value(ended.last(name)["accuracy"], 100)


def last_tenth(run: RunFolder) -> Value:
    """For a cell: test accuracy in %, mean over the evaluations of the last tenth of the rounds, per seed."""
    return over_seeds(_late(run, 0.1).mean(0))


def unsteadiness(run: RunFolder) -> Value | str:
    """Standard deviation of test accuracy over the evaluations of the last quarter of the rounds, its trend included,
    per seed, in points.
    """
    late = _late(run, 0.25)
    return over_seeds(late.std(0, ddof=1)) if len(late) > 1 else "one evaluation"


def _late(run: RunFolder, share: float) -> np.ndarray:
    """f64[evaluations, seeds], test accuracies in % in the last part of the rounds."""
    after = (1 - share) * lines(run)[-1].round
    late = [line.of_score["accuracy"].per_seed for line in lines(run) if line.round > after]
    return 100 * np.array(late)


def uplink_mb(run: RunFolder) -> Value:
    """For a cell: sent over the run per client of the population, on average, in MB (10^6 bytes)."""
    (sent,) = summary(run).uplink_mb_per_client.values()
    return Value(sent)


def last(metric: str) -> Read:
    """For a cell: reads "loss", "accuracy" (0..1) or a diagnostic after the last round."""
    return lambda run: value(metric_of(lines(run)[-1], metric))


def metric_of(line: Line, name: str) -> Spread:
    found = line.metric(name)
    if found is None:
        raise ValueError(f"{name}: was not measured at round {line.round} of {line.algorithm}")
    return found


def saved_uplink(target: float) -> Read:
    """Reads how much less the first run sends than the second until its mean test accuracy (0..1) reaches `target`, in
    %; at evaluations, so in steps of as many rounds as lie between them.
    """

    def read(first: RunFolder, second: RunFolder) -> Value | str:
        sent = [_uplink_until(run, target) for run in (first, second)]
        if sent[0] is None or sent[1] is None:
            return "not reached"
        return Value(100 * (1 - sent[0] / sent[1]))

    return read


def _uplink_until(run: RunFolder, target: float) -> float | None:
    reached = (x.uplink_mb_per_client for x in lines(run) if x.of_score["accuracy"].mean >= target)
    return next(reached, None)


def accuracies(run: RunFolder) -> np.ndarray:
    """f64[evaluations, seeds], in %; chance at the end of a run that diverged, of all its seeds."""
    found = [100 * np.array(line.of_score["accuracy"].per_seed) for line in lines(run)]
    if not complete(run):
        found.append(np.full_like(found[-1], CHANCE) if found else np.array([CHANCE]))
    return np.stack(found)


def least_lead(first: RunFolder, second: RunFolder) -> Value:
    """For a cell: the least that one run's accuracy has more than another's, over the evaluations, in points."""
    pairs = zip(accuracies(first), accuracies(second), strict=False)
    return over_seeds(np.min([a - b for a, b in pairs], axis=0))


def last_lead(first: RunFolder, second: RunFolder) -> Value:
    """For a cell: what the first run has more after the last round, in points."""
    return over_seeds(accuracies(first)[-1] - accuracies(second)[-1])


def late_loss(run: RunFolder) -> Value:
    """For a cell: best accuracy less the last, in points."""
    found = accuracies(run)
    return over_seeds(found.max(0) - found[-1])


def early_shortfall(first: RunFolder, second: RunFolder) -> Value:
    """The most that the first run's accuracy is below the second's in the first third of the evaluations, in points."""
    a, b = accuracies(first), accuracies(second)
    early = max(1, len(b) // 3)
    pairs = zip(a[:early], b[:early], strict=False)
    return over_seeds(np.max([y - x for x, y in pairs], axis=0))


def last_span(*runs: RunFolder) -> Value:
    """For a cell: the largest less the smallest accuracy after the last round, in points."""
    return over_seeds(np.ptp([accuracies(run)[-1] for run in runs], axis=0))


def gap(read: Read, *runs: RunFolder) -> Value:
    """What the first half of the runs has more than the second half, on average, seed by seed: a seed gives all of them
    the same data. For a `read` with a value per seed, and runs with equally many.
    """
    seen: list[Any] = [read(run) for run in runs]
    ours, theirs = np.split(np.array([one.per_seed for one in seen]), 2)
    return over_seeds(ours.mean(0) - theirs.mean(0))


def change(read: Read, *runs: RunFolder) -> Value:
    """For a cell: what one run has more than a second, less what a third has more than a fourth, seed by seed."""
    longer, shorter = (np.array(gap(read, *two).per_seed) for two in (runs[:2], runs[2:]))
    return over_seeds(longer - shorter)


def numbers(lines: Mapping[str, Training], row: str, column: str, read: Read) -> list[Cell]:
    """A cell for each label, which stands for the braces in `row` or `column`; the paper prints no number."""
    return [
        Cell(row.format(label), column.format(label), "", (training,), read)
        for label, training in lines.items()
    ]


def claim(
    row: str,
    column: str,
    published: str,
    read: Read,
    ours: Sequence[Training],
    theirs: Sequence[Training],
) -> Cell:
    """A cell for the `gap` between two methods, each by a training or by several."""
    return Cell(row, column, published, (*ours, *theirs), partial(gap, read))
