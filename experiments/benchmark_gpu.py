"""python -m experiments.benchmark_gpu [--minutes M] [--data-dir DIR] [--tiny]: what a GPU is to tell, in one call

Every workload of experiments.benchmark at three precisions of float32 products (highest, TF32, bfloat16), at the first
beside PyTorch where that is installed, with the share of what limits it; 300 rounds of pfl-research's CIFAR-10
benchmark at each; and, with the time that is left, Fed-SMP's Table 1 with five seeds at the first two. Each part is a
command in a process of its own, whose output is kept (OUTPUT/PART.json or .txt); gpu.json says what each took, how it
ended, and what there was no time for. Nothing is refused on a CPU, where --tiny tries every part.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.base.command import Parser, command
from experiments.speed.gpu import measure


@command
def main(argv: Sequence[str] | None = None) -> int:
    details = (__doc__ or "").partition("\n\n")[2]
    parser = Parser(prog="python -m experiments.benchmark_gpu", description=details)
    add = parser.add_argument
    add("--minutes", type=float, default=9.5, metavar="M", help="in all (default: 9.5)")
    data_dir = "prepared data, for all that trains on images"
    add("--data-dir", type=Path, metavar="DIR", help=data_dir)
    add("--output", type=Path, default=Path("runs/gpu"), metavar="DIR")
    add("--tiny", action="store_true", help="two clients, one turn, Table 1 at 1/100")
    args = parser.parse_args(argv)
    parts = measure(args.output, minutes=args.minutes, data_dir=args.data_dir, tiny=args.tiny)
    print(args.output / "gpu.json")
    return int(any(part["ended"].startswith("exit") for part in parts.values()))


if __name__ == "__main__":
    sys.exit(main())
