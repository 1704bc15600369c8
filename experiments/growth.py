"""python -m experiments.growth [--repeats N] [--output DIR] [--json]: how a round's time and memory grow.

Rounds of DP-FedAvg, Fed-SMP (rand_k, p = 0.1) and, against the clients, DP-SCAFFOLD, which keeps a control variate for
each of them: against the cohort r (10 to 1000), the parameters d (1e4 to 1e7) and the clients n (1e2 to 1e6), with the
other two fixed. A client has 4 images of 8 x 8 bytes and trains an MLP with a hidden layer: an epoch in batches of 2
(DP-SCAFFOLD: 2 steps on 2 records each). A round draws its cohort; one device; compiled before, so that compile time is
beside it. Every size has a process of its own, whose peak memory (data, compilation, rounds) counts above that of its
imports; XLA's own count of the round's memory is beside it. Slopes are those of the logarithms, over the three largest
sizes that were measured.

It takes about 5 to 10 minutes on 2 cores, and about 2 GB of memory.

Leaves growth.json, rewritten after every size, growth.md and growth.png in --output. Exit code 1 means that something
grows worse than linearly, or that a size could not be measured, which does not keep the others from it; 2 that
something given was wrong; 130 that it was interrupted.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jaxlib

from experiments.command_line import Parser, command
from experiments.growth_picture import LABELS, picture
from experiments.growth_point import Name, Point, measured
from experiments.growth_slope import TOLERANCE, as_json, of_turns, of_values
from experiments.growth_table import table
from experiments.timing import device_name, spread
from fedpriv.devices.layout import cores


class Axis(NamedTuple):
    """What is varied, under the name of a field of `Point`.

    Attributes:
      fixed: the other two sizes.
      sizes: two at least, ascending.
    """

    algorithms: tuple[Name, ...]
    fixed: dict[str, int]
    sizes: tuple[int, ...]


BOTH: tuple[Name, ...] = ("dp_fed_avg", "fed_smp")

AXES = {
    "cohort": Axis(BOTH, {"clients": 1000, "parameters": 10_000}, (10, 30, 100, 300, 1000)),
    "parameters": Axis(BOTH, {"clients": 100, "cohort": 10}, (10**4, 10**5, 10**6, 10**7)),
    "clients": Axis(
        (*BOTH, "dp_scaffold"),
        {"cohort": 100, "parameters": 160},
        (10**2, 10**3, 10**4, 10**5, 10**6),
    ),
}


@command
def main(argv: Sequence[str] | None = None) -> int:
    about, _, details = (__doc__ or "").partition("\n\n")
    parser = Parser(prog=about.split(" [")[0], description=details)
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="turns (default: 5)")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="folder to make (default: runs/growth-DATE-TIME)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    args = parser.parse_args(argv)
    if args.repeats < 1:
        raise ValueError(f"--repeats: {args.repeats} is not at least 1")
    folder = _made(args.output or Path("runs") / time.strftime("growth-%Y%m%d-%H%M%S"))
    found = measure(AXES, args.repeats, measured, lambda found: _keep(found, folder))
    (folder / "growth.md").write_text(table(found) + "\n")
    picture(found, folder / "growth.png")
    print(json.dumps(found) if args.json else table(found))
    return 0 if found["linear"] else 1


def _made(folder: Path) -> Path:
    if (folder / "growth.json").exists():
        raise ValueError(f"--output: {folder} already holds growth.json; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"--output: cannot make {folder} ({error.strerror}); choose another"
        ) from None
    return folder


def _keep(found: dict[str, Any], folder: Path) -> None:
    """Writes all there is so far; whoever reads meanwhile, or ends this process, finds a whole file."""
    draft = folder / "growth.json.part"
    draft.write_text(json.dumps(found, indent=2) + "\n")
    draft.replace(folder / "growth.json")


def measure(
    axes: Mapping[str, Axis],
    repeats: int,
    of: Callable[[Point, int], dict[str, Any]],
    keep: Callable[[dict[str, Any]], None] = lambda found: None,
) -> dict[str, Any]:
    """Every size of every axis, one after the other; those that fail are said and left out.

    Args:
      of: (point, turns) -> its numbers, see `growth_point.here`; ChildProcessError: it could not be measured.
      keep: gets what there is so far after every size, and what is returned.

    Returns:
      The object of `--json`. "linear" is False where something grows worse, otherwise None as long as a size is
      missing. A series has "points", and "failed" with the sizes asked for and "why"; no "slopes" until all its sizes
      were tried, nor where fewer than two were measured.
    """
    found: dict[str, Any] = {
        "series": [],
        "linear": None,
        "tolerance": TOLERANCE,
        "repeats": repeats,
        "device": device_name(),
        "cores": cores(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
    }
    for name, axis in axes.items():
        for algorithm in axis.algorithms:
            one = {"axis": name, "algorithm": algorithm, "points": [], "failed": [], "slopes": {}}
            found["series"].append(one)
            for size in axis.sizes:
                _add(one, Point(algorithm, **axis.fixed, **{name: size}), repeats, of)
                keep(found)
            one["slopes"] = _slopes([p[name] for p in one["points"]], one["points"])
    found["linear"] = _linear(found["series"])
    keep(found)
    return found


def _add(
    series: dict[str, Any], point: Point, turns: int, of: Callable[[Point, int], dict[str, Any]]
) -> None:
    """A point of a series, whose `parameters` are those that the model has; or why there is none."""
    words = (
        f"{LABELS[point.algorithm]} with n = {point.clients:,}, r = {point.cohort:,}, "
        f"d = {point.parameters:,}"
    )
    sizes = {"clients": point.clients, "cohort": point.cohort}
    try:
        numbers = of(point, turns)
    except ChildProcessError as error:
        print(f"error: {words}: {error}", file=sys.stderr)
        series["failed"].append(sizes | {"parameters": point.parameters, "why": str(error)})
        return
    series["points"].append(sizes | numbers | {"seconds": spread(numbers["seconds"])})
    print(f"{words}: done", file=sys.stderr)


def _slopes(x: list[float], points: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    if len(points) < 2:
        return {}
    return {
        "seconds": as_json(of_turns(x, [p["seconds"]["all"] for p in points])),
        "peak_mb": as_json(of_values(x, [p["peak_mb"] for p in points])),
        "xla_mb": as_json(of_values(x, [p["xla_mb"] for p in points])),
    }


def _linear(series: list[dict[str, Any]]) -> bool | None:
    if not all(slope["linear"] for one in series for slope in one["slopes"].values()):
        return False
    return None if any(one["failed"] for one in series) else True


if __name__ == "__main__":
    sys.exit(main())
