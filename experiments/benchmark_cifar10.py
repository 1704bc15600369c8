"""python -m experiments.benchmark_cifar10 [--turns N] [--rounds N]: pfl_cifar10's rounds beside pfl's, on CPU.

The config's FedAvg and DP-FedAvg, on random pixels: 1,000 clients of 50 images, 50 in a round, an epoch each in batches
of 10, in fedpriv and in pfl's simulator as pfl-research's own benchmark calls it, which gets a virtual environment (see
experiments.benchmark --help). They take turns of some rounds each, after a first one that is not timed. pfl has as many
threads as there are cores: pin to one (taskset -c 1 python -m ...), as a JAX device uses all it may.

Prints one JSON object: for each algorithm, by the clock ("wall") and by processor time ("cpu", which others' work on
the machine disturbs less), clients per second of each and, turn by turn, how many times as fast fedpriv is ("ratios").
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.base.command import command
from experiments.base.terminal import say
from experiments.config.fields import Number
from experiments.config.options import only_options
from experiments.speed.cifar10_speed import measure


@dataclass(frozen=True)
class Options:
    """Of the command."""

    turns: Number = 5
    """Of each."""
    rounds: Number = 10
    """Of a turn."""


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = sys.argv[1:] if argv is None else argv
    options = only_options(Options, args, "benchmark_cifar10", __doc__)
    say(json.dumps(measure(options.turns, options.rounds), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
