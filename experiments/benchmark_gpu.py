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
from dataclasses import dataclass
from pathlib import Path

from experiments.base.command import command
from experiments.base.terminal import say
from experiments.config.options import only_options
from experiments.speed.gpu import measure
from fedpriv.core.arguments import Positive


@dataclass(frozen=True)
class Options:
    """Of the command."""

    minutes: Positive = 9.5
    """In all."""
    data_dir: Path | None = None
    """Prepared data, for all that trains on images."""
    output: Path = Path("runs/gpu")
    """Folder to write into."""
    tiny: bool = False
    """Two clients, one turn, Table 1 at 1/100."""


@command
def main(argv: Sequence[str] | None = None) -> int:
    options = only_options(
        Options, sys.argv[1:] if argv is None else argv, "benchmark_gpu", __doc__
    )
    parts = measure(
        options.output, minutes=options.minutes, data_dir=options.data_dir, tiny=options.tiny
    )
    say(options.output / "gpu.json")
    return int(any(part["ended"].startswith("exit") for part in parts.values()))


if __name__ == "__main__":
    sys.exit(main())
