"""The command `tune`: which step size is best?

Every algorithm of CONFIG is trained with each eta_0 of --values, for the config's rounds, on all but one fold of every
client's training records, and tested on that fold; the mean over folds and seeds of accuracy, or of --metric, decides
(DP-SCAFFOLD, Appendix D.1: ten values, five folds, at the lowest heterogeneity; the best is kept for all other data).
--folds counts the folds that are used of the five. It looks at the data without privacy, as the paper does: no epsilon
covers the choice. --json prints one JSON object.

--best-of MEAN makes the choice under a certificate: a secret number of trials, geometric with this mean, each with a
value at random and a key of its own, is scored on one fold with noise, and of the best alone eta_0 and score are told
(Papernot and Steinke 2022).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from experiments import config as configuration
from experiments.base.command import Parser, command
from experiments.base.json_values import plain
from experiments.base.time_left import Remaining
from experiments.config import Run, modules
from experiments.config.fields import Single, check_each
from experiments.config.modules import Config
from experiments.config.options import listing, parse
from experiments.search import noisy_choice
from experiments.search.best_of import require_options
from experiments.search.folds import without_fold
from experiments.training.prepare import check
from experiments.training.train_algorithms import simulated
from fedpriv.data.datasets import Dataset
from fedpriv.devices.layout import Strategy, split_cpu
from fedpriv.engine import compilation_cache
from fedpriv.engine.history import DivergedError
from fedpriv.models.score import better_higher, is_fraction, main_metric

VALUES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0)
FOLDS = 5
SCORE_NOISE = 0.005
UNCOVERED = (
    "chosen by clients' own training records: no epsilon of a model trained with this step covers the choice "
    "(--best-of MEAN makes one that is certified)"
)


# Fields of a config that say nothing of a training's last round.
USELESS = ("eta_0", "output", "record", "keep_model", "checkpoint", "every", "per_client", "bound")
USELESS += ("view", "views", "stop_at_epsilon", "target_epsilon", "stop_at", "patience")


class Tuned(NamedTuple):
    """What was found.

    Attributes:
      metric: that decides.
      higher: whether it is better when higher.
      found: algorithm -> eta_0 -> the metric's mean; None where training diverged.
    """

    metric: str
    higher: bool
    found: dict[str, dict[float, float | None]]

    def best(self, name: str) -> float | None:
        """The algorithm's best mean."""
        known = [x for x in self.found[name].values() if x is not None]
        return (max if self.higher else min)(known, default=None)


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    options, rest = _options(args)
    if options.list:
        print(listing(tunable))
        return 0
    if options.config is None:
        raise ValueError("CONFIG: none is given; see --list")
    module = modules.load(options.config)
    if not tunable(module):
        raise ValueError(
            f"CONFIG: {options.config} has no eta_0, load and on, for which --list has others; any config's settings "
            "are compared by experiments.sweep, and chosen under a certificate by its --best-of"
        )
    config = parse(module, options.config, rest, "tune")
    _require(config, module.config, options)
    split_cpu(config.layout.devices)
    if options.best_of is not None:
        compilation_cache.keep_no_programs()  # it would show later which values were tried
        print(_privately(module, config, options))
        return 0
    compilation_cache.cache_programs()
    tuned = tune(module, config, options.values, options.folds)
    answer = {"config": options.config, "settings": plain(config), "folds": options.folds}
    said = f"{table(tuned)}\n\n{UNCOVERED}"
    print(json.dumps(answer | {tuned.metric: tuned.found}) if options.json else said)
    return 0


def _privately(module: Config, config: Any, options: argparse.Namespace) -> str:
    """What may be told of the trials of --best-of."""
    mean = options.best_of
    noise = SCORE_NOISE if options.score_noise is None else options.score_noise
    require_options(mean, {})
    check_each(Single, **{"--score-noise": noise})
    if options.folds != FOLDS or config.seeds != 1 or len(config.algorithms) != 1:
        raise ValueError(
            "--folds, seeds, algorithms: --best-of tries one algorithm on one fold, each time with a key of its own; "
            "leave --folds and seeds out, and name one algorithm"
        )
    part = without_fold(module.load(config), 0, FOLDS)
    smaller = replace(config, records=config.training_records)
    delta = configuration.ledger_of(module, config).delta  # of all records, held out or not
    chosen = noisy_choice.choose(module, smaller, part, options.values, mean, noise, delta)
    if not options.json:
        return noisy_choice.shown(chosen, noise)
    answer = {"config": options.config, "settings": config, "best_of": mean, "score_noise": noise}
    answer["secret"] = noisy_choice.SECRET
    return json.dumps(plain(answer | chosen._asdict()), indent=2)


