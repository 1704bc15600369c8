"""python -m experiments.benchmark_page FILE ... [--output DIR]: a table and two pictures of benchmarks.

Each FILE holds the object of one `python -m experiments.benchmark --json`. Writes benchmark.md, shares.png (of what
limits a workload: the matrix product, or a copy) and peers.png (our speed over that of others).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from experiments.base.command import command
from experiments.base.terminal import say
from experiments.config.options import only_options
from experiments.speed.page import write


@dataclass(frozen=True)
class Options:
    """Of the command."""

    files: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FILE")]
    """Objects of experiments.benchmark --json, one each."""
    output: Path = Path()
    """Folder to write into."""


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = sys.argv[1:] if argv is None else argv
    options = only_options(Options, args, "benchmark_page", __doc__)
    say(write(options.files, options.output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
