"""The page's tables: results, the numbers behind the curves, what differs between the runs, where they are from."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from experiments.base.json_values import flat, plain
from experiments.base.spread import Spread
from experiments.config import modules
from experiments.config.options import flags, parse
from experiments.runs.contents import Line, Summary
from experiments.runs.run_folder import RunFolder
from experiments.tables.frame import Row
from experiments.tables.grid import ABSENT, grid
from experiments.tables.report.markup import (
    Content,
    Element,
    element,
    folded,
    listing,
    table,
    words,
)
from fedpriv.engine.client_metrics import PREFIX, labelled
from fedpriv.models.score import is_fraction
from fedpriv.privacy import Certificate

NBSP = "\N{NO-BREAK SPACE}"
PLACES = ("output", "data_dir")  # where things are does not change what is found


class Result(NamedTuple):
    """One algorithm of one run.

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
    """Args: names: of the runs, on the page."""
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


def results_table(found: Sequence[Result], best: bool = False) -> list[Element | None]:
    """Args: best: whether also the best of the metric over the evaluations."""
    made = grid([_row(r) for r in found], metrics=measured(found), best=best)
    head = ["algorithm", *made.head[2:], "status", "MB down", "seconds", "compiled (s)", "rounds/s"]
    rows = [[r.label, *cells[2:], *_further(r)] for r, cells in zip(found, made.rows, strict=True)]
    said = [f"{letter}: {meaning}" for meaning, letter in made.letters.items()]
    explained = (
        "MB: 10^6 bytes in the whole run, per client of the population. Seconds: training and evaluation, all seeds "
        "together, without compilation."
    )
    drawn = table("The last state of each", head, rows)
    return [drawn, listing([*said, *made.notes, explained]), *_per_client(found)]


def _row(r: Result) -> Row:
    return Row({"run": r.run.path.name}, r.algorithm, r.summary, str(r.run.path))


def _further(r: Result) -> list[Content]:
    name, of = r.algorithm, r.summary
    return [
        words(r.status, "" if r.status.startswith("complete") else "warn"),
        number(of.downlink_mb_per_client.get(name)),
        number(sum(line.seconds for line in r.lines), 3) if r.lines else ABSENT,
        number(of.compile_seconds.get(name), 3),
        number(of.rounds_per_second.get(name), 3),
    ]


def _per_client(found: Sequence[Result]) -> list[Element]:
    """What was found of single clients, where that was measured."""
    each = {r.label: r.summary.per_client_not_private.get(r.algorithm, {}) for r in found}
    kinds = dict.fromkeys(tuple(spreads) for spreads in each.values() if spreads)
    names = list(dict.fromkeys(name for kind in kinds for name in labelled(kind)[1].values()))
    if not names:
        return []
    rows: list[list[Content]] = [
        [label, *(spread(spreads.get(name)) for name in names)] for label, spreads in each.items()
    ]
    explained = (
        "Single clients on their own training records, each counting equally. Worst decile: the mean over the tenth of "
        "the clients that fare worst. Not private: no epsilon covers publishing these numbers."
    )
    head = ["algorithm", *(name.removeprefix(PREFIX).replace("_", " ") for name in names)]
    drawn = table("Single clients, after the last round", head, rows)
    return [element("p", explained, class_="quiet"), drawn]


def measured(found: Sequence[Result]) -> list[str]:
    """The metrics of the runs, those that they show first."""
    shown = [r.summary.metric for r in found if r.summary.metric]
    others = [name for r in found for of in r.summary.final.values() for name in of]
    return list(dict.fromkeys([*shown, *others]))


def named(metric: str) -> str:
    """With its unit."""
    return metric + " (%)" * is_fraction(metric)


def spread(s: Spread | None, percent: bool = False) -> str:
    if s is None:
        return ABSENT
    if percent:
        return f"{100 * s.mean:.2f}" + ("" if s.std is None else f"{NBSP}±{NBSP}{100 * s.std:.2f}")
    return f"{s.mean:.4g}" + ("" if s.std is None else f"{NBSP}±{NBSP}{s.std:.2g}")


def number(x: float | None, digits: int = 4) -> str:
    return ABSENT if x is None else f"{x:.{digits}g}"


def shown(epsilon: float) -> str:
    return "∞" if epsilon == float("inf") else f"{epsilon:.4g}"


def _meant(c: Certificate) -> list[Content]:
    """An epsilon with its unit, adjacency and delta; its view is said in the column's head."""
    about = f"{c.unit}, {c.relation.replace('_', '-')},", f"delta {c.delta:.3g}, {c.basis}"
    lines = [[" ", element("br"), element("span", x, class_="quiet unbroken")] for x in about]
    return [shown(c.epsilon), *lines]


