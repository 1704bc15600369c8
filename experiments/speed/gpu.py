"""All that a GPU is to tell, each part a command in a process of its own: `experiments.benchmark_gpu`."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from experiments.base.files import write_text
from experiments.speed.workloads import WORKLOADS

PRECISIONS = ("highest", "tensorfloat32", "bfloat16")
STEPS = ("C", "G")
MOST = 24 * 60  # minutes


class Part(NamedTuple):
    """A command, `python -m experiments.` before it, and the precision that it runs at."""

    name: str
    words: list[str]
    precision: str


def measure(
    output: Path = Path("runs/gpu"),
    *,
    minutes: float = 9.5,
    data_dir: Path | None = None,
    tiny: bool = False,
) -> dict[str, dict[str, Any]]:
    """Runs each part and writes gpu.json, after each, and what the parts print into `output`.

    Args:
      minutes: in all.
      data_dir: prepared data, for all that trains on images.
      tiny: two clients, one turn, Table 1 at 1/100.

    Returns:
      {"ended", "seconds"} by part.

    Raises:
      ValueError: the minutes are out of range.
    """
    if not 0 < minutes <= MOST:
        raise ValueError(f"minutes: {minutes:g} is not above 0, and at most {MOST}")
    output.mkdir(parents=True, exist_ok=True)
    ends, found = time.monotonic() + 60 * minutes, {}
    for part in parts(data_dir, output, tiny):
        found[part.name] = measured(part, output, ends - time.monotonic())
        print(f"{part.name}: {found[part.name]['ended']}", file=sys.stderr)
        write_text(output / "gpu.json", json.dumps(found, indent=2) + "\n")
    return found


def parts(data: Path | None, output: Path, tiny: bool) -> Iterator[Part]:
    """In the order of their use to a reader."""
    for precision in PRECISIONS:
        beside = precision == PRECISIONS[0] and importlib.util.find_spec("torch")
        torch = ["--torch"] if beside else []
        for workload in [*WORKLOADS, *STEPS]:
            words = ["benchmark", "--workload", workload, "--json", *torch]
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
    """{"ended", "seconds"}; what it printed is in its file."""
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
