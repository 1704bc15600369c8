"""Which names of recorded numbers the reference explains."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from fedpriv.engine.client_metric_names import parsed

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "recorded_names.md"


def explained(page: str | None = None) -> set[str]:
    """The names in the first columns of its tables."""
    rows = re.findall(r"^\| (`.*?) \|", page or PAGE.read_text(), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def unexplained(names: Iterable[str]) -> list[str]:
    """Those of the names, or parts of them, that the page lacks."""
    return sorted({part for name in names for part in parts(name)} - explained())


def parts(name: str) -> Iterator[str]:
    """Of the number of single clients or groups: kind, metric and ending; else the name."""
    if of := parsed(name):
        yield from (
            of.records,
            of.metric,
            re.sub(r"(?<=^(?:below|above)_).*", "BOUND", of.statistic),
        )
    else:
        yield name
