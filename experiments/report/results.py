"""What each algorithm of each run has come to: from summary.json, or from what is recorded so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.record import spread as spread_of
from experiments.report.folders import NO_SUMMARY, RunFolder
from experiments.report.records import Evaluation, Report, Spread, Summary
from experiments.show import NAMES
from fedpriv.privacy import Certificate


class Result(NamedTuple):
    """One algorithm of one run; what is not known is None.

    Attributes:
      run: where it is from.
      algorithm: its name in the config.
      status: in words.
      rounds: after which it was last evaluated.
      planned: rounds that it was to train for.
      final, best, loss: on the test set; `best` is over the evaluations.
      uplink, downlink: megabytes per client of the population.
      seconds: of training and evaluation, all seeds together, compilation not included.
      compile_seconds: what tracing and compiling took.
      report: epsilons.
      evaluations: as recorded.
    """

    run: RunFolder
    algorithm: str
    status: str
    rounds: int = 0
    planned: int | None = None
    final: Spread | None = None
    best: Spread | None = None
    loss: Spread | None = None
    uplink: float | None = None
    downlink: float | None = None
    seconds: float | None = None
    rounds_per_second: float | None = None
    compile_seconds: float | None = None
    report: Report | None = None
    evaluations: Sequence[Evaluation] = ()

    @property
    def label(self) -> str:
        return NAMES.get(self.algorithm, self.algorithm)

    @property
    def seeds(self) -> int:
        return len(self.final.per_seed) if self.final else 0

    @property
    def third_party(self) -> Certificate | None:
        return self.report.certified.get("third_party") if self.report else None


def results(runs: Sequence[RunFolder]) -> list[Result]:
    return [_result(run, name) for run in runs for name in run.algorithms]


def named(result: Result, several: bool) -> str:
    """The algorithm, with its run where there are several."""
    return f"{result.label} · {result.run.name}" if several else result.label


def no_epsilon(certificate: Certificate) -> str:
    """Why an epsilon is infinite."""
    return "; ".join(certificate.assumptions) or "no finite bound"


def _result(run: RunFolder, name: str) -> Result:
    lines = run.evaluations.get(name, [])
    if run.summary and name in run.summary.rounds:
        result = _ended(run, run.summary, name)
    elif lines:
        result = _so_far(run, name, lines)
    else:
        return Result(run, name, _untrained(run, name))
    if lines:
        seconds = sum(line.seconds for line in lines)
        result = result._replace(loss=lines[-1].loss, seconds=seconds, evaluations=tuple(lines))
    return result


def _ended(run: RunFolder, summary: Summary, name: str) -> Result:
    return Result(
        run,
        name,
        _status(summary, name),
        rounds=summary.rounds[name],
        planned=summary.planned[name],
        final=summary.final[name],
        best=summary.best[name],
        uplink=summary.uplink[name],
        downlink=summary.downlink[name],
        rounds_per_second=summary.rounds_per_second[name],
        compile_seconds=summary.compile_seconds[name],
        report=summary.privacy[name],
    )


def _so_far(run: RunFolder, name: str, lines: Sequence[Evaluation]) -> Result:
    """From metrics.jsonl, whose lines have the certificate for a third party alone."""
    last, accuracy = lines[-1], np.array([line.accuracy.per_seed for line in lines])
    with np.errstate(invalid="ignore"):  # what is not finite has no spread
        best = spread_of(accuracy.max(0))
    seconds = sum(line.seconds for line in lines)
    status = _word(run.summary) if run.summary else NO_SUMMARY
    return Result(
        run,
        name,
        status,
        rounds=last.round,
        final=last.accuracy,
        best=Spread(best["mean"], best["std"], tuple(best["per_seed"])),
        uplink=last.uplink,
        downlink=last.downlink,
        rounds_per_second=last.round * accuracy.shape[1] / seconds if seconds > 0 else math.nan,
        report=Report(last.round, last.claimed, {last.certified.view: last.certified}),
    )


def _status(summary: Summary, name: str) -> str:
    if why := _divergence(summary, name):
        return why
    if name in summary.reused_from:
        return f"complete (the same training as in {summary.reused_from[name]})"
    ended = summary.rounds[name] == summary.planned[name]
    return "complete" if ended or summary.status == "complete" else _word(summary)


def _divergence(summary: Summary, name: str) -> str | None:
    """Where and why, without the advice; None where it did not diverge."""
    said = summary.diverged.get(name)
    if said is None and summary.status.startswith(f"diverged: {name}: "):
        said = summary.status.removeprefix(f"diverged: {name}: ")
    return None if said is None else f"diverged: {said.partition(';')[0]}"


def _word(summary: Summary) -> str:
    return summary.status.partition(":")[0]


def _untrained(run: RunFolder, name: str) -> str:
    if run.summary is None:
        return "not evaluated yet"
    if why := _divergence(run.summary, name):
        return f"{why}, before its first evaluation"
    return f"not evaluated ({_word(run.summary)})"
