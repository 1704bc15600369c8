"""python -m experiments.scale_out [CONFIG ...] [--clients N] [--repeats N] [--json]: rounds over several hosts.

Measured on this machine, in turns: a round of workload A of experiments.benchmark in one process with two devices, and
in two processes with one device and one core each, as two hosts would share it; and how long two processes take to add
up vectors, from which a message's latency and the bandwidth follow. Counted, from the traced rounds of the configs'
algorithms (by default one config of each paper): the bytes that a round's devices add up and gather, whatever their
number. Both together give the time of workload A's round on more hosts, each with one such core: a model, with the
network of this machine's loopback, and with one of 10 Gbit/s and 50 us.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from experiments.base.command import command
from experiments.base.terminal import say
from experiments.config.fields import Number
from experiments.config.options import only_options
from experiments.speed.scale_out import CONFIGS, measure, table


@dataclass(frozen=True)
class Options:
    """Of the command."""

    configs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="CONFIG")] = (
        CONFIGS
    )
    """Config whose algorithms' traffic is counted."""
    clients: Number = 60
    """Of a round."""
    repeats: Number = 7
    """Turns."""
    json: bool = False
    """Print one JSON object, nothing else."""


@command
def main(argv: Sequence[str] | None = None) -> int:
    options = only_options(Options, sys.argv[1:] if argv is None else argv, "scale_out", __doc__)
    result = measure(options.configs, options.clients, options.repeats)
    say(json.dumps(result) if options.json else table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
