"""Runs a rival in a process of its own, which builds its training and then waits to be asked for rounds.

`python -P runner.py MODULE SETTINGS`, the settings as JSON, is that process. It prints one JSON line about itself once
everything has run for the first time: {"versions", "threads", "parameters", "notes", "runs"}. Then it waits for the
name of a run per line and answers each with {"seconds", "cpu_seconds", "peak_memory_mb"}, the second being processor
time of all its threads. While it waits it is blocked on the pipe, so that its threads do not compete with those of
others. As it also runs in other environments, this file needs nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

RIVALS = {
    "torch": "ABCDEFGH",
    "torch_vmap": "ADE",
    "fedjax": "ABDE",
    "pfl": "ABDE",
    "flower": "ADE",
    "jax_privacy": "CGH",
    "opacus": "CGH",
}
"""The workloads that each has; the first two are PyTorch itself, the others are its peers."""

_NO_STEP = {
    name: "has no step that clips the gradient of each record and adds noise"
    for name in ("fedjax", "pfl", "flower")
}
_NOT_ON_A_GPU = {
    "fedjax": "its pins are of a jaxlib for CPU alone",
    "flower": "its simulation is compared on CPU only",
}
ABSENT = {"B": {"flower": "has no SCAFFOLD"}, "C": _NO_STEP, "G": _NO_STEP}

REQUIREMENTS = Path(__file__).parent / "requirements"

_INSTALLED = "requirements.txt"  # what an environment holds; written last
_PATIENCE = 900  # seconds for an answer; the first one includes compilation


class Settings(NamedTuple):
    """What a rival is asked to do.

    Attributes:
      name: of the workload, one of the rival's `WORKLOADS`.
      workload: the fields of the workload's class.
      clients: in a round.
      threads: that it may use.
      device: "cpu" or "cuda".
      precision: of products of float32 numbers on a GPU, as JAX's jax_default_matmul_precision; "highest" is float32,
        everything else TF32 or less.
      run: the only one of its runs that is asked for; by default all.
    """

    name: str
    workload: Any
    clients: int
    threads: int
    device: str
    precision: str = "highest"
    run: str | None = None


class Baseline(NamedTuple):
    """A rival, ready to run.

    Attributes:
      runs: by name; each starts a round, or a step, and returns its results, which may not be there yet.
      parameters: of the model.
      packages: whose versions are reported, the rival's own first.
      notes: what is not the same as in our round, one sentence each.
    """

    runs: dict[str, Callable[[], Any]]
    parameters: int
    packages: tuple[str, ...]
    notes: tuple[str, ...] = ()


class Rival:
    """The process of a rival's module, as `main` runs it."""

    def __init__(self, module: str, settings: Settings, python: str = sys.executable):
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            [python, "-P", __file__, module, json.dumps(settings._asdict())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=_variables(settings, python),
        )

    def about(self) -> dict[str, Any]:
        """The line about itself; to be asked once, before any run.

        Raises:
          ChildProcessError: as `run`.
        """
        return self._answer()

    def run(self, name: str) -> dict[str, float]:
        """{"seconds", "cpu_seconds", "peak_memory_mb"} of one more run.

        Raises:
          ChildProcessError: the process ended or did not answer in time, with its last words.
        """
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # it has ended; the answer says why
            self._process.stdin.write(name + "\n")
            self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        self._process.kill()
        with contextlib.suppress(BrokenPipeError):  # what it was not there to read any more
            self._process.__exit__(None, None, None)
        self._process.wait()
        self._errors.close()

    def _answer(self) -> dict[str, Any]:
        out = self._process.stdout
        assert out
        if not select.select([out], [], [], _PATIENCE)[0]:
            raise ChildProcessError(f"no answer in {_PATIENCE} seconds")
        line = out.readline()
        if not line:
            code = self._process.wait()
            raise ChildProcessError(
                f"its process ended with exit code {code}: {self._last_words()}"
            )
        return json.loads(line)

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        return lines[-1] if lines else "no message"


class Rivals:
    """All rivals of a workload. One that fails is left out from then on.

    Attributes:
      failures: why, by name.
    """

    def __init__(self, torch: bool, peers: bool, settings: Settings):
        """Starts them one by one; each has run everything once when this returns."""
        gpu = _NOT_ON_A_GPU if settings.device == "cuda" else {}
        self.failures = ABSENT.get(settings.name, {}) | gpu if peers else {}
        self._alive: dict[str, Rival] = {}
        self._about: dict[str, dict[str, Any]] = {}
        self._times: dict[str, dict[str, list[float]]] = {}
        for name, workloads in RIVALS.items():
            asked = torch if name.startswith("torch") else peers
            if asked and settings.name in workloads and name not in self.failures:
                self._start(name, settings)

    def once(self, calls: int = 1) -> None:
        """Every run of every rival, one after another, each so many times."""
        for name, rival in list(self._alive.items()):
            try:
                for run, times in self._times[name].items():
                    for _ in range(calls):
                        answer = rival.run(run)
                        times.append(answer["seconds"])
                        self._about[name]["peak_memory_mb"] = answer["peak_memory_mb"]
            except ChildProcessError as error:
                self._drop(name, error)

    def about(self) -> dict[str, dict[str, Any]]:
        """Of those that have not failed: what they say about themselves and the peak of their memory."""
        return {name: self._about[name] for name in self._alive}

    def seconds(self, name: str) -> dict[str, list[float]]:
        """The times of a rival's runs, one for each call of `once`."""
        return self._times[name]

    def _start(self, name: str, settings: Settings) -> None:
        try:
            rival = Rival(f"{__package__}.{name}", settings, python_of(name, settings.device))
            self._alive[name] = rival
            self._about[name] = rival.about()
            self._times[name] = {run: [] for run in self._about[name]["runs"]}
        except ChildProcessError as error:
            self._drop(name, error)

    def _drop(self, name: str, error: ChildProcessError) -> None:
        self.failures[name] = str(error)
        print(f"{name}: {error}", file=sys.stderr)
        if name in self._alive:
            self._alive.pop(name).close()

    def __enter__(self) -> Rivals:
        return self

    def __exit__(self, *error: object) -> None:
        for rival in self._alive.values():
            rival.close()


