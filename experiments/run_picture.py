"""The picture that a run leaves: its metric by round and by uplink."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from experiments.files import replacing
from experiments.formats import NAMES
from experiments.paper_figure import COLOURS, WIDTHS, below, curve, look, sheet
from experiments.records import Spread
from fedpriv.engine.history import History


def picture(histories: Mapping[str, History], metric: str, path: Path) -> None:
    """The metric on the test set: mean over the seeds, band of one standard deviation."""
    with sheet(WIDTHS["page"], 3.0) as figure:
        by_round, by_uplink = figure.subplots(1, 2, sharey=True)
        for i, (name, history) in enumerate(histories.items()):
            if not history.evaluations:  # it diverged before the first
                continue
            values = [Spread.of(each) for each in history.metric(metric)]
            drawn = look(i, i // len(COLOURS), len(values)) | {"label": NAMES.get(name, name)}
            curve(by_round, history.rounds, values, **drawn)
            curve(by_uplink, history.uplink_mb.mean(1), values, **drawn)
        by_round.set(xlabel="round", ylabel=f"test {metric}")
        by_uplink.set(xlabel="uplink per client (MB)", xscale="log")
        if by_round.lines:
            below(figure, {line.get_label(): line for line in by_round.lines})
        with replacing(path) as unfinished:
            figure.savefig(unfinished, dpi=150, format="png")
