"""The page's tables: results, the numbers behind the curves, what differs between the runs, where they are from."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fedpriv.core.json_values import flat, plain
from fedpriv.engine.client_metric_names import PER_CLIENT, by_kind
from fedpriv.engine.metric_words import with_unit
from fedpriv.experiments.base.formats import ABSENT, mean_and_std, number
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.options import flags, parse
from fedpriv.experiments.runs.contents import Line, Summary
from fedpriv.experiments.runs.measured import heading, together
from fedpriv.experiments.runs.run_folder import RunFolder
from fedpriv.experiments.tables.frame import Row, row
from fedpriv.experiments.tables.grid import grid
from fedpriv.experiments.tables.thinning import MOST, drawn
from fedpriv.privacy import Certificate
from fedpriv.privacy.epsilon_words import hyphenated

FEWEST = 50  # rows of an algorithm, however many there are
PLACES = ("output", "data_dir")  # where things are does not change what is found


class Cell(NamedTuple):
    """A cell of a table of the report.

    Attributes:
      style: a class of the page's style sheet, "free" where text may be broken without a blank.
      below: lines in small print.
    """

    text: str
    style: str = ""
    below: Sequence[str] = ()


class Table(NamedTuple):
    """A table of the report, whose rows are headed by their first cell."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]


class Compared(NamedTuple):
    """In the report: what differs between runs and what is common to them, None where there is nothing.

    Attributes:
      what: is compared.
      several: whether there are several runs.
    """

    what: str
    several: bool
    differing: Table | None
    common: Table | None


class Result(NamedTuple):
    """In the report's tables: one algorithm of one run.

    Attributes:
      label: the algorithm, with its run where there are several.
      lines: its evaluations.
    """

    run: RunFolder
    algorithm: str
    label: str
    lines: Sequence[Line]

    @property
    def summary(self) -> Summary:
        return self.run.results

    @property
    def status(self) -> str:
        """How its own training ended, which need not be how the run did."""
        ended = self.run.summary
        trained = self.algorithm in self.summary.rounds
        if ended is None:
            return self.summary.status if trained else "not evaluated yet"
        said = ended.diverged.get(self.algorithm)
        if said is None and ended.status.startswith(start := f"diverged: {self.algorithm}: "):
            said = ended.status.removeprefix(start)
        if said is not None:
            why = f"diverged: {said.partition(';')[0]}"  # without the advice
            return why if trained else f"{why}, before its first evaluation"
        status = ended.status.partition(":")[0]
        if not trained:
            return f"not evaluated ({status})"
        if self.algorithm in ended.reused_from:
            return f"complete (the same training as in {ended.reused_from[self.algorithm]})"
        if self.algorithm in ended.stopped:
            return f"complete ({ended.stopped[self.algorithm]})"
        all_rounds = ended.rounds_planned.get(self.algorithm) == ended.rounds[self.algorithm]
        return "complete" if all_rounds else status


def results(runs: Sequence[RunFolder], names: Sequence[str]) -> list[Result]:
    """The report's results; `names` are of the runs, on the page."""
    return [
        Result(
            run,
            algorithm,
            run.name_of(algorithm) + (f" · {name}" if len(runs) > 1 else ""),
            run.lines.get(algorithm, ()),
        )
        for run, name in zip(runs, names, strict=True)
        for algorithm in run.algorithms
    ]


def last_states(found: Sequence[Result], best: bool = False) -> tuple[Table, list[str]]:
    """A table of the report: each algorithm after its last evaluation, and what one has to know to read it.

    Args:
      best: whether also the best of the metric over the evaluations.
    """
    made = grid([_row(r) for r in found], best=best, every=True)
    head = ["algorithm", *made.head[2:], "status", "MB down", "seconds", "compiled (s)", "rounds/s"]
    rows = [[r.label, *cells[2:], *_further(r)] for r, cells in zip(found, made.rows, strict=True)]
    explained = (
        "MB: 10^6 bytes in the whole run, per client of the population. Seconds: training and evaluation, all seeds "
        "together, without compilation."
    )
    return Table("The last state of each", head, rows), [*made.below, explained]


def _row(r: Result) -> Row:
    return row(r.run, {"run": r.run.path.name}, r.algorithm)