def numbers(found: Sequence[Result]) -> Element:
    """Every evaluation, folded: the curves for those who cannot see them."""
    lines = [(result.label, line) for result in found for line in result.lines]
    own = list(dict.fromkeys(name for _, line in lines for name in line.diagnostics_not_private))
    metrics = measured(found)
    head = ["algorithm", "round", *map(named, metrics), "MB up", "MB down"]
    head += ["certified epsilon, third party", *own]
    rows = [
        [
            label,
            str(line.round),
            *(spread(line.metrics.get(metric), is_fraction(metric)) for metric in metrics),
            number(line.uplink_mb_per_client),
            number(line.downlink_mb_per_client),
            _meant(line.privacy.certified),
            *(spread(line.diagnostics_not_private.get(name)) for name in own),
        ]
        for label, line in lines
    ]
    return folded("The numbers behind the curves", table("Every evaluation.", head, rows))


def settings(runs: Sequence[RunFolder], names: Sequence[str]) -> list[Element]:
    """The configs' fields, and what single algorithms got in place of a default."""
    fields = {}
    for run, name in zip(runs, names, strict=True):
        held = {k: v for k, v in flat(run.settings).items() if k not in PLACES}
        for algorithm, own in run.results.algorithm_settings.items():
            held |= {f"{k} ({algorithm})": v for k, v in flat(own).items()}
        fields[name] = {"config": run.config, **held}
    return compared(fields, "Settings")


def provenance(runs: Sequence[RunFolder], names: Sequence[str]) -> list[Element]:
    rows: list[list[Content]] = []
    about: dict[str, dict[str, Any]] = {}
    for run, name in zip(runs, names, strict=True):
        again = command(run)
        code = (
            element("code", again) if again else "no command of this version gives these settings"
        )
        rows.append([name, words(str(run.path)), words(run.results.status), code])
        if of := run.environment:
            device = {f"device {k}": v for k, v in of.device.items()}
            random = {"prng": of.prng} if of.prng else {}
            about[name] = {"code revision": of.git_revision, **device, **random, **of.versions}
    said = "Commands: rebuilt from config.json, for the launcher of this version; the folder (--output) is left out."
    parts = [element("p", said, class_="quiet")]
    parts.append(table("Runs", ["run", "folder", "status", "command"], rows))
    parts += compared(about, "Versions and device") if about else []
    if len(about) < len(runs):
        parts.append(element("p", "Versions and device are recorded when a run ends."))
    return parts


def command(run: RunFolder) -> str | None:
    """What the launcher of this version has to be given for the same settings; None where it takes no such command.

    Fields at the config's default are left out, and so is the folder; fields that the run's version did not have
    yet are at their default.
    """
    wanted = {**run.settings, "output": None}
    try:
        module = modules.load(run.config)
        given = flags(wanted, plain(module.config))
        made = parse(module, run.config, list(given))
    except (ValueError, TypeError, KeyError, AttributeError, SystemExit):
        return None
    settled, missing = flat(plain(replace(made, output=None))), object()
    if any(settled.get(field, missing) != value for field, value in flat(wanted).items()):
        return None
    return shlex.join(["python", "-m", "experiments.run", run.config, *given])


def compared(of_runs: Mapping[str, Mapping[str, Any]], what: str) -> list[Element]:
    """What differs as a table, what is common folded."""
    every = dict.fromkeys(name for fields in of_runs.values() for name in fields)
    said = {
        run: {name: _said(fields[name]) if name in fields else None for name in every}
        for run, fields in of_runs.items()
    }
    names = [name for name in every if len({fields[name] for fields in said.values()}) > 1]
    first = next(iter(said.values()))
    common = [[name, words(str(text))] for name, text in first.items() if name not in names]
    parts: list[Element] = []
    if names:
        parts.append(element("p", f"{ABSENT}: a run has no such field.", class_="quiet"))
        parts.append(_differences(said, names, f"{what} in which the runs differ"))
    elif len(of_runs) > 1:
        parts.append(element("p", f"{what}: the runs do not differ."))
    if common:
        heading = f"{what} common to all runs ({len(common)})" if len(of_runs) > 1 else what
        parts.append(folded(heading, table(heading, ["field", "value"], common)))
    return parts


def _differences(
    said: Mapping[str, Mapping[str, str | None]], names: Sequence[str], caption: str
) -> Element:
    """The longer side goes down the page."""
    if len(names) > len(said):
        rows = [[name, *(words(of[name] or ABSENT) for of in said.values())] for name in names]
        return table(caption, ["field", *said], rows)
    rows = [[run, *(words(of[name] or ABSENT) for name in names)] for run, of in said.items()]
    return table(caption, ["run", *names], rows)


def _said(value: Any) -> str:
    """Lists as on the command line."""
    if isinstance(value, list):
        return " ".join(map(_said, value)) or "(empty)"
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)
