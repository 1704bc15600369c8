"""A rival's process: `python -P child.py MODULE SETTINGS`, MODULE being a file of this folder, SETTINGS as JSON.

It prints one JSON line about itself once everything has run for the first time: {"versions", "threads", "parameters",
"notes", "runs"}, and "findings" where there are any. Then it waits for the name of a run per line and answers each
with {"seconds", "cpu_seconds", "peak_memory_mb"}, the second being processor time of all its threads. While it waits it
is blocked on the pipe, so that its threads do not compete with those of others. As it also runs in the simulators' own
virtual environments, it needs nothing but the standard library and this folder.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple


class Settings(NamedTuple):
    """What a rival is asked to do.

    Attributes:
      workload: the fields of the workload's class.
      clients: in a round.
      threads: that it may use.
      device: "cpu" or "cuda".
    """

    workload: Any
    clients: int
    threads: int
    device: str


class Baseline(NamedTuple):
    """A rival, ready to run.

    Attributes:
      runs: by name; each starts a round, or a step, and returns its results, which may not be there yet.
      parameters: of the model.
      packages: whose versions are reported, the rival's own first.
      notes: what is not the same as in our round, one sentence each.
      findings: of what is not timed.
    """

    runs: dict[str, Callable[[], Any]]
    parameters: int
    packages: tuple[str, ...]
    notes: tuple[str, ...] = ()
    findings: Any = None


def main(module: str, given: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    settings = Settings(**json.loads(given))
    workload = SimpleNamespace(**settings.workload)
    _make_importable()
    memory = importlib.import_module("experiments.speed.rivals.memory")
    rival = importlib.import_module(f"experiments.speed.rivals.{module}")
    baseline = rival.build(settings._replace(workload=workload))
    for run in baseline.runs.values():
        _wait(run())
    about = {
        "versions": {name: metadata.version(name) for name in baseline.packages},
        "threads": settings.threads,
        "parameters": baseline.parameters,
        "notes": baseline.notes,
        "runs": list(baseline.runs),
    } | ({"findings": baseline.findings} if baseline.findings else {})
    print(json.dumps(about), file=answers, flush=True)
    for line in sys.stdin:
        began, used = time.perf_counter(), time.process_time()
        _wait(baseline.runs[line.strip()]())
        seconds, cpu = time.perf_counter() - began, time.process_time() - used
        answer = {"seconds": seconds, "cpu_seconds": cpu, "peak_memory_mb": memory.peak_of_all_mb()}
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)  # no waiting for threads of a simulator


def _wait(results: Any) -> None:
    """Until the device is done, whichever library gave it the work."""
    if jax := sys.modules.get("jax"):
        jax.block_until_ready(results)
    if (torch := sys.modules.get("torch")) and torch.cuda.is_available():
        torch.cuda.synchronize()


def _make_importable() -> None:
    """This package, without a folder on the path that may hold the packages of another Python."""
    folder = Path(__file__).resolve().parents[2]
    spec = importlib.util.spec_from_file_location(
        "experiments", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec
    sys.modules["experiments"] = importlib.util.module_from_spec(spec)


if __name__ == "__main__":
    main(*sys.argv[1:])