def _further(r: Result) -> list[str | Cell]:
    name, of = r.algorithm, r.summary
    return [
        Cell(r.status, "free" if r.status.startswith("complete") else "free warn"),
        number(of.downlink_mb_per_client.get(name)),
        number(sum(line.seconds for line in r.lines), 3) if r.lines else ABSENT,
        number(of.compile_seconds.get(name), 3),
        number(of.rounds_per_second.get(name), 3),
    ]


def single_clients(found: Sequence[Result]) -> Table | None:
    """A table of the report: what was measured on single clients, where anything was."""
    each = {r.label: r.summary.per_client_not_private.get(r.algorithm, {}) for r in found}
    every = dict.fromkeys(name for spreads in each.values() for name in spreads)
    names = [name for of in by_kind(every).values() for name in of.values()]
    if not names:
        return None
    rows = [
        [label, *(mean_and_std(of.get(name), name) for name in names)] for label, of in each.items()
    ]
    public = together(r.summary.public for r in found)
    head = ["algorithm"]
    head += [heading(n, public).replace(f"{with_unit(PER_CLIENT)} ", "", 1) for n in names]
    return Table("Single clients, after the last round", head, rows)


def measured(found: Sequence[Result]) -> list[str]:
    """In the report: the metrics that were chosen; else those of the runs' scores, those that they show first."""
    if chosen := [name for r in found for name in r.run.shown]:
        return list(dict.fromkeys(chosen))
    shown = [r.summary.metric for r in found if r.summary.metric]
    others = [name for r in found for of in r.summary.final for name in r.summary.last(of)]
    return list(dict.fromkeys([*shown, *others]))


def further(found: Sequence[Result]) -> list[str]:
    """In the report: what else was recorded, diagnostics last."""
    lines = [line for r in found for line in r.lines]
    every = dict.fromkeys(name for line in lines for name in line.of_score)
    every |= dict.fromkeys(name for line in lines for name in line.diagnostics_not_private)
    shown = measured(found)
    return [name for name in every if name not in shown]


def epsilon(value: float) -> str:
    return "∞" if value == float("inf") else f"{value:.4g}"


def with_meaning(c: Certificate) -> Cell:
    """An epsilon with its unit, adjacency and delta; its view is said in the column's head."""
    about = f"{c.unit}, {hyphenated(c.relation)},", f"delta {c.delta:.3g}, {c.basis}"
    return Cell(epsilon(c.epsilon), below=about)


