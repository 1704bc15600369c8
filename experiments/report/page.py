"""The page as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from experiments.plain import flat
from experiments.report.chart import figure
from experiments.report.command import command
from experiments.report.curves import Series, charts
from experiments.report.folders import RunFolder
from experiments.report.ledger import ledger
from experiments.report.looks import legend, looks
from experiments.report.markup import Content, Element, element, listing, table, words, written
from experiments.report.results import Result, results
from experiments.report.style import style
from experiments.report.tables import compared, numbers, results_table

# A page that may load nothing and run nothing, whatever a run's files make it say.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
PLACES = ("output", "data_dir")  # where things are does not change what is found
SECTIONS = {
    "curves": "Curves",
    "results": "Results",
    "ledger": "Privacy ledger",
    "settings": "Settings",
    "provenance": "Provenance",
}


def page(runs: Sequence[RunFolder], remarks: Sequence[str] = ()) -> str:
    """HTML of everything that `runs` have recorded; `remarks` are on what could not be read.

    Args:
      runs: at least one.
    """
    found, several = results(runs), len(runs) > 1
    drawn = [result for result in found if result.evaluations]
    title = f"fedpriv: {', '.join(dict.fromkeys(Path(run.config).stem for run in runs))}"
    series = list(zip(drawn, looks(drawn), strict=True))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", style([look for _, look in series])),
    )
    links = [element("a", name, href=f"#{key}") for key, name in SECTIONS.items()]
    body = element(
        "body",
        element("header", element("h1", title), _summary(runs, found), _remarks(runs, remarks)),
        element("nav", listing(links), aria_label="Sections"),
        element(
            "main",
            _section("curves", _curves(series)),
            _section("results", [*results_table(found, several), numbers(drawn, several)]),
            _section("ledger", ledger(found, several)),
            _section("settings", _settings(runs)),
            _section("provenance", _provenance(runs)),
        ),
    )
    return written(element("html", head, body, lang="en"))


def _section(key: str, content: Sequence[Element]) -> Element:
    heading = element("h2", SECTIONS[key], id=f"{key}-heading")
    return element("section", heading, *content, id=key, aria_labelledby=f"{key}-heading")


def _summary(runs: Sequence[RunFolder], found: Sequence[Result]) -> Element:
    """What was run, in one sentence or two."""
    algorithms = list(dict.fromkeys(result.label for result in found))
    seeds = sorted({result.seeds for result in found if result.seeds})
    rounds = sorted({result.rounds for result in found if result.rounds})
    status = Counter(run.status.split(":")[0] for run in runs)
    configs = ", ".join(dict.fromkeys(Path(run.config).stem for run in runs))
    return element(
        "p",
        f"{_count(len(runs), 'run')} of {configs}; {_count(len(algorithms), 'algorithm')}: {', '.join(algorithms)}; ",
        f"{_range(seeds, 'seed')}, {_range(rounds, 'round')}. ",
        "Status: " + ", ".join(s if len(runs) == 1 else f"{n} {s}" for s, n in status.items()),
        ".",
    )


def _count(many: int, what: str) -> str:
    return f"{many} {what}" + ("" if many == 1 else "s")


def _range(values: Sequence[int], what: str) -> str:
    if len(values) < 2:
        return _count(values[0] if values else 0, what)
    return f"{values[0]} to {values[-1]} {what}s"


def _remarks(runs: Sequence[RunFolder], remarks: Sequence[str]) -> Element | None:
    """What a reader has to know before believing the rest."""
    said = list(remarks)
    for run in runs:
        if run.status != "complete":
            said.append(f"{run.name}: {run.status}")
        said += [f"{run.name}: {remark}" for remark in run.remarks]
    return element("ul", [element("li", s) for s in said], class_="warn") if said else None


def _curves(series: Series) -> list[Element]:
    if not series:
        return [element("p", "Nothing was evaluated yet.")]
    alone = [look.label for result, look in series if result.seeds == 1]
    bands = len(alone) < len(series)
    said = "Lines: mean over the seeds."
    if bands:
        said += " Bands: mean ± one standard deviation (n - 1) over the seeds."
    if alone:
        said += f" No band, as there is a single seed: {'; '.join(alone)}."
    parts = [element("p", said), legend([look for _, look in series], bands)]
    for number, row in enumerate(charts(series)):
        figures = [figure(chart, f"chart-{number}-{i}") for i, chart in enumerate(row)]
        parts.append(element("div", figures, class_="row"))
    return parts


def _settings(runs: Sequence[RunFolder]) -> list[Element]:
    of_runs = {run.name: {"config": run.config, **_fields(run)} for run in runs}
    return compared(of_runs, "Settings")


def _fields(run: RunFolder) -> dict[str, object]:
    """The config's fields, and what single algorithms got in place of a default."""
    fields = {k: v for k, v in flat(run.settings).items() if k not in PLACES}
    own = run.summary.algorithm_settings if run.summary else {}
    return fields | {f"{k} ({name})": v for name, of in own.items() for k, v in flat(of).items()}


def _provenance(runs: Sequence[RunFolder]) -> list[Element]:
    rows: list[list[Content]] = []
    for run in runs:
        again = command(run)
        shown = (
            element("code", again) if again else "no command of this version gives these settings"
        )
        rows.append([run.name, words(str(run.path)), words(run.status), shown])
    said = "Commands: rebuilt from config.json, for the launcher of this version; the folder (--output) is left out."
    parts = [element("p", said, class_="quiet")]
    parts.append(table("Runs", ["run", "folder", "status", "command"], rows))
    ended = {run.name: flat(run.provenance) for run in runs if run.provenance}
    if ended:
        parts += compared(ended, "Versions and device")
    if len(ended) < len(runs):
        parts.append(element("p", "Versions and device are recorded when a run ends."))
    return parts
