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

from experiments.base.command import Parser, command
from experiments.speed.benchmark import STEPS, WORKLOADS, measure, table


@command
def main(argv: Sequence[str] | None = None) -> int:
    details = (__doc__ or "").partition("\n\n")[2]
    parser = Parser(prog="python -m experiments.benchmark", description=details)
    add = parser.add_argument
    names = [*WORKLOADS, *STEPS]
    add("--workload", default="A", choices=names, metavar="W", help="A (default) to G")
    add("--clients", type=int, metavar="N", help="a smaller cohort, for a quick look")
    add("--repeats", type=int, default=3, metavar="N", help="turns (default: 3)")
    add("--devices", type=int, metavar="N", help="default: all; on CPU one per core")
    add("--torch", action="store_true", help="also time PyTorch")
    add("--peers", action="store_true", help="also time PyTorch and other simulators (on CPU)")
    add("--json", action="store_true", help="print one JSON object, nothing else")
    args = parser.parse_args(argv)
    result = measure(
        args.workload,
        clients=args.clients,
        repeats=args.repeats,
        devices=args.devices,
        torch=args.torch,
        peers=args.peers,
    )
    print(json.dumps(result) if args.json else table(result))
    return int("unavailable" in result.get("torch", {}))


if __name__ == "__main__":
    sys.exit(main())