def environment(name: str) -> Path:
    """The folder of a rival's virtual environment, whether it exists or not."""
    from fedpriv.core.files import user_cache

    chosen = os.environ.get("FEDPRIV_PEERS_DIR")
    folder = Path(chosen) if chosen else user_cache() / "peers"
    return folder.absolute() / f"{name}-python{sys.version_info[0]}.{sys.version_info[1]}"


def built(name: str) -> bool:
    """Whether a rival's environment is there, with what its requirements ask for; true of one that has none."""
    wanted, installed = _requirements(name), environment(name) / _INSTALLED
    if not wanted.exists():
        return True
    return installed.exists() and installed.read_text() == wanted.read_text()


def python_of(name: str, device: str = "cpu") -> str:
    """The Python of a rival's environment, built unless it is there; ours for one without requirements of its own.

    On a GPU ours, too, where it has the rival: its PyTorch is the one that fits the driver.

    Raises:
      ChildProcessError: it cannot be built, with the last complaint.
    """
    wanted, folder = _requirements(name), environment(name)
    if not wanted.exists() or (device == "cuda" and importlib.util.find_spec(name)):
        return sys.executable
    python = str(folder / "bin" / "python")
    if built(name):
        return python
    print(f"building {folder}", file=sys.stderr)
    try:
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        _run([python, "-m", "pip", "install", "--quiet", "-r", str(wanted)])
        shutil.copy(wanted, folder / _INSTALLED)
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise ChildProcessError(f"its environment cannot be built: {error}; see {wanted}") from None
    return python


def _requirements(name: str) -> Path:
    return REQUIREMENTS / f"{name}.txt"


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        lines = [line for line in (result.stdout + result.stderr).splitlines() if line.strip()]
        complaints = [line for line in lines if "error" in line.lower()] or lines
        last = complaints[-1].strip() if complaints else f"exit code {result.returncode}"
        raise subprocess.SubprocessError(f"{' '.join(command[1:3])}: {last}")


def _variables(settings: Settings, python: str) -> dict[str, str]:
    """The process's environment: our threads and device, without what is meant for this process alone."""
    env = dict(os.environ)
    env.pop("XLA_FLAGS", None)  # those of `split_cpu`; an older XLA ends over an unknown one
    if python != sys.executable:
        env.pop("PYTHONPATH", None)
    env["OMP_NUM_THREADS"] = str(settings.threads)
    env["JAX_TRACEBACK_FILTERING"] = "off"  # so that the error comes last
    if settings.device == "cpu":
        return env | {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # all take turns on one GPU
    return env | shared | {"JAX_DEFAULT_MATMUL_PRECISION": settings.precision}


def main(module: str, given: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    settings = Settings(**json.loads(given))
    workload = SimpleNamespace(**settings.workload)
    _make_importable()
    memory = importlib.import_module("experiments.speed.memory")
    build = importlib.import_module(module).WORKLOADS[settings.name]
    baseline = build(settings._replace(workload=workload))
    if settings.run:
        baseline = baseline._replace(runs={settings.run: baseline.runs[settings.run]})
    for run in baseline.runs.values():
        _wait(run())
    about = {
        "versions": {name: metadata.version(name) for name in baseline.packages},
        "threads": settings.threads,
        "parameters": baseline.parameters,
        "notes": baseline.notes,
        "runs": list(baseline.runs),
    }
    print(json.dumps(about), file=answers, flush=True)
    for line in sys.stdin:
        answer = spent(baseline.runs[line.strip()])
        answer["peak_memory_mb"] = _device_peak_mb(settings.device) or memory.peak_of_all_mb()
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)  # no waiting for threads of a simulator


def spent(run: Callable[[], Any]) -> dict[str, float]:
    """{"seconds", "cpu_seconds"} until the results are there; the second of all threads."""
    began, used = time.perf_counter(), time.process_time()
    _wait(run())
    return {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - used}


def _wait(results: Any) -> None:
    """Until the device is done, whichever library gave it the work."""
    if jax := sys.modules.get("jax"):
        jax.block_until_ready(results)
    if (torch := sys.modules.get("torch")) and torch.cuda.is_available():
        torch.cuda.synchronize()


def _device_peak_mb(device: str) -> float | None:
    """Megabytes (10^6 bytes) of a GPU's memory that tensors have had at most; None on CPU."""
    if device == "cpu":
        return None
    if torch := sys.modules.get("torch"):
        return torch.cuda.max_memory_allocated() / 1e6
    return sys.modules["jax"].local_devices()[0].memory_stats()["peak_bytes_in_use"] / 1e6


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
