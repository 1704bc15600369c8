"""python -m experiments.tune CONFIG [--values V ...] [--folds F] [--field value ...]: which step size is best?

Every algorithm of CONFIG is trained with each eta_0 of --values, for the config's rounds, on all but one fold of every
client's training records, and tested on that fold; the mean accuracy over folds and seeds decides (DP-SCAFFOLD,
Appendix D.1: ten values, five folds, at the lowest heterogeneity; the best is kept for all other data). --folds counts
the folds that are used of the five. It looks at the data without privacy, as the paper does. --json prints one JSON
object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np

from experiments import compilation_cache
from experiments import config as configuration
from experiments.command_line import Parser, command, listing, parse
from experiments.config import Run, positive
from experiments.plain import plain
from experiments.remaining import Remaining
from experiments.run import check
from experiments.training import simulated
from fedpriv.data.datasets import Dataset
from fedpriv.devices.layout import Strategy, split_cpu
from fedpriv.engine.history import DivergedError

VALUES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0)
FOLDS = 5


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    options, rest = _options(args)
    if options.list:
        print(listing(tunable))
        return 0
    if options.config is None:
        raise ValueError("CONFIG: none is given; see --list")
    module = configuration.load(options.config)
    if not tunable(module):
        raise ValueError(f"CONFIG: {options.config} has no eta_0, load and on; see --list")
    config = parse(module, options.config, rest, "tune")
    _require(config, options.values, options.folds)
    split_cpu(config.layout.devices)
    compilation_cache.enable()
    found = tune(module, config, options.values, options.folds)
    answer = {"config": options.config, "settings": plain(config), "folds": options.folds}
    print(json.dumps(answer | {"accuracy": found}) if options.json else table(found))
    return 0


def tunable(module: ModuleType) -> bool:
    """Whether a config has a step size, and its data apart from the experiment on them."""
    return hasattr(module.config, "eta_0") and hasattr(module, "load") and hasattr(module, "on")


def _options(args: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """This command's own options, and the config's."""
    details = (__doc__ or "").partition("\n\n")[2]
    parser = Parser(
        prog="python -m experiments.tune", description=details, add_help=False, allow_abbrev=False
    )
    parser.add_argument("config", metavar="CONFIG", nargs="?", help="see --list")
    parser.add_argument("--list", action="store_true", help="the configs that can be tuned")
    parser.add_argument(
        "--values", type=float, nargs="+", default=list(VALUES), metavar="V", help="of eta_0"
    )
    parser.add_argument(
        "--folds", type=int, default=FOLDS, metavar="F", help="folds used, of the five"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    if {"-h", "--help"} & set(args):
        parser.print_help()
        if args[0].startswith("-"):
            raise SystemExit(0)
        print()
    return parser.parse_known_args(args)


def _require(config: Any, values: Sequence[float], folds: int) -> None:
    for value in values:
        positive(**{"--values": value})
    if not 1 <= folds <= FOLDS:
        raise ValueError(f"--folds: {folds} is not between 1 and {FOLDS}")
    if config.training_records % FOLDS:
        raise ValueError(
            f"records: {config.records} leaves {config.training_records} for training, which are not five equal "
            "folds; take a multiple of 25"
        )
    for name in ("eta_0", "stop_at_epsilon", "target_epsilon", "output"):
        if getattr(config, name) is not None:
            raise ValueError(f"{name}: {getattr(config, name)} has no use here; leave it out")


def tune(
    module: ModuleType, config: Any, values: Sequence[float], folds: int
) -> dict[str, dict[float, float | None]]:
    """Algorithm -> eta_0 -> mean accuracy; None where training diverged."""
    strategy = configuration.strategy(config.layout)
    parts = list(_folds(module.load(config), folds))
    smaller = replace(config, records=config.training_records)  # a fifth of which is the fold
    found: dict[str, dict[float, float | None]] = {name: {} for name in config.algorithms}
    remaining = Remaining("trainings", len(values) * len(config.algorithms) * folds)
    for value in values:
        for name in config.algorithms:
            one = replace(smaller, algorithms=(name,), eta_0=value)
            each = []
            for part in parts:
                each.append(_accuracy(module, one, part, strategy))
                remaining.advance()
            known = [a for a in each if a is not None]
            found[name][value] = statistics.mean(known) if len(known) == folds else None
            print(f"{name}, eta_0 = {value:g}: {_percent(found[name][value])}", file=sys.stderr)
    return found


def _folds(data: Dataset, folds: int) -> Iterator[Dataset]:
    """The training records of every client without a fifth of them, which is for testing."""
    clients = [np.flatnonzero(data.keys == key) for key in np.unique(data.keys)]
    for fold in range(folds):
        held = [np.split(rows, FOLDS)[fold] for rows in clients]
        kept = [np.setdiff1d(rows, out) for rows, out in zip(clients, held, strict=True)]
        out, rows = np.concatenate(held), np.concatenate(kept)
        yield Dataset(
            data.name,
            {k: v[rows] for k, v in data.train.items()},
            {k: v[out] for k, v in data.train.items()},
            data.num_classes,
            data.keys[rows],
        )


def _accuracy(module: ModuleType, config: Run, data: Dataset, strategy: Strategy) -> float | None:
    """At the last round, the mean over seeds."""
    experiment = module.on(config, data)
    check(experiment, config)
    (name,) = experiment.entries
    try:
        once = replace(config, every=config.rounds)
        history = simulated(name, replace(experiment, measure=None), once, strategy)
    except DivergedError:
        return None
    return float(np.mean(history.evaluations[-1].accuracy))


def _percent(accuracy: float | None) -> str:
    return "diverged" if accuracy is None else f"{100 * accuracy:.2f}"


def table(found: dict[str, dict[float, float | None]]) -> str:
    """A line per value, a column per algorithm; the best of each column has a star."""
    values = list(next(iter(found.values())))
    lines = ["eta_0".ljust(8) + "".join(name.rjust(14) for name in found)]
    best = {
        name: max((a for a in of.values() if a is not None), default=None)
        for name, of in found.items()
    }
    for value in values:
        cells = [
            _percent(of[value])
            + ("*" if of[value] is not None and of[value] == best[name] else " ")
            for name, of in found.items()
        ]
        lines.append(f"{value:<8g}" + "".join(cell.rjust(14) for cell in cells))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
