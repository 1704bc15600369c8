"""The picture that a run leaves: its metric by round and by uplink."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from fedpriv.core.files import save_figure
from fedpriv.engine.history import History
from fedpriv.engine.metric_words import in_percent, with_unit
from fedpriv.experiments.base.formats import name_of
from fedpriv.experiments.base.spread import Spread
from fedpriv.experiments.config.public import Public
from fedpriv.experiments.tables.plots import (
    COLOURS,
    FAR_ENDS,
    WIDTHS,
    below,
    colours,
    curve,
    far,
    look,
    percent,
    scale,
    sheet,
)


def picture(
    histories: Mapping[str, History],
    metric: str,
    path: Path,
    public: Public,
    names: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """The picture of a run's metric, an accuracy in %: mean over the seeds, band of one standard deviation."""
    with sheet(WIDTHS["page"], 3.0) as figure:
        by_round, by_uplink = figure.subplots(1, 2, sharey=True)
        sent = []
        numbers = colours(histories)
        for name, history in histories.items():
            if not history.evaluations:  # it diverged before the first
                continue
            values = [Spread.of(each) for each in history.metric(metric)]
            values = [percent(s) for s in values] if in_percent(metric) else values
            drawn = look(numbers[name], numbers[name] // len(COLOURS), len(values))
            drawn["label"] = name_of(name, names)
            curve(by_round, history.rounds, values, **drawn)
            curve(by_uplink, history.uplink_mb.mean(1), values, **drawn)
            sent.append(history.uplink_mb[-1].mean())
        on_test = "test " * (metric in public.of_score)
        private = ", not private" * (metric not in public)
        by_round.set(xlabel="round", ylabel=on_test + with_unit(metric) + private)
        scale(by_round, "x", log=False, whole=True)
        log = bool(sent) and far(sent, FAR_ENDS)
        scale(by_uplink, "x", log)
        by_uplink.set_xlabel("uplink per client (MB" + ", log scale" * log + ")")
        if by_round.lines:
            below(figure, {line.get_label(): line for line in by_round.lines})
        save_figure(figure, path, dpi=150)
