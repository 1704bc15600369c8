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

from experiments.base.command import Parser, command
from experiments.speed.scale_out import CONFIGS, measure, table


@command
def main(argv: Sequence[str] | None = None) -> int:
    details = (__doc__ or "").partition("\n\n")[2]
    parser = Parser(prog="python -m experiments.scale_out", description=details)
    add = parser.add_argument
    add("configs", nargs="*", metavar="CONFIG", help=f"default: {' '.join(CONFIGS)}")
    add("--clients", type=int, default=60, metavar="N", help="of a round (default: 60)")
    add("--repeats", type=int, default=7, metavar="N", help="turns (default: 7)")
    add("--json", action="store_true", help="print one JSON object, nothing else")
    args = parser.parse_args(argv)
    result = measure(args.configs or CONFIGS, args.clients, args.repeats)
    print(json.dumps(result) if args.json else table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
