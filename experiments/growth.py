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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.base.command import command
from experiments.base.terminal import say
from experiments.config.fields import Number
from experiments.config.options import only_options
from experiments.speed.growth import growth, table


@dataclass(frozen=True)
class Options:
    """Of the command."""

    repeats: Number = 5
    """Turns."""
    output: Path | None = None
    """New folder; by default runs/growth-DATE-TIME."""
    json: bool = False
    """Print one JSON object, nothing else."""


@command
def main(argv: Sequence[str] | None = None) -> int:
    options = only_options(Options, sys.argv[1:] if argv is None else argv, "growth", __doc__)
    result = growth(options.repeats, options.output)
    say(json.dumps(result) if options.json else table(result))
    return 0 if result["linear"] else 1


if __name__ == "__main__":
    sys.exit(main())
