"""python -m experiments.benchmark gpu [--minutes M] [--data-dir DIR] [--tiny]: what a GPU is to tell, in one call.

Every workload at three precisions of float32 products (highest, TF32, bfloat16), at the first
beside PyTorch where that is installed, with the share of what limits it; 300 rounds of pfl-research's CIFAR-10
benchmark at each; and, with the time that is left, Fed-SMP's Table 1 with five seeds at the first two. Each part is a
command in a process of its own, whose output is kept (OUTPUT/PART.json or .txt); gpu.json says what each took, how it
ended, and what there was no time for. Nothing is refused on a CPU, where --tiny tries every part.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from experiments.base.files import write_text
from experiments.base.terminal import say
from experiments.speed.workloads import WORKLOADS
from fedpriv.core.arguments import Range

PRECISIONS = ("highest", "tensorfloat32", "bfloat16")
STEPS = ("C", "G")
Minutes = Annotated[float, Range("a number above 0, and at most a day's 1440", 0, 1440, (0,))]


@dataclass(frozen=True)
class Options:
    """Options of the command `benchmark gpu`."""

    minutes: Minutes = 9.5
    """In all."""
    data_dir: Path | None = None
    """Prepared data, for all that trains on images."""
    output: Path = Path("runs/gpu")
    """Folder to write into."""
    tiny: bool = False
    """Two clients, one turn, Table 1 at 1/100."""


def main(options: Options) -> int:
    parts = measure(options)
    say(options.output / "gpu.json")
    return int(any(part["ended"].startswith("exit") for part in parts.values()))


class Part(NamedTuple):
    """A part of `benchmark gpu`: a command, `python -m experiments.` before it, and the precision that it runs at."""

    name: str
    words: list[str]
    precision: str


def measure(options: Options) -> dict[str, dict[str, Any]]:
    """Runs each part; writes gpu.json, after each, and what the parts print into the output folder.

    Returns:
      {"ended", "seconds"} by part.
    """
    output, found = options.output, dict[str, dict[str, Any]]()
    output.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + 60 * options.minutes
    for part in parts(options.data_dir, output, options.tiny):
        found[part.name] = measured(part, output, ends - time.monotonic())
        print(f"{part.name}: {found[part.name]['ended']}", file=sys.stderr)
        write_text(output / "gpu.json", json.dumps(found, indent=2) + "\n")
    return found


def parts(data: Path | None, output: Path, tiny: bool) -> Iterator[Part]:
    """The parts of `benchmark gpu`, in the order of their use to a reader."""
    for precision in PRECISIONS:
        beside = precision == PRECISIONS[0] and importlib.util.find_spec("torch")
        torch = ["--torch"] if beside else []
        for workload in [*WORKLOADS, *STEPS]:
            words = ["benchmark", "rounds", "--workload", workload, "--json", *torch]
            words += ["--repeats", "1" if tiny else "7"]
            if tiny and workload not in STEPS:
                words += ["--clients", "2"]
            yield Part(f"{workload}-{precision}", words, precision)
        if data:
            words = ["run", "pfl_cifar10", "--data-dir", str(data), "--keep-model", "false"]
            words += ["--output", str(output / f"pfl_cifar10-{precision}-run"), "--rounds"]
            words += ["2", "--clients", "10", "--cohort", "2"] if tiny else ["300", "--every", "50"]
            yield Part(f"pfl_cifar10-{precision}", words, precision)
        if data and precision != "bfloat16":
            words = ["reproduce", "fed_smp", "table1", "--data-dir", str(data)]
            words += ["--output", str(output / f"table1-{precision}")]
            words += ["--scale", "0.01"] if tiny else ["--seeds", "5"]
            yield Part(f"table1-{precision}", words, precision)


def measured(part: Part, output: Path, seconds: float) -> dict[str, Any]:
    """What came of a part of `benchmark gpu`, {"ended", "seconds"}; what it printed is in its file."""
    if seconds <= 0:
        return {"ended": "no time left", "seconds": 0.0}
    module, *words = part.words
    env = os.environ | {"JAX_DEFAULT_MATMUL_PRECISION": part.precision}
    suffix = "json" if "--json" in words else "txt"
    began = time.monotonic()
    with open(output / f"{part.name}.{suffix}", "w") as file:
        try:
            done = subprocess.run(
                [sys.executable, "-m", f"experiments.{module}", *words],
                stdout=file, stderr=subprocess.PIPE, env=env, timeout=seconds, text=True, check=False,
            )  # fmt: skip
            said = done.stderr.strip().splitlines()[-1:] if done.returncode else []
            ended = f"exit code {done.returncode}: {''.join(said)}" if done.returncode else "done"
        except subprocess.TimeoutExpired:
            ended = "out of time"
    return {"ended": ended, "seconds": time.monotonic() - began}