def tunable(module: Config) -> bool:
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
    parser.add_argument(
        "--best-of",
        type=float,
        metavar="MEAN",
        help="tell the best of a secret number of trials alone, which is geometric with this mean",
    )
    parser.add_argument(
        "--score-noise",
        type=float,
        metavar="F",
        help=f"with --best-of: noise on a score, as a fraction of the held-out records (default: {SCORE_NOISE})",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    if {"-h", "--help"} & set(args):
        parser.print_help()
        if args[0].startswith("-"):
            raise SystemExit(0)
        print()
    return parser.parse_known_args(args)


def _require(config: Any, default: Any, options: argparse.Namespace) -> None:
    for value in options.values:
        check_each(Single, **{"--values": value})
    if not 1 <= options.folds <= FOLDS:
        raise ValueError(f"--folds: {options.folds} is not between 1 and {FOLDS}")
    if options.score_noise is not None and options.best_of is None:
        raise ValueError("--score-noise: belongs to --best-of; give that, too, or neither")
    if config.training_records % FOLDS:
        raise ValueError(
            f"records: {config.records} leaves {config.training_records} for training, which are not five equal "
            "folds; take a multiple of 25"
        )
    for name in USELESS:
        if (given := getattr(config, name)) != getattr(default, name):
            raise ValueError(f"{name}: {plain(given)} has no use here; leave it out")


def tune(module: Config, config: Any, values: Sequence[float], folds: int) -> Tuned:
    strategy = configuration.strategy(config.layout)
    data = module.load(config)
    parts = [without_fold(data, fold, FOLDS) for fold in range(folds)]
    smaller = replace(config, records=config.training_records)  # a fifth of which is the fold
    any_one = module.on(replace(smaller, algorithms=config.algorithms[:1]), parts[0])
    metric = main_metric(any_one.metrics, config.metric)
    found: dict[str, dict[float, float | None]] = {name: {} for name in config.algorithms}
    remaining = Remaining("trainings", len(values) * len(config.algorithms) * folds)
    for value in values:
        for name in config.algorithms:
            one = replace(smaller, algorithms=(name,), eta_0=value)
            each = []
            for part in parts:
                each.append(_tested(module, one, part, strategy, metric))
                remaining.advance()
            known = [a for a in each if a is not None]
            found[name][value] = statistics.mean(known) if len(known) == folds else None
            print(
                f"{name}, eta_0 = {value:g}: {_cell(metric, found[name][value])}", file=sys.stderr
            )
    return Tuned(metric, better_higher(metric, any_one.higher), found)


def _tested(
    module: Config, config: Run, data: Dataset, strategy: Strategy, metric: str
) -> float | None:
    """The metric at the last round, the mean over seeds."""
    experiment = module.on(config, data)
    check(experiment, config)
    (name,) = experiment.entries
    try:
        once = replace(config, every=config.rounds)
        history = simulated(name, replace(experiment, measure=None), once, strategy)
    except DivergedError:
        return None
    return float(np.mean(history.evaluations[-1].metrics[metric]))


def _cell(metric: str, mean: float | None) -> str:
    if mean is None:
        return "diverged"
    return f"{100 * mean:.2f}" if is_fraction(metric) else f"{mean:.4g}"


def table(tuned: Tuned) -> str:
    """A line per value, a column per algorithm; the best of each column has a star."""
    found = tuned.found
    lines = ["eta_0".ljust(8) + "".join(name.rjust(14) for name in found)]
    for value in next(iter(found.values())):
        cells = [
            _cell(tuned.metric, of[value])
            + ("*" if of[value] is not None and of[value] == tuned.best(name) else " ")
            for name, of in found.items()
        ]
        lines.append(f"{value:<8g}" + "".join(cell.rjust(14) for cell in cells))
    return "\n".join(lines)
