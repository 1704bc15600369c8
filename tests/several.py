"""Several processes on this machine, for tests: started together, waited for, and ended whatever happens."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PATIENCE = 600  # seconds; a loaded machine compiles slowly


class Ended(NamedTuple):
    """What a process left."""

    code: int
    out: str
    err: str


def free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return server.getsockname()[1]


def options(coordinator: str, count: int, process: int) -> list[str]:
    """The launcher's, for one of `count` processes."""
    told = {"coordinator": coordinator, "num-processes": count, "process-id": process}
    return [text for name, value in told.items() for text in (f"--{name}", str(value))]


def slurm(process: int, count: int, port: int) -> dict[str, str]:
    """What `srun` sets for one of `count` tasks, and the port that JAX would derive from the job's number."""
    told = {"JOB_ID": 7, "STEP_NODELIST": "127.0.0.1", "NTASKS": count, "STEP_NUM_TASKS": count}
    told |= {"PROCID": process, "LOCALID": process}
    return {f"SLURM_{name}": str(value) for name, value in told.items()} | {
        "JAX_COORDINATOR_PORT": str(port)
    }


def environment() -> dict[str, str]:
    """Of processes that compile as the fixture `quick_to_compile` does, so that programs are the same to the bit."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    own = os.environ | {"PYTHONPATH": path, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    # JAX writes an entry in place: another process may read half of it, and compiles the program itself.
    own |= {"PYTHONWARNINGS": "ignore:Error reading persistent compilation cache"}
    # All but how many devices there are.
    flags = [f for f in own.pop("XLA_FLAGS", "").split() if "device_count" not in f]
    return own | ({"XLA_FLAGS": " ".join(flags)} if flags else {})


@contextlib.contextmanager
def started(
    arguments: Sequence[Sequence[object]], environments: Sequence[dict[str, str]] | None = None
) -> Iterator[list[subprocess.Popen]]:
    """Python with each of the arguments, at once; none of them outlives the context."""
    own, processes = environment(), []
    try:
        for i, args in enumerate(arguments):
            processes.append(
                subprocess.Popen(
                    [sys.executable, *map(str, args)],
                    env=own | (environments[i] if environments else {}),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def ended(processes: Sequence[subprocess.Popen]) -> list[Ended]:
    """Waits for all of them."""
    found = []
    for process in processes:
        out, err = process.communicate(timeout=PATIENCE)
        found.append(Ended(process.returncode, out, err))
    return found


def wait_for(condition: Callable[[], bool], process: subprocess.Popen) -> bool:
    """Waits until the condition holds; False where the process has ended before."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until
        if process.poll() is not None:
            return False
        time.sleep(0.002)
    return True
