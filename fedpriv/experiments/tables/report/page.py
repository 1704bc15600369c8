"""`experiments.report`, and its page: everything that runs have recorded, as one HTML file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpriv.core.complaints import require
from fedpriv.experiments.base.files import write_text
from fedpriv.experiments.base.formats import of_which
from fedpriv.experiments.runs.other_metric import with_metric
from fedpriv.experiments.runs.run_folder import RunFolder, runs_of
from fedpriv.experiments.runs.run_names import names, with_names
from fedpriv.experiments.tables.report import charts, clients, groups, tables
from fedpriv.experiments.tables.report.audits import Errors, read_audits, undrawn
from fedpriv.experiments.tables.report.ledger import Account, ledger
from fedpriv.experiments.tables.swept_privacy import ends_by_epsilon

if TYPE_CHECKING:
    from jinja2 import Template


def report(
    runs: Any,
    path: str | Path | None = None,
    *,
    metric: str | Sequence[str] | None = None,
    best: bool = False,
    names: Mapping[str, str] | None = None,
    audits: Sequence[str | Path] = (),
) -> Path:
    """Writes one HTML page, which needs no network, with everything that the runs recorded.

    Args:
      runs: as for `table`; they may still be running.
      path: file of the page, which is replaced if it exists; by default report.html in the folder of the run or sweep,
        for several in the current folder.
      metric: metrics of the table and of the first charts, as for `table`; by default those of the scores.
      best: whether the table also shows the best of each metric over the evaluations, which is chosen on the test set.
      names: display names of algorithms.
      audits: output folders of `experiments.audit` with many runs, whose counts are drawn under the certified curves
        of an attacker's errors.

    Returns:
      The page's file.

    Raises:
      ValueError: a folder without a run or an audit, or a file that cannot be written.
    """
    file = _folder_of(runs) / "report.html" if path is None else Path(path)
    require(file.suffix in (".html", ".htm"), "path", str(path), "give a file that ends in .html")
    found, remarks = runs_of(runs)
    shown = with_metric(with_names(found, names), metric)
    write_page(file, shown, remarks, best, read_audits(audits))
    return file


def _folder_of(runs: Any) -> Path:
    """That of a run or a sweep, the current one for several."""
    if isinstance(runs, RunFolder):
        return runs.path
    return Path(runs if isinstance(runs, str | Path) else getattr(runs, "folder", ""))


def write_page(
    path: Path,
    runs: Sequence[RunFolder],
    remarks: Sequence[str] = (),
    best: bool = False,
    audits: Sequence[Errors] = (),
) -> None:
    """Writes the report; raises ValueError: the file cannot be written."""
    try:
        write_text(path, page(runs, remarks, best, audits))
    except OSError as error:
        raise ValueError(
            f"output: cannot write {path} ({error.strerror}); give a file in a folder that can be written"
        ) from None


def page(
    runs: Sequence[RunFolder],
    remarks: Sequence[str] = (),
    best: bool = False,
    audits: Sequence[Errors] = (),
) -> str:
    """The report's HTML, of everything that `runs` have recorded; what they say is escaped.

    Args:
      remarks: on what could not be read.
      best: whether the table has the best of the metric over the evaluations, too.
      audits: what they counted of an attacker's errors.
    """
    named = names(runs)
    results = tables.results(runs, named)
    series = charts.series(results)
    ends = charts.series(_ends(runs), "b")
    one_seed = [s.result.label for s in series if s.result.lines[0].seeds == 1]
    configs = ", ".join(dict.fromkeys(Path(run.config).stem for run in runs))
    table, notes = tables.last_states(results, best)
    accounts = ledger(results, audits)
    other = undrawn(audits, [errors for account in accounts for errors in account.seen])
    written = _template().render(
        title=f"fedpriv: {configs}",
        summary=_summary(runs, results, configs),
        remarks=_remarks(runs, named, [*remarks, *other]),
        series=[*series, *ends],
        one_seed=one_seed,
        bands=len(one_seed) < len(series),
        pictures=charts.pictures(series, ends),
        results=table,
        notes=notes,
        clients=tables.single_clients(results),
        each_client=clients.each_client(runs),
        hurt=groups.by_group(runs),
        evaluations=tables.evaluations(results),
        privacy_notes=of_which(
            (name, run.results.privacy_notes) for run, name in zip(runs, named, strict=True)
        ),
        ledger=_with_curves(accounts),
        settings=tables.settings(runs, named),
        runs=tables.commands(runs, named),
        versions=tables.versions(runs, named),
        unended=any(run.environment is None for run in runs),
    )
    return charts.without_controls(written)


@cache  # to compile it takes longer than to fill it in
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        autoescape=True,
        loader=FileSystemLoader(Path(__file__).parent),
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    return environment.get_template("page.html")


def _ends(runs: Sequence[RunFolder]) -> list[tables.Result]:
    """Of runs that differ in their noise or budget alone."""
    merged = ends_by_epsilon(runs)
    found = tables.results(merged, names(merged))
    return [result._replace(label=f"{result.label}, ends of runs") for result in found]


def _with_curves(accounts: Sequence[Account]) -> list[tuple[Account, charts.Picture]]:
    return [
        (a, charts.trade_off(a.trade_off, f"trade-off-{i}", a.seen)) for i, a in enumerate(accounts)
    ]


def _summary(runs: Sequence[RunFolder], results: Sequence[tables.Result], configs: str) -> str:
    """What was run, in one sentence or two."""
    algorithms = list(dict.fromkeys(r.run.name_of(r.algorithm) for r in results))
    ended = [run.results for run in runs]
    finals = [s for one in ended for name in one.final for s in one.last(name).values()]
    seeds = _range([len(final.per_seed) for final in finals], "seed")
    rounds = _range([done for run in runs for done in run.results.rounds.values()], "round")
    status = Counter(run.results.status.split(":")[0] for run in runs)
    ends = ", ".join(s if len(runs) == 1 else f"{n} {s}" for s, n in status.items())
    said = f"{_range([len(runs)], 'run')} of {configs}; {_range([len(algorithms)], 'algorithm')}: "
    return said + f"{', '.join(algorithms)}; {seeds}, {rounds}. Status: {ends}."


def _range(values: Sequence[int], what: str) -> str:
    low, high = min(values, default=0), max(values, default=0)
    number = str(low) if low == high else f"{low} to {high}"
    return f"{number} {what}" + ("" if low == high == 1 else "s")


def _remarks(runs: Sequence[RunFolder], named: Sequence[str], remarks: Sequence[str]) -> list[str]:
    """What a reader has to know before believing the rest."""
    said = list(remarks)
    for run, name in zip(runs, named, strict=True):
        if run.results.status != "complete":
            said.append(f"{name}: {run.results.status}")
        for again in run.begun.resumed:
            elsewhere = f", elsewhere: {'; '.join(again.differs)}" if again.differs else ""
            said.append(f"{name}: went on after a stop ({again.time}){elsewhere}")
        said += [f"{name}: {remark}" for remark in run.remarks]
    return said
