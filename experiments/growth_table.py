"""Part of experiments.growth: sizes, slopes and the verdict as Markdown."""

from __future__ import annotations

from typing import Any

from experiments.growth_picture import LABELS, TITLES
from experiments.timing import show


def table(found: dict[str, Any]) -> str:
    """Of the object of `--json`."""
    return "\n".join(
        [
            "| algorithm | clients n | cohort r | parameters d | seconds a round | process's peak, MB | "
            "XLA's need, MB | compile time, s |",
            "|" + "---|" * 8,
            *(row for one in found["series"] for row in _sizes(one)),
            "",
            "| slope against | algorithm | seconds | process's peak | XLA's need |",
            "|" + "---|" * 5,
            *(_slopes(one) for one in found["series"] if one["slopes"]),
            "",
            _verdict(found),
            f"median (lowest to highest) of {found['repeats']} turns; {found['device']}, {found['cores']} core(s); "
            f"jax {found['jax']}, jaxlib {found['jaxlib']}",
        ]
    )


def _sizes(one: dict[str, Any]) -> list[str]:
    label = LABELS[one["algorithm"]]
    measured = [
        f"| {label} | {_size(point)} | {show(point['seconds'])} | {point['peak_mb']:.4g} | {point['xla_mb']:.4g} | "
        f"{point['compile_seconds']:.2g} |"
        for point in one["points"]
    ]
    failed = [f"| {label} | {_size(point)} | failed | | | |" for point in one["failed"]]
    return measured + failed


def _size(point: dict[str, Any]) -> str:
    return " | ".join(f"{point[name]:,}" for name in ("clients", "cohort", "parameters"))


def _slopes(one: dict[str, Any]) -> str:
    shown = " | ".join(_shown(slope) for slope in one["slopes"].values())
    return f"| {TITLES[one['axis']]} | {LABELS[one['algorithm']]} | {shown} |"


def _shown(slope: dict[str, Any]) -> str:
    mark = "" if slope["linear"] else " (!)"
    return f"{slope['slope']:.2f} ({slope['low']:.2f} to {slope['high']:.2f}){mark}"


def _verdict(found: dict[str, Any]) -> str:
    grows = {
        True: "nothing grows",
        False: "SOMETHING (!) GROWS",
        None: "of what was measured, nothing grows",
    }[found["linear"]]
    failed = sum(len(one["failed"]) for one in found["series"])
    missing = f"; {failed} SIZE(S) COULD NOT BE MEASURED" if failed else ""
    limit = f"a slope above {1 + found['tolerance']:g} over the three largest sizes"
    return f"{grows} worse than linearly: {limit}{missing}"
