"""What a notebook shows of runs: of one the table that a command ends with, of several that of `compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedpriv.core.cards import Card, Folded
from fedpriv.experiments.runs.contents import Summary
from fedpriv.experiments.runs.run_folder import RunFolder
from fedpriv.experiments.tables.frame import rows as rows_of_runs
from fedpriv.experiments.tables.grid import grid
from fedpriv.experiments.tables.terminal import meaning, notes, rows_of


def card_of(kind: str, folder: Path, status: str, summary: Summary | None) -> Card:
    """Of a run, with what its numbers mean; without a summary of its evaluations, how it ended."""
    rows = [("status", status)]
    if summary is None or not summary.rounds:
        return Card(kind, str(folder), [*rows, ("table", "nothing was evaluated yet")])
    rows.insert(0, ("config", summary.config))
    more = [Folded("notes", said)] if (said := notes(summary)) else []
    return Card(kind, str(folder), rows, rows_of(summary), notes=meaning(summary), folded=more)


def card_of_runs(kind: str, folder: Path, status: str, runs: Sequence[RunFolder]) -> Card:
    """Of several runs, as far as they are evaluated; what an epsilon means has a letter."""
    found = grid(rows_of_runs([run for run in runs if run.results.rounds]))
    means = [f"{letter}: {text}" for text, letter in found.letters.items()]
    more = [Folded("notes", found.notes)] if found.notes else []
    table, state = [found.head, *found.rows], [("status", status)]
    return Card(kind, str(folder), state, table, notes=means, folded=more)
