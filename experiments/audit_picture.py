"""Part of experiments.audit: every epsilon between what was seen and what is proved, at a glance."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from experiments.show import NAMES

TITLES = {
    "mechanisms": "mechanism, drawn in its worst direction",
    "runs": "training runs with canaries",
}


def picture(found: dict[str, Any], path: Path) -> None:
    """Draws the object of `--json`: a panel for draws and one for runs, a line for each algorithm and view."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = {part: found[part] for part in TITLES if found.get(part)}
    if not panels:
        return
    rows = sum(map(len, panels.values()))
    figure = Figure(figsize=(8, 1.2 * len(panels) + 0.42 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    heights = [len(lines) + 1.5 for lines in panels.values()]
    axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axis, (part, lines) in zip(axes, panels.items(), strict=True):
        _panel(axis, lines)
        axis.set_title(TITLES[part], fontsize=10)
    axes[-1].set_xlabel("epsilon")
    handles = {
        label: handle
        for axis in axes
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=3, fontsize=8)
    figure.savefig(path, dpi=130)


def _panel(axis: Any, lines: list[dict[str, Any]]) -> None:
    values = [v for line in lines for v in _numbers(line) if v > 0]
    low, high = min([0.1, *values]) / 1.5, max([10.0, *(v for v in values if v < math.inf)]) * 3
    for y, line in enumerate(lines):
        _line(axis, y, line, low, high)
    axis.set(xscale="log", xlim=(low / 1.3, high * 1.3), ylim=(len(lines) - 0.4, -0.6))
    axis.set_yticks(range(len(lines)), [_label(line) for line in lines], fontsize=7)
    axis.grid(axis="x", alpha=0.3)


def _line(axis: Any, y: int, line: dict[str, Any], low: float, high: float) -> None:
    least, certified, claimed, estimate = _numbers(line)
    axis.plot([max(least, low), min(certified, high)], [y, y], color="0.7", lw=3, zorder=1)
    axis.plot(max(least, low), y, "k>", ms=7, label="audited: at least (95 %)")
    if math.isfinite(certified):
        axis.plot(certified, y, "C0<", ms=7, label="certified: at most")
    else:
        axis.text(high, y, "inf", ha="left", va="center", fontsize=8, color="C0")
    if claimed >= 0:
        refuted = line["claim_refuted"]
        label = "claimed, refuted" if refuted else "claimed by the paper"
        axis.plot(max(claimed, low), y, "rX" if refuted else "gD", ms=6, label=label, zorder=3)
    if estimate >= 0:
        axis.plot(
            max(estimate, low),
            y,
            "o",
            mfc="none",
            color="0.3",
            ms=6,
            label="estimate (average, no bound)",
        )


def _numbers(line: dict[str, Any]) -> tuple[float, float, float, float]:
    """(audited, certified, claimed, estimate), -1 for what there is not."""
    claimed = line["claimed"]["epsilon"] if line["claimed"] else -1
    estimate = line["audited"].get("estimate", -1)
    audited, certified = line["audited"]["least"], line["certified"]["epsilon"]
    return float(audited), float(certified), float(claimed), float(estimate)


def _label(line: dict[str, Any]) -> str:
    names = line.get("algorithms") or [line["algorithm"]]
    views = line.get("views") or [line["certified"]["view"]]
    first = NAMES.get(names[0], names[0]) + (" and alike" if len(names) > 1 else "")
    seen_by = ", ".join(views) if len(views) < 3 else "all views"
    said = line["certified"]
    about = f"{said['unit']}, {said['relation'].replace('_', '-')}, delta {said['delta']:.1g}"
    return f"{first}; {seen_by}\n{about}"
