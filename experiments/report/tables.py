"""The page's tables of results, of the numbers behind the curves, and of what differs between the runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.report.curves import value
from experiments.report.markup import Content, Element, element, folded, table, words
from experiments.report.records import Spread
from experiments.report.results import Result, named
from experiments.show import epsilon
from fedpriv.privacy import Certificate

ABSENT = "-"
NBSP = "\N{NO-BREAK SPACE}"


def results_table(found: Sequence[Result], several: bool) -> list[Element]:
    head = ["algorithm, run" if several else "algorithm"]
    head += ["final accuracy (%)", "best accuracy (%)", "certified epsilon, third party"]
    head += ["final loss", "rounds", "seeds", "status", "MB up", "MB down"]
    head += ["seconds", "compiled (s)", "rounds/s"]
    explained = (
        "Accuracy and loss on the test set: mean ± standard deviation (n - 1) over the seeds. Best: over the "
        "evaluations, each seed's own, chosen on the test set as papers do. MB: 10^6 bytes in the whole run, per "
        "client of the population. Seconds: training and evaluation, all seeds together, without compilation."
    )
    rows = [_result(result, several) for result in found]
    return [element("p", explained, class_="quiet"), table("The last state of each", head, rows)]


def _result(r: Result, several: bool) -> list[Content]:
    planned = "" if r.planned is None else f" of {r.planned}"
    return [
        named(r, several),
        spread(r.final, percent=True),
        spread(r.best, percent=True),
        _meant(r.third_party) if r.third_party else ABSENT,
        spread(r.loss),
        f"{r.rounds}{planned}".replace(" ", NBSP) if r.final else ABSENT,
        str(r.seeds) if r.seeds else ABSENT,
        words(r.status, "" if r.status.startswith("complete") else "warn"),
        number(r.uplink),
        number(r.downlink),
        number(r.seconds, 3),
        number(r.compile_seconds, 3),
        number(r.rounds_per_second, 3),
    ]


def spread(s: Spread | None, percent: bool = False) -> str:
    if s is None:
        return ABSENT
    if percent:
        return f"{100 * s.mean:.2f}" + ("" if s.std is None else f"{NBSP}±{NBSP}{100 * s.std:.2f}")
    return f"{s.mean:.4g}" + ("" if s.std is None else f"{NBSP}±{NBSP}{s.std:.2g}")


def number(x: float | None, digits: int = 4) -> str:
    return ABSENT if x is None else f"{x:.{digits}g}"


def _meant(certificate: Certificate) -> list[Content]:
    """An epsilon with its unit, adjacency and delta; its view is said in the column's head."""
    relation = certificate.relation.replace("_", "-")
    about = f"{certificate.unit}, {relation},", f"delta {certificate.delta:.3g}"
    lines: list[Content] = [
        [" ", element("br"), element("span", line, class_="quiet unbroken")] for line in about
    ]
    return [shown(certificate.epsilon), *lines]


def shown(value: float) -> str:
    return "∞" if value == float("inf") else epsilon(value)


def numbers(found: Sequence[Result], several: bool) -> Element:
    """Every evaluation, folded: the curves for those who cannot see them."""
    lines = [(result, line) for result in found for line in result.evaluations]
    measures = list(dict.fromkeys(name for _, line in lines for name in line.measures))
    head = ["algorithm, run" if several else "algorithm", "round", "accuracy (%)", "loss"]
    head += ["MB up", "MB down", "certified epsilon, third party", *measures]
    rows = [
        [
            named(result, several),
            str(line.round),
            spread(line.accuracy, percent=True),
            spread(line.loss),
            number(line.uplink),
            number(line.downlink),
            _meant(line.certified),
            *(spread(value(line, name)) for name in measures),
        ]
        for result, line in lines
    ]
    return folded("The numbers behind the curves", table("Every evaluation.", head, rows))


def differing(of_runs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The fields that not all runs have with the same value."""
    names = dict.fromkeys(name for fields in of_runs.values() for name in fields)
    return [
        name
        for name in names
        if len({json.dumps(f[name]) if name in f else None for f in of_runs.values()}) > 1
    ]


def compared(of_runs: Mapping[str, Mapping[str, Any]], what: str) -> list[Element]:
    """What differs as a table, what is common folded."""
    names = differing(of_runs)
    first = next(iter(of_runs.values()))
    common: list[list[Content]] = [
        [name, said(held)] for name, held in first.items() if name not in names
    ]
    parts: list[Element] = []
    if names:
        caption = f"{what} in which the runs differ"
        parts.append(element("p", f"{ABSENT}: a run has no such field.", class_="quiet"))
        parts.append(_differences(of_runs, names, caption))
    elif len(of_runs) > 1:
        parts.append(element("p", f"{what}: the runs do not differ."))
    if common:
        heading = f"{what} common to all runs ({len(common)})" if len(of_runs) > 1 else what
        parts.append(folded(heading, table(heading, ["field", "value"], common)))
    return parts


def _differences(
    of_runs: Mapping[str, Mapping[str, Any]], names: Sequence[str], caption: str
) -> Element:
    """The longer side goes down the page."""
    cells: dict[tuple[str, str], Content] = {
        (run, name): said(fields[name]) if name in fields else ABSENT
        for run, fields in of_runs.items()
        for name in names
    }
    if len(names) > len(of_runs):
        rows = [[name, *(cells[run, name] for run in of_runs)] for name in names]
        return table(caption, ["field", *of_runs], rows)
    rows = [[run, *(cells[run, name] for name in names)] for run in of_runs]
    return table(caption, ["run", *names], rows)


def said(value: Any) -> Element:
    """A setting's value."""
    return words(_said(value))


def _said(value: Any) -> str:
    """Lists as on the command line."""
    if isinstance(value, list):
        return " ".join(map(_said, value)) or "(empty)"
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)
