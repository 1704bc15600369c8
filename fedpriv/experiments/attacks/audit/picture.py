"""Every epsilon between what was seen and what is proved, at a glance."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from fedpriv.core.files import save_figure
from fedpriv.experiments.attacks.audit.canary import WORST
from fedpriv.experiments.base.formats import NAMES
from fedpriv.privacy.epsilon_words import hyphenated

TITLES = {
    "mechanisms": "mechanism, drawn in its worst direction",
    "many_runs": "many runs, half of them with a canary",
    "one_run": "one run with many canaries",
}


def picture(found: dict[str, Any], path: Path) -> None:
    """Draws the object of `audit --json`: a panel for each part, a line for each algorithm, view and delta.

    Beside them an attacker's errors in many runs, where there are any.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = {part: found[part] for part in TITLES if found.get(part)}
    if not panels:
        return
    rows = sum(map(len, panels.values()))
    errors = [line for line in found.get("many_runs", ()) if "errors" in line["audited"]]
    height = max(1.2 * len(panels) + 0.42 * rows, 4.5 if errors else 0)
    figure = Figure(figsize=(15 if errors else 8, height), layout="constrained")
    FigureCanvasAgg(figure)
    ladders: Any = figure
    if errors:
        halves: Any = figure.subfigures(1, 2)
        ladders, beside = halves
        _trade_offs(beside, errors)
    _ladders(ladders, panels)
    save_figure(figure, path, dpi=130)


def _ladders(figure: Any, panels: dict[str, list[dict[str, Any]]]) -> None:
    heights = [len(lines) + 1.5 for lines in panels.values()]
    axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axis, (part, lines) in zip(axes, panels.items(), strict=True):
        _panel(axis, lines)
        axis.set_title(TITLES[part], fontsize=10)
    axes[-1].set_xlabel("epsilon")
    legends = [zip(*axis.get_legend_handles_labels(), strict=True) for axis in axes]
    handles = {label: handle for each in legends for handle, label in each}
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=3, fontsize=8)


def _panel(axis: Any, lines: list[dict[str, Any]]) -> None:
    values = [v for line in lines for v in _numbers(line).values() if v > 0]
    low, high = min([0.1, *values]) / 1.5, max([10.0, *(v for v in values if v < math.inf)]) * 3
    for y, line in enumerate(lines):
        found = {name: max(value, low) for name, value in _numbers(line).items()}
        ends = [found["audited: at least (95 %)"], min(found["certified: at most"], high)]
        axis.plot(ends, [y, y], color="0.7", lw=3, zorder=1)
        if math.isinf(found["certified: at most"]):
            axis.text(high, y, "inf", ha="left", va="center", fontsize=8, color="C0")
        for label, value in found.items():
            if math.isfinite(value):
                axis.plot(value, y, MARKS[label], ms=6, mfc=FILLED.get(label), label=label)
    axis.set(xscale="log", xlim=(low / 1.3, high * 1.3), ylim=(len(lines) - 0.4, -0.6))
    axis.set_yticks(range(len(lines)), [_label(line) for line in lines], fontsize=7)
    axis.grid(axis="x", alpha=0.3)


MARKS = {
    "audited: at least (95 %)": "k>",
    "certified: at most": "C0<",
    "claimed, refuted": "rX",
    "claimed by the paper": "gD",
    "estimate (no bound)": "ko",
    "limit of so many runs": "k|",
}
FILLED = {"estimate (no bound)": "none"}


def _numbers(line: dict[str, Any]) -> dict[str, float]:
    """By label, what there is."""
    audited = line["audited"]
    found = {
        "audited: at least (95 %)": audited["least"],
        "certified: at most": line["certified"]["epsilon"],
    }
    if line["claimed"]:
        label = "claimed, refuted" if line["claim_refuted"] else "claimed by the paper"
        found[label] = line["claimed"]["epsilon"]
    if "estimate" in audited:
        found["estimate (no bound)"] = audited["estimate"]["epsilon"]
    if audited.get("limit") is not None:
        found["limit of so many runs"] = audited["limit"]
    return {label: float(value) for label, value in found.items()}


def _label(line: dict[str, Any]) -> str:
    names = line.get("algorithms") or [line["algorithm"]]
    views = line.get("views") or [line["certified"]["view"]]
    first = NAMES.get(names[0], names[0]) + (" and alike" if len(names) > 1 else "")
    if (kind := line.get("canary", WORST)) != WORST:
        first += f", {kind}"
    seen_by = ", ".join(views) if len(views) < 3 else "all views"
    said = line["certified"]
    about = f"{said['unit']}, {hyphenated(said['relation'])}, delta {said['delta']:.1g}"
    return f"{first}; {seen_by}\n{about}"


def _trade_offs(figure: Any, lines: list[dict[str, Any]]) -> None:
    """A panel for each view; rates on log scales, with Clopper-Pearson intervals (95 %) of each rate.

    Args:
      lines: those of "many_runs" in the object of `--json` that have errors.
    """
    views = list(dict.fromkeys(line["views"][0] for line in lines))
    axes = figure.subplots(len(views), 1, squeeze=False)[:, 0]
    for axis, view in zip(axes, views, strict=True):
        for number, line in enumerate(line for line in lines if line["views"][0] == view):
            _errors(axis, line, f"C{number}")
        axis.set(
            xscale="log", yscale="log", ylabel="false negatives", xlim=(5e-4, 1), ylim=(5e-4, 1.2)
        )
        axis.set_title(f"errors of {view}: certified (line), seen (points, 95 %)", fontsize=10)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, loc="lower left")
    axes[-1].set_xlabel("false positives")


def _errors(axis: Any, line: dict[str, Any], colour: str) -> None:
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
