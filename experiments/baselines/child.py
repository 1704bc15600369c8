"""A rival's process: `python -P child.py MODULE SETTINGS`, MODULE being a file of this folder, SETTINGS as JSON.

It prints one JSON line about itself once everything has run for the first time: {"versions", "threads", "parameters",
"notes", "runs"}. Then it waits for the name of a run per line and answers each with {"seconds", "peak_memory_mb"}.
While it waits it is blocked on the pipe, so that its threads do not compete with those of others. As it also runs in
the simulators' own virtual environments, it imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple


class Settings(NamedTuple):
    """What a rival is asked to do.

    Attributes:
      workload: the fields of `Images`, `Records` or `Transform`.
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
      runs: by name; each does a round, or a step, and returns when its results are there.
      parameters: of the model.
      packages: whose versions are reported, the rival's own first.
      notes: what is not the same as in our round, one sentence each.
    """

    runs: dict[str, Callable[[], Any]]
    parameters: int
    packages: tuple[str, ...]
    notes: tuple[str, ...] = ()


def main(module: str, given: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    settings = Settings(**json.loads(given))
    workload = SimpleNamespace(**settings.workload)
    baseline = _imported(module).build(settings._replace(workload=workload))
    for run in baseline.runs.values():
        run()
    about = {
        "versions": {name: metadata.version(name) for name in baseline.packages},
        "threads": settings.threads,
        "parameters": baseline.parameters,
        "notes": baseline.notes,
        "runs": list(baseline.runs),
    }
    print(json.dumps(about), file=answers, flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        baseline.runs[line.strip()]()
        seconds = time.perf_counter() - began
        answer = {"seconds": seconds, "peak_memory_mb": peak_memory_of_all_mb()}
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)  # no waiting for threads of a simulator


def _imported(module: str) -> Any:
    """`experiments.baselines.MODULE`, without a folder on the path that may hold the packages of another Python."""
    folder = Path(__file__).resolve().parents[1]
    spec = importlib.util.spec_from_file_location(
        "experiments", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec
    sys.modules["experiments"] = importlib.util.module_from_spec(spec)
    return importlib.import_module(f"experiments.baselines.{module}")


def peak_memory_mb() -> float:
    """Of this process so far, in megabytes (10^6 bytes) of main memory."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def peak_memory_of_all_mb() -> float:
    """Also of the processes it has started (on Linux); their peaks are added up, shared pages counted in each."""
    return peak_memory_mb() + sum(map(_peak_kib, _descendants(os.getpid()))) * 1024 / 1e6


def _descendants(pid: int) -> Iterator[int]:
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that has ended
            for child in map(int, path.read_text().split()):
                yield child
                yield from _descendants(child)


def _peak_kib(pid: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0


if __name__ == "__main__":
    main(*sys.argv[1:])