def evaluations(found: Sequence[Result]) -> Table:
    """A table of the report: every evaluation, or those that are drawn of the first metric."""
    metrics, own = measured(found), further(found)
    most = max(MOST // max(1, sum(bool(result.lines) for result in found)), FEWEST)
    every = [(result.label, line) for result in found for line in result.lines]
    lines = [(result.label, line) for result in found for line in _drawn(result, metrics, most)]
    public = together(r.summary.public for r in found)
    shown = [heading(metric, public) for metric in metrics]
    head = ["algorithm", "round", *shown, "MB up", "MB down"]
    head += ["certified epsilon, third party", *(heading(name, public) for name in own)]
    rows: list[list[str | Cell]] = [
        [
            label,
            str(line.round),
            *(mean_and_std(line.metric(metric), metric) for metric in metrics),
            number(line.uplink_mb_per_client),
            number(line.downlink_mb_per_client),
            with_meaning(line.privacy.certified),
            *(mean_and_std(line.metric(name), name) for name in own),
        ]
        for label, line in lines
    ]
    caption = "Every evaluation."
    if len(lines) < len(every):
        caption = (
            f"{len(lines):,} of {len(every):,} evaluations: the first, the last, and the extremes of {metrics[0]} in "
            "between; metrics.jsonl has all."
        )
    return Table(caption, head, rows)


def _drawn(result: Result, metrics: Sequence[str], most: int) -> list[Line]:
    each = [line.metric(metric) for line in result.lines for metric in metrics[:1]]
    means = np.array([math.nan if spread is None else spread.mean for spread in each], float)
    return [result.lines[at] for at in drawn(means, most)]


def settings(runs: Sequence[RunFolder], names: Sequence[str]) -> Compared:
    """A table of the report: the configs' fields, and what single algorithms got in place of a default."""
    fields = {}
    for run, name in zip(runs, names, strict=True):
        held = {k: v for k, v in flat(run.settings).items() if k not in PLACES}
        for algorithm, own in run.results.algorithm_settings.items():
            held |= {f"{k} ({algorithm})": v for k, v in flat(own).items()}
        fields[name] = {"config": run.config, **held}
    return compared(fields, "Settings")


def versions(runs: Sequence[RunFolder], names: Sequence[str]) -> Compared | None:
    """A table of the report: versions of code, packages and device; None where no run has recorded them yet."""
    fields: dict[str, dict[str, Any]] = {}
    for run, name in zip(runs, names, strict=True):
        if of := run.environment:
            device = {f"device {k}": v for k, v in of.device.items()}
            random = {"prng": of.prng} if of.prng else {}
            fields[name] = {"code revision": of.git_revision, **device, **random, **of.versions}
    return compared(fields, "Versions and device") if fields else None


def commands(runs: Sequence[RunFolder], names: Sequence[str]) -> Table:
    """The report's table of the commands that train its runs again."""
    rows: list[list[str | Cell]] = []
    for run, name in zip(runs, names, strict=True):
        again = command(run)
        code = Cell(again, "code") if again else "no command of this version gives these settings"
        folder, status = Cell(str(run.path), "free"), Cell(run.results.status, "free")
        rows.append([name, folder, status, code])
    return Table("Runs", ["run", "folder", "status", "command"], rows)


def command(run: RunFolder) -> str | None:
    """In the report: what the launcher has to be given for the same settings; None where it takes no such command.

    Of a config that ships, fields at its default are left out; fields that the run's version did not have yet are at
    their default. Any other config may be anybody's code, which no page runs: each field that was recorded is given.
    """
    wanted = {**run.settings, "output": None}
    if run.config not in modules.names():
        recorded = {name: value for name, value in flat(run.settings).items() if name != "output"}
        named = all(re.fullmatch(r"[A-Za-z]\w*(\.[A-Za-z]\w*)*", name) for name in recorded)
        given = flags(recorded, {})
        return _shell(run.config, given) if named and run.config.endswith(".py") else None
    try:
        module = modules.load(run.config)
        given = flags(wanted, plain(module.settings))
        with contextlib.redirect_stdout(io.StringIO()):  # a value may be --help
            made = parse(module, run.config, list(given))
    except (ValueError, TypeError, KeyError, AttributeError, SystemExit):
        return None
    settled, missing = flat(plain(replace(made, output=None))), object()
    if any(settled.get(field, missing) != value for field, value in flat(wanted).items()):
        return None
    return _shell(run.config, given)


def _shell(config: str, given: Sequence[str]) -> str:
    return shlex.join(["fedpriv", "run", config, *given])


def compared(of_runs: Mapping[str, Mapping[str, Any]], what: str) -> Compared:
    """In the report: fields of runs; the longer side goes down the page."""
    every = dict.fromkeys(name for fields in of_runs.values() for name in fields)
    said = {
        name: [_said(fields[name]) if name in fields else ABSENT for fields in of_runs.values()]
        for name in every
    }
    differing = [[name, *of] for name, of in said.items() if len({*of}) > 1]
    common = [[name, of[0]] for name, of in said.items() if len({*of}) == 1]
    lines = [["field", *of_runs], *differing]
    if len(differing) <= len(of_runs):
        lines = [["run", *(name for name, *_ in differing)]]
        lines += [[run, *(of[i] for _, *of in differing)] for i, run in enumerate(of_runs)]
    several = len(of_runs) > 1
    heading = f"{what} common to all runs ({len(common)})" if several else what
    return Compared(
        what,
        several,
        _words(f"{what} in which the runs differ", lines) if differing else None,
        _words(heading, [["field", "value"], *common]) if common else None,
    )


def _words(caption: str, lines: Sequence[Sequence[str]]) -> Table:
    """Of texts of any length."""
    head, *rows = lines
    free: list[list[str | Cell]] = [
        [first, *(Cell(text, "free") for text in of)] for first, *of in rows
    ]
    return Table(caption, head, free)


def _said(value: Any) -> str:
    """Lists as on the command line."""
    if isinstance(value, list):
        return " ".join(map(_said, value)) or "(empty)"
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)
