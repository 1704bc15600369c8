"""Which metrics are shown of what runs have recorded: any can be chosen after training."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedpriv.core.json_values import plain
from fedpriv.experiments.base.files import write_text
from fedpriv.experiments.base.spread import Spread
from fedpriv.experiments.base.writer import held
from fedpriv.experiments.config.public import allowed, check
from fedpriv.experiments.runs.contents import Line, Summary
from fedpriv.experiments.runs.run_folder import CONFIG, SUMMARY, RunFolder, read
from fedpriv.experiments.runs.summary_so_far import so_far
from fedpriv.models.score import best, meant


def recorded(runs: Iterable[RunFolder]) -> list[str]:
    """Names of all metrics that can be shown of these runs, those of the score first."""
    of_score, others = dict[str, None](), dict[str, None]()
    for run in runs:
        for name, lines in run.lines.items():
            for line in lines:
                of_score |= dict.fromkeys(line.of_score)
                others |= dict.fromkeys(line.diagnostics_not_private)
            others |= dict.fromkeys(run.summary.last(name) if run.summary else ())
    return [*of_score, *sorted(others.keys() - of_score.keys())]


def with_metric(runs: Sequence[RunFolder], metric: str | Sequence[str] | None) -> list[RunFolder]:
    """The runs with one or several metrics to show; None: each one's own.

    Raises:
      ValueError: none is named, or one that no run has recorded; says which there are.
    """
    if not (names := named(metric)):
        return list(runs)
    check_recorded(names, recorded(runs))
    return [replace(run, shown=names) for run in runs]


def named(metric: str | Sequence[str] | None) -> tuple[str, ...]:
    """The names of chosen metrics, each once; () of None.

    Raises:
      ValueError: it is no name, or none is given.
    """
    if metric is None:
        return ()
    names = [metric] if isinstance(metric, str) else metric
    if not isinstance(names, Sequence) or not names or not all(isinstance(n, str) for n in names):
        raise ValueError(f"metric: {metric!r}; give the name of a metric, or several names")
    return tuple(dict.fromkeys(names))


def check_recorded(names: Sequence[str], known: Sequence[str]) -> None:
    """Raises ValueError: a metric that is to be shown is none of those there are."""
    for name in names:
        if name not in known:
            said = f"metric: there is no {name!r}; there are {', '.join(known)}"
            raise ValueError(said + meant(name, known))


def scores(run: RunFolder, algorithm: str) -> dict[str, dict[str, Spread | None]] | None:
    """ "final" and "best" of other metrics that were chosen; None where none was. None of what was not recorded."""
    if not run.shown:
        return None
    return {
        "final": {name: _final(run, algorithm, name) for name in run.shown},
        "best": {name: _best(run, algorithm, name) for name in run.shown},
    }


def _final(run: RunFolder, algorithm: str, metric: str) -> Spread | None:
    lines, summary = run.lines.get(algorithm), run.summary
    if lines and lines[-1].round == run.results.rounds.get(algorithm):
        return lines[-1].metric(metric)
    if summary is None:
        return None
    own = (summary.last(algorithm), summary.per_client_not_private.get(algorithm, {}))
    return next((of[metric] for of in own if metric in of), None)


def _best(run: RunFolder, algorithm: str, metric: str) -> Spread | None:
    """None of a private metric, unless the run was to choose by it."""
    if metric not in run.results.public and metric not in allowed(run.settings):
        return None
    if lines := run.lines.get(algorithm):
        each = [spread.per_seed for line in lines if (spread := line.metric(metric))]
        return Spread.of(best(np.array(each), metric, run.begun.higher)) if each else None
    return run.summary.bests(algorithm).get(metric) if run.summary else None


def show(folder: Path, metric: str | None) -> Summary:
    """Makes a run that has ended show another metric: in its summary.json, and in its config.json.

    Raises:
      ValueError: it is not recorded of every algorithm, the settings choose by another one, or the folder cannot be
        read, or written to.
    """
    run = read(folder)
    if run.summary is None or not run.summary.rounds.keys() <= run.lines.keys():
        raise ValueError(f"metric: {folder} lacks what was recorded; leave it out")
    known = _of_all(run.lines)
    check_recorded([] if metric is None else [metric], known)
    begun = replace(run.begun, settings=run.begun.settings | {"metric": metric})
    check(begun.settings, run.summary.public)
    found = so_far(begun, run.lines, run.summary.status)
    made = replace(
        run.summary,
        settings=run.summary.settings | {"metric": metric},
        metric=found.metric,
        best=found.best,
        final=found.final,
        best_not_private=found.best_not_private,
        final_not_private=found.final_not_private,
        best_note=found.best_note,
    )
    about = json.loads((folder / CONFIG).read_bytes())
    about["settings"]["metric"] = metric
    with held(folder):
        for name, content in ((CONFIG, about), (SUMMARY, plain(made))):
            try:
                write_text(folder / name, json.dumps(content, indent=2) + "\n")
            except OSError as error:
                raise ValueError(
                    f"metric: cannot write {folder / name} ({error.strerror}); leave it out"
                ) from None
    return made


def _of_all(lines: Mapping[str, Sequence[Line]]) -> list[str]:
    """Names of what every algorithm has recorded last, in the order of the first one."""
    each = [[*of[-1].of_score, *of[-1].diagnostics_not_private] for of in lines.values() if of]
    return [name for name in each[0] if all(name in names for names in each)] if each else []
