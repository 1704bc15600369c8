"""The parent's side: starts the rivals of a workload and asks each in turn for its runs."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from typing import Any

from experiments.speed.rivals import child, environments
from experiments.speed.rivals.child import Settings
from experiments.speed.timing import medians

TORCH = {
    "A": "torch_images",
    "B": "torch_records",
    "C": "torch_steps",
    "D": "torch_images",
    "E": "torch_images",
    "F": "torch_texts",
    "G": "torch_attention",
}

_IMAGES = {"fedjax": "fedjax_images", "pfl": "pfl_images", "flower": "flower_images"}
PEERS: dict[str, dict[str, str]] = {
    "A": _IMAGES,
    "B": {"fedjax": "fedjax_records", "pfl": "pfl_records"},
    "C": {"jax_privacy": "jax_privacy_steps", "opacus": "opacus_steps"},
    "D": _IMAGES,
    "E": _IMAGES,
    "F": {},
    "G": {"jax_privacy": "jax_privacy_attention", "opacus": "opacus_attention"},
}
"""The file of each simulator or library, by workload and name."""

_NO_STEP = {
    name: "has no step that clips the gradient of each record and adds noise"
    for name in ("fedjax", "pfl", "flower")
}
ABSENT = {"B": {"flower": "has no SCAFFOLD"}, "C": _NO_STEP, "G": _NO_STEP}

_PATIENCE = 900  # seconds for an answer; the first one includes compilation


class Rival:
    """A process that answers; `child` is its side."""

    def __init__(self, module: str, settings: Settings, python: str = sys.executable):
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        command = [python, "-P", child.__file__, module, json.dumps(settings._asdict())]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=_environment(settings, python),
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


def _environment(settings: Settings, python: str) -> dict[str, str]:
    """The rival's environment variables: our threads and device, without what is meant for this process alone."""
    env = dict(os.environ)
    env.pop("XLA_FLAGS", None)  # those of `split_cpu`; an older XLA ends over an unknown one
    if python != sys.executable:
        env.pop("PYTHONPATH", None)
    env["OMP_NUM_THREADS"] = str(settings.threads)
    if settings.device == "cpu":
        env |= {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    return env


class Rivals:
    """All rivals of a workload. One that fails is left out from then on.

    Attributes:
      failures: why, by name.
    """

    def __init__(self, workload: str, torch: bool, peers: bool, settings: Settings):
        """Starts them one by one; each has run everything once when this returns."""
        modules = {"torch": TORCH[workload]} if torch else {}
        modules |= PEERS[workload] if peers else {}
        self.failures = dict(ABSENT.get(workload, {})) if peers else {}
        self._alive: dict[str, Rival] = {}
        self._about: dict[str, dict[str, Any]] = {}
        self._times: dict[str, dict[str, list[float]]] = {}
        for name, module in modules.items():
            try:
                own = name in environments.PINS
                python = environments.python_of(name) if own else sys.executable
                self._alive[name] = Rival(module, settings, python)
                self._about[name] = self._alive[name].about()
                self._times[name] = {run: [] for run in self._about[name]["runs"]}
            except ChildProcessError as error:
                self._drop(name, error)

    def once(self) -> None:
        """Every run of every rival, one after another."""
        for name, rival in list(self._alive.items()):
            try:
                for run, times in self._times[name].items():
                    answer = rival.run(run)
                    times.append(answer["seconds"])
                    self._about[name]["peak_memory_mb"] = answer["peak_memory_mb"]
            except ChildProcessError as error:
                self._drop(name, error)

    def about(self) -> dict[str, dict[str, Any]]:
        """Of those that have not failed: what they say about themselves and the peak of their memory."""
        return {name: self._about[name] for name in self._alive}

    def seconds(self, name: str, group: int = 1) -> dict[str, list[float]]:
        """The times of a rival's runs: medians of each `group` calls of `once`."""
        return {run: medians(times, group) for run, times in self._times[name].items()}

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
