"""python -m experiments.benchmark PART [options]: how fast rounds are, and how their time and memory grow.

What the parts measure, and their options, says python -m experiments.benchmark PART --help.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from fedpriv.experiments.base.command import command
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config.options import HELP, only_options

PARTS = {
    "rounds": "a round, or a step, beside what limits it, PyTorch and other simulators",
    "cifar10": "pfl_cifar10's rounds beside pfl's, on CPU",
    "large": "a step and rounds of a transformer of 98 million parameters, beside other libraries",
    "gpu": "what a GPU is to tell, in one call",
    "integers": "rounds whose messages travel as integers, beside floats",
    "every": "workloads A to H with and without large pages, beside others, and their page",
    "page": "a table and two pictures of what rounds has printed",
    "growth": "how a round's time and memory grow",
    "start": "what a run waits for before its first round",
    "scale_out": "rounds over several hosts",
}
"""Modules of `experiments.speed`: each has `Options` and `main(options)`, which gives the exit code."""


@command
def main(argv: Sequence[str] | None = None) -> int:
    name, *rest = [*(sys.argv[1:] if argv is None else argv), ""][:-1] or ["--help"]
    if name in HELP:
        say("python -m experiments.benchmark PART [--help]\n")
        say("\n".join(f"  {part:<10} {does}" for part, does in PARTS.items()))
        return 0
    if name not in PARTS:
        raise ValueError(f"part: there is no {name!r}; choose one of {', '.join(PARTS)}")
    part = importlib.import_module(f"experiments.speed.{name}")
    return part.main(
        only_options(part.Options, rest, f"python -m experiments.benchmark {name}", part.__doc__)
    )


if __name__ == "__main__":
    sys.exit(main())
