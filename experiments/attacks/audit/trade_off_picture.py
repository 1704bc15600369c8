"""An attacker's two errors in many runs, above the certified curve: how much room is left."""

from __future__ import annotations

from typing import Any

from experiments.attacks.audit.canary import WORST
from experiments.base.formats import NAMES


def trade_offs(figure: Any, lines: list[dict[str, Any]]) -> None:
    """A panel for each view; rates on log scales, with Clopper-Pearson intervals (95 %) of each rate.

    Args:
      lines: those of "many_runs" in the object of `--json` that have errors.
    """
    views = list(dict.fromkeys(line["views"][0] for line in lines))
    axes = figure.subplots(len(views), 1, squeeze=False)[:, 0]
    for axis, view in zip(axes, views, strict=True):
        for number, line in enumerate(line for line in lines if line["views"][0] == view):
            _draw(axis, line, f"C{number}")
        axis.set(
            xscale="log", yscale="log", ylabel="false negatives", xlim=(5e-4, 1), ylim=(5e-4, 1.2)
        )
        axis.set_title(f"errors of {view}: certified (line), seen (points, 95 %)", fontsize=10)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, loc="lower left")
    axes[-1].set_xlabel("false positives")


def _draw(axis: Any, line: dict[str, Any], colour: str) -> None:
    errors, name = line["audited"]["errors"], line["algorithm"]
    name = NAMES.get(name, name)
    if line["canary"] != WORST:
        name += f", {line['canary']} canary"
    if curve := errors["certified"]:
        axis.plot(curve["false_positive_rates"], curve["false_negative_rates"], color=colour)
    both = ("false_positives", "false_negatives")
    x, y = ([point[kind]["rate"] for point in errors["seen"]] for kind in both)
    bars = [
        [
            [point[kind]["rate"] - point[kind]["low"] for point in errors["seen"]],
            [point[kind]["high"] - point[kind]["rate"] for point in errors["seen"]],
        ]
        for kind in both
    ]
    look = {"fmt": ".", "color": colour, "lw": 0.8, "label": name}
    axis.errorbar(x, y, xerr=bars[0], yerr=bars[1], **look)
