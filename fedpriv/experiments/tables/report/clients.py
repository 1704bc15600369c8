"""The page's table of single clients: each one's metric, with an interval over its own records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedpriv.engine.client_metric_names import KINDS
from fedpriv.experiments.runs.run_folder import RunFolder
from fedpriv.experiments.tables import by_client
from fedpriv.experiments.tables.report.tables import Cell, Table

MOST = 500  # rows


class EachClient(NamedTuple):
    """In the report: a row for each client.

    Attributes:
      notes: what one has to know to read it.
    """

    table: Table
    notes: list[str]


def each_client(runs: Sequence[RunFolder]) -> EachClient | None:
    """Of the metrics that the runs show; None where nothing was evaluated client by client.

    A run whose clients.jsonl is damaged, which its remarks say, is left out.
    """
    readable = [run for run in runs if is_readable(run) and _has_clients(run)]
    if not readable:
        return None
    made = by_client.grid(by_client.rows_with_clients(readable))
    caption = "Each client, after the last round"
    if len(made.rows) > MOST:
        caption += f": the first {MOST:,} of {len(made.rows):,} rows; compare --by client has all"
    rows: list[Sequence[str | Cell]] = [row for row in made.rows[:MOST]]
    return EachClient(Table(caption, made.head, rows), made.below)


def is_readable(run: RunFolder) -> bool:
    """Whether its clients.jsonl, if there is one, is whole."""
    try:
        return run.client_lines is not None
    except ValueError:
        return False


def _has_clients(run: RunFolder) -> bool:
    last = [x for name in run.results.rounds for x in run.last_of_clients(name)]
    return any(line.kind in KINDS for line in last)
