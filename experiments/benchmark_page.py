"""python -m experiments.benchmark_page FILE ... [--output DIR]: a table and two pictures of benchmarks.

Each FILE holds the object of one `python -m experiments.benchmark --json`. Writes benchmark.md, shares.png (of what
limits a workload: the matrix product, or a copy) and peers.png (our speed over that of others).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.base.command import Parser, command
from experiments.speed.page import write


@command
def main(argv: Sequence[str] | None = None) -> int:
    details = (__doc__ or "").partition("\n\n")[2]
    parser = Parser(prog="python -m experiments.benchmark_page", description=details)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--output", type=Path, default=Path(), metavar="DIR", help="default: here")
    args = parser.parse_args(argv)
    print(write(args.files, args.output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
