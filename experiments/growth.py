"""python -m experiments.growth [--quick] [--repeats N] [--output DIR] [--json]: how a round's time and memory grow.

Rounds of DP-FedAvg, Fed-SMP (rand_k, p = 0.1) and, against the clients, DP-SCAFFOLD, which keeps a control variate for
each of them: against the cohort r (10 to 1000), the parameters d (1e4 to 1e7) and the clients n (1e2 to 1e6), with the
other two fixed. A client has 4 images of 8 x 8 bytes and trains an MLP with a hidden layer: an epoch in batches of 2
(DP-SCAFFOLD: 2 steps on 2 records each). A round draws its cohort; one device; compiled before, so that compile time is
beside it. Every size has a process of its own, whose peak memory (data, compilation, rounds) counts above that of its
imports; XLA's own count of the round's memory is beside it. Slopes are those of the logarithms, over the three largest
sizes.

Leaves growth.json, growth.md and growth.png in --output (default: runs/growth). Exit code 1 means that something grows
worse than linearly, or that a size could not be measured; 2 that something given was wrong.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jaxlib

from experiments.command_line import Parser
from experiments.growth_picture import LABELS, TITLES, picture
from experiments.growth_point import Point, measured
from experiments.growth_slope import TOLERANCE, as_json, of_turns, of_values
from experiments.timing import device_name, show, spread
from fedpriv.strategy import cores

BOTH = ("dp_fed_avg", "fed_smp")

# Axis -> (algorithms, what is fixed, sizes).
AXES: dict[str, tuple[tuple[str, ...], Point, tuple[int, ...]]] = {
    "cohort": (BOTH, Point("fed_smp", 1000, 0, 10_000), (10, 30, 100, 300, 1000)),
    "parameters": (BOTH, Point("fed_smp", 100, 10, 0), (10**4, 10**5, 10**6, 10**7)),
    "clients": (
        (*BOTH, "dp_scaffold"),
        Point("fed_smp", 0, 100, 160),
        (10**2, 10**3, 10**4, 10**5, 10**6),
    ),
}
QUICK: dict[str, tuple[tuple[str, ...], Point, tuple[int, ...]]] = {
    "cohort": (("dp_fed_avg",), Point("fed_smp", 8, 0, 100), (2, 8)),
    "parameters": (("fed_smp",), Point("fed_smp", 8, 2, 0), (100, 400)),
    "clients": (("dp_scaffold",), Point("fed_smp", 0, 2, 100), (4, 16)),
}


def main(argv: Sequence[str] | None = None) -> int:
    about, _, details = (__doc__ or "").partition("\n\n")
    parser = Parser(prog=about.split(" [")[0], description=details)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, which say nothing")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="turns (default: 5)")
    parser.add_argument("--output", type=Path, default=Path("runs/growth"), metavar="DIR")
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    args = parser.parse_args(argv)
    try:
        if args.repeats < 1:
            raise ValueError(f"--repeats: {args.repeats} is not at least 1")
        _make(args.output)
        found = measure(QUICK if args.quick else AXES, args.repeats, measured)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ChildProcessError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130
    (args.output / "growth.json").write_text(json.dumps(found, indent=2) + "\n")
    (args.output / "growth.md").write_text(table(found) + "\n")
    picture(found, args.output / "growth.png")
    print(json.dumps(found) if args.json else table(found))
    return 0 if found["linear"] else 1


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"--output: cannot make {folder} ({error.strerror}); choose another"
        ) from None


def measure(
    axes: dict[str, tuple[tuple[str, ...], Point, tuple[int, ...]]],
    repeats: int,
    of: Callable[[Point, int], dict[str, Any]],
) -> dict[str, Any]:
    """Every size of every axis, one after the other.

    Args:
      of: (point, turns) -> its numbers, see `growth_point.here`.

    Raises:
      ChildProcessError: a size could not be measured.
    """
    series = []
    for axis, (algorithms, fixed, sizes) in axes.items():
        for algorithm in algorithms:
            points = []
            for size in sizes:
                point = replace(fixed, algorithm=algorithm, **{axis: size})
                points.append(_numbers(point, of(point, repeats)))
                print(f"{algorithm}: {axis} {size} done", file=sys.stderr)
            slopes = _slopes([p[axis] for p in points], points)
            series.append(
                {"axis": axis, "algorithm": algorithm, "points": points, "slopes": slopes}
            )
    return {
        "series": series,
        "linear": all(s["linear"] for one in series for s in one["slopes"].values()),
        "tolerance": TOLERANCE,
        "repeats": repeats,
        "device": device_name(),
        "cores": cores(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
    }


def _numbers(point: Point, found: dict[str, Any]) -> dict[str, Any]:
    """A point of a series; its `parameters` are those that the model has."""
    sizes = {"clients": point.clients, "cohort": point.cohort}
    return sizes | found | {"seconds": spread(found["seconds"])}


def _slopes(x: list[float], points: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        "seconds": as_json(of_turns(x, [p["seconds"]["all"] for p in points])),
        "peak_mb": as_json(of_values(x, [p["peak_mb"] for p in points])),
        "xla_mb": as_json(of_values(x, [p["xla_mb"] for p in points])),
    }


def table(found: dict[str, Any]) -> str:
    """Markdown: sizes, slopes, the verdict."""
    rows = [
        "| algorithm | clients n | cohort r | parameters d | seconds a round | process's peak, MB | XLA's need, MB | "
        "compile time, s |",
        "|" + "---|" * 8,
    ]
    for one in found["series"]:
        rows += [_row(LABELS[one["algorithm"]], point) for point in one["points"]]
    rows += [
        "",
        "| slope against | algorithm | seconds | process's peak | XLA's need |",
        "|" + "---|" * 5,
    ]
    for one in found["series"]:
        shown = " | ".join(_shown(slope) for slope in one["slopes"].values())
        rows.append(f"| {TITLES[one['axis']]} | {LABELS[one['algorithm']]} | {shown} |")
    verdict = "nothing grows" if found["linear"] else "SOMETHING (!) GROWS"
    return "\n".join(
        [
            *rows,
            "",
            f"{verdict} worse than linearly: a slope above {1 + found['tolerance']:g} over the three largest sizes",
            f"median (lowest to highest) of {found['repeats']} turns; {found['device']}, {found['cores']} core(s); "
            f"jax {found['jax']}, jaxlib {found['jaxlib']}",
        ]
    )


def _row(algorithm: str, point: dict[str, Any]) -> str:
    sizes = " | ".join(f"{point[name]:,}" for name in ("clients", "cohort", "parameters"))
    return (
        f"| {algorithm} | {sizes} | {show(point['seconds'])} | {point['peak_mb']:.4g} | {point['xla_mb']:.4g} | "
        f"{point['compile_seconds']:.2g} |"
    )


def _shown(slope: dict[str, Any]) -> str:
    mark = "" if slope["linear"] else " (!)"
    return f"{slope['slope']:.2f} ({slope['low']:.2f} to {slope['high']:.2f}){mark}"


if __name__ == "__main__":
    sys.exit(main())
