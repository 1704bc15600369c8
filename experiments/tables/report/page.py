"""The page of `experiments.report`: everything that runs have recorded, as one HTML file."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from string import Template

from experiments.base.files import write_text
from experiments.runs.run_folder import RunFolder, names
from experiments.tables.report import charts, tables
from experiments.tables.report.ledger import ledger
from experiments.tables.report.markup import Element, clean, element, listing, written
from experiments.tables.swept_budget import over_budget


def write_page(
    path: Path, runs: Sequence[RunFolder], remarks: Sequence[str] = (), best: bool = False
) -> None:
    """Raises ValueError: the file cannot be written."""
    try:
        write_text(path, page(runs, remarks, best))
    except OSError as error:
        raise ValueError(
            f"output: cannot write {path} ({error.strerror}); give a file in a folder that can be written"
        ) from None


def page(runs: Sequence[RunFolder], remarks: Sequence[str] = (), best: bool = False) -> str:
    """HTML of everything that `runs` have recorded.

    Args:
      remarks: on what could not be read.
      best: whether the table has the best of the metric over the evaluations, too.
    """
    named = names(runs)
    found = tables.results(runs, named)
    drawn = charts.series(found)
    ends = charts.series(_ends(runs), "b")
    configs = ", ".join(dict.fromkeys(Path(run.config).stem for run in runs))
    template = Template((Path(__file__).parent / "page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=html.escape(clean(f"fedpriv: {configs}")),
        hiding=charts.hiding([*drawn, *ends]),
        summary=written(_summary(runs, found, configs), _remarks(runs, named, remarks)),
        curves=written(*_curves(drawn, ends)),
        results=written(*tables.results_table(found, best), tables.numbers(found)),
        ledger=written(*ledger(found)),
        settings=written(*tables.settings(runs, named)),
        provenance=written(*tables.provenance(runs, named)),
    )


def _ends(runs: Sequence[RunFolder]) -> list[tables.Result]:
    """Of runs that differ in their budget alone, the ends."""
    merged = over_budget(runs)
    found = tables.results(merged, names(merged))
    return [result._replace(label=f"{result.label}, by budget") for result in found]


def _summary(runs: Sequence[RunFolder], found: Sequence[tables.Result], configs: str) -> Element:
    """What was run, in one sentence or two."""
    algorithms = list(dict.fromkeys(r.run.name_of(r.algorithm) for r in found))
    finals = [s for run in runs for of in run.results.final.values() for s in of.values()]
    seeds = _range([len(final.per_seed) for final in finals], "seed")
    rounds = _range([done for run in runs for done in run.results.rounds.values()], "round")
    status = Counter(run.results.status.split(":")[0] for run in runs)
    ends = ", ".join(s if len(runs) == 1 else f"{n} {s}" for s, n in status.items())
    said = f"{_range([len(runs)], 'run')} of {configs}; {_range([len(algorithms)], 'algorithm')}: "
    return element("p", said + f"{', '.join(algorithms)}; {seeds}, {rounds}. Status: {ends}.")


def _range(values: Sequence[int], what: str) -> str:
    low, high = min(values, default=0), max(values, default=0)
    number = str(low) if low == high else f"{low} to {high}"
    return f"{number} {what}" + ("" if low == high == 1 else "s")


def _remarks(
    runs: Sequence[RunFolder], named: Sequence[str], remarks: Sequence[str]
) -> Element | None:
    """What a reader has to know before believing the rest."""
    said = list(remarks)
    for run, name in zip(runs, named, strict=True):
        if run.results.status != "complete":
            said.append(f"{name}: {run.results.status}")
        for again in run.begun.resumed:
            elsewhere = f", elsewhere: {'; '.join(again.differs)}" if again.differs else ""
            said.append(f"{name}: went on after a stop ({again.time}){elsewhere}")
        said += [f"{name}: {remark}" for remark in run.remarks]
    return listing(said, "warn")


def _curves(drawn: Sequence[charts.Series], ends: Sequence[charts.Series]) -> list[Element]:
    if not drawn:
        return [element("p", "Nothing was evaluated yet.")]
    alone = [s.result.label for s in drawn if s.result.lines[0].seeds == 1]
    bands = len(alone) < len(drawn)
    said = "Lines: mean over the seeds."
    if bands:
        said += " Bands: mean ± one standard deviation (n - 1) over the seeds."
    if alone:
        said += f" No band, as there is a single seed: {'; '.join(alone)}."
    return [
        element("p", said),
        charts.legend([*drawn, *ends], bands),
        *charts.pictures(drawn, ends),
    ]
