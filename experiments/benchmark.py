"""python -m experiments.benchmark [--workload W] [--torch] [--peers] [--json]: how fast a round is on this machine.

Workload A: a round of DP-FedAvg with 100 clients of 10 images (random bytes of Fashion-MNIST's shape), Fed-SMP's CNN of
1,663,370 parameters, 10 local SGD steps with momentum on batches of 10, clipping and noise. Workload B: a round of
DP-SCAFFOLD with 20 of 100 clients of 4,000 records, logistic regression of 40 features and 10 classes, 50 local steps
on exact subsets of 800 records, the gradient of each record clipped, and noise. Both are set against the rate that
JAX's own float32 matrix product reaches on the same devices. Workload C, on one device: the Haar transform of
[256, 32768] numbers set against a copy, and DP-SGD's step with noise on Haar coefficients set against one without, a
CNN of 28,874 parameters on 64 records. Workload D: A with that small CNN. Workload E: A with the quickstart's network
and images, 4,810 parameters. Workload F: rounds of DP-FedAvg with 10 clients of 4 texts of 80 characters, Fed-SMP's
LSTM of 820,522 parameters, 3 steps each. Workload G, on one device: DP-SGD's step of a transformer of 1,024,986
parameters on 32 texts of 80 characters, beside its gradient without privacy.

--torch sets each against plain PyTorch, --peers also against other simulators: fedjax, pfl and, in A, flower; in C and
G, where these have no such step, against jax_privacy and Opacus. Peers with pins of their own (requirements/ in
experiments/speed/rivals) get virtual environments under ~/.cache/fedpriv/peers (or FEDPRIV_PEERS_DIR), which the first
run builds from the package index: up to 1.5 GB each, more where PyTorch comes with CUDA. One that cannot be built, or
fails, is left out with a word why. Rivals have as many threads as we have devices; a single JAX device uses all cores
it may, so pin all to one core for a fair comparison of one: taskset -c 1 python -m experiments.benchmark --peers.

All take turns in one run, so that other load on the machine hits all alike; medians (lowest to highest). ratio_to_X is
our speed over that of X's fastest run, in C and G over that of the same run, turn by turn: above 1, fedpriv is faster.

In the object of --json a spread is {"median", "min", "max", "all"}. "ratio_to_X" is the median and "ratios_to_X" the
spread; in C and G "ratios_to_X" alone, with a spread for each run that X has, too, by the run's name.

Exit code 2 means that something given was wrong, 1 that PyTorch failed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from experiments.base.command import command
from experiments.base.terminal import say
from experiments.config.fields import Number
from experiments.config.options import only_options
from experiments.speed.benchmark import measure, table


@dataclass(frozen=True)
class Options:
    """Of the command."""

    workload: Literal["A", "B", "C", "D", "E", "F", "G"] = "A"
    """See above."""
    clients: Number | None = None
    """A smaller cohort, for a quick look."""
    repeats: Number = 3
    """Turns."""
    devices: Number | None = None
    """By default all; on CPU one per core."""
    torch: bool = False
    """Also time PyTorch."""
    peers: bool = False
    """Also time PyTorch and other simulators (on CPU)."""
    json: bool = False
    """Print one JSON object, nothing else."""


@command
def main(argv: Sequence[str] | None = None) -> int:
    options = only_options(Options, sys.argv[1:] if argv is None else argv, "benchmark", __doc__)
    result = measure(
        options.workload,
        clients=options.clients,
        repeats=options.repeats,
        devices=options.devices,
        torch=options.torch,
        peers=options.peers,
    )
    say(json.dumps(result) if options.json else table(result))
    return int("unavailable" in result.get("torch", {}))


if __name__ == "__main__":
    sys.exit(main())
