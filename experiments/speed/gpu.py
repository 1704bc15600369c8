"""python -m experiments.benchmark gpu [--parts P ...] [--precision P]: what a GPU is to tell, in one call.

Parts, in this order, each with a limit of time: smoke (workload H, small, beside all rivals); E, D and A beside
PyTorch's loop, vmap and CUDA graphs and pfl; lora and all (workloads I and J: adapters, or all parameters, of a
transformer of 98 million); tests (of the mathematics and of certificates); H (its DP-SGD step beside PyTorch, Opacus,
ghost clipping and jax_privacy). They are thought to take eight minutes, and end after --minutes. Others run where
--parts names them: B, C, F, G; H64 and H256 (larger lots); with --data-dir cifar10 (300 rounds of pfl-research's
benchmark) and table1 (of Fed-SMP, five seeds). What the workloads are: experiments.benchmark rounds --help and large
--help.

Products of float32 numbers are TF32 for all, or as --precision says (see rounds --help); in tests float32. Each part
is a command in a process of its own, which is stopped with all that it started when its time is over. When it ends,
OUTPUT/parts.jsonl gets a line: {"part", "ended", "seconds", "expected", "limit", "precision", "command", "result" (the
object that it printed) or "printed" (its last lines), "said" (its last complaints, and times so far)}. Times to
compile are in the results: compile_seconds, ready_seconds. Nothing is refused on a CPU, where --sizes small tries
every part.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any, Literal

from experiments.speed.gpu_parts import EVERY, PARTS, Part, words
from fedpriv.core.arguments import Range
from fedpriv.experiments.base.terminal import say

ROOT = Path(__file__).parents[2]
MOST = 600  # seconds of a small part, whatever the machine
LAST = 60  # lines of what a part printed or said
Minutes = Annotated[float, Range("a number above 0, and at most a day's 1440", 0, 1440, (0,))]


@dataclass(frozen=True)
class Options:
    """Options of the command `benchmark gpu`."""

    parts: tuple[str, ...] = ()
    """By default those that come first above."""
    precision: Literal["tensorfloat32", "highest", "BF16_BF16_F32"] = "tensorfloat32"
    """Of products; PyTorch has TF32 in place of the last."""
    minutes: Minutes = 9.5
    """In all; what has not begun then is left out."""
    data_dir: Path | None = None
    """Prepared data, for cifar10 and table1."""
    output: Path = Path("runs/gpu")
    """Folder to write into."""
    sizes: Literal["large", "small"] = "large"
    """Small: two clients or layers, one turn."""


def main(options: Options) -> int:
    lines = measure(options)
    say(options.output / "parts.jsonl")
    return int(any(line["ended"].startswith("exit") for line in lines))


def measure(options: Options) -> list[dict[str, Any]]:
    """Runs each part and writes its line; returns the lines.

    Raises:
      ValueError: a part that is not known, or that needs data.
    """
    chosen, small = _chosen(options), options.sizes == "small"
    options.output.mkdir(parents=True, exist_ok=True)
    output, data = options.output.absolute(), options.data_dir and options.data_dir.absolute()
    ends = time.monotonic() + 60 * options.minutes
    found = []
    with open(output / "parts.jsonl", "w") as file:
        for name, part in chosen.items():
            command, limit = words(part, data, output, small), MOST if small else part.limit
            precision = "highest" if name == "tests" else options.precision
            about = {"part": name, "expected": part.expected, "limit": limit}
            about |= {"precision": precision, "command": " ".join(command)}
            seconds = min(limit, ends - time.monotonic())
            found.append(about | ended(command, precision, seconds))
            print(json.dumps(found[-1]), file=file, flush=True)
            say(f"{name}: {found[-1]['ended']} after {found[-1]['seconds']:.0f} s")
    return found


def _chosen(options: Options) -> Mapping[str, Part]:
    chosen = {name: EVERY.get(name) for name in options.parts or PARTS}
    known = {name: part for name, part in chosen.items() if part}
    if unknown := set(chosen) - set(known):
        raise ValueError(f"parts: there is no {min(unknown)!r}; choose some of {', '.join(EVERY)}")
    needy = [name for name, part in known.items() if part.needs_data]
    if needy and options.data_dir is None:
        raise ValueError(f"data_dir: {needy[0]} needs prepared data; say where it is")
    return known


def ended(command: list[str], precision: str, seconds: float) -> dict[str, Any]:
    """What came of a part's command, {"ended", "seconds", "result" or "printed", "said"}."""
    if seconds <= 0:
        return {"ended": "no time left", "seconds": 0.0}
    env = os.environ | {"JAX_DEFAULT_MATMUL_PRECISION": precision}
    env["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # a part's processes share the GPU
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdout=out, stderr=complaints, env=env, cwd=ROOT, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(timeout=seconds)
            how = f"exit code {code}" if code else "done"
        except subprocess.TimeoutExpired:
            how = "out of time"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its rivals, too
            process.wait()
        took = time.monotonic() - began
        return {"ended": how, "seconds": took, **_printed(out), "said": _last(complaints)}


def _printed(out: IO[str]) -> dict[str, Any]:
    """The object of a benchmark's --json, or the last lines of anything else."""
    printed = _last(out)
    with contextlib.suppress(ValueError, IndexError):
        return {"result": json.loads(printed[-1])}
    return {"printed": printed}


def _last(file: IO[str]) -> list[str]:
    file.seek(0)
    return file.read().splitlines()[-LAST:]
