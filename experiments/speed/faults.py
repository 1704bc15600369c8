"""The command `faults`: planted faults, and what fedpriv, jax_privacy and Opacus say to each.

As rows of a table: the error or warning, in its words, or the epsilon that is printed for the faulty program. fedpriv's
programs are those of tests/test_faults.py and tests/test_measured_faults.py. Opacus runs in an environment of its own
(`environments`); all on a CPU.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

import fedpriv as fp
from experiments.speed.rivals import environments
from experiments.speed.rivals.child import Settings
from experiments.speed.rivals.planted import DELTA, STEPS
from experiments.speed.rivals.rival import Rival


def shortened(message: str) -> str:
    """Without places in a file, a leaf's whole path and what to do about it."""
    message = re.sub(r" \(\w+\.py:\d+\)| in \w+\.py:\d+|, past every release", "", message)
    message = re.sub(r"\b(state\.params)(\['\w+'\])+", r"\1", message)
    return re.sub(r"(\.\d{3})\d+", r"\1", message.split(";")[0])


def _checked(tests: Any, algorithm: Any) -> str:
    try:
        fp.check_algorithm(algorithm, tests.PARAMS, tests.FEDERATION)
    except ValueError as error:
        return f"`{shortened(str(error))}`"
    return "nothing"


def _certified(tests: Any, algorithm: Any) -> str:
    try:
        certificate = fp.certify(algorithm, tests.PARAMS, tests.FEDERATION, STEPS, DELTA)
    except ValueError:
        return "refused"
    return f"{certificate.epsilon:.3g}, {certificate.basis}"


def _asked(module: str, python: str) -> dict[str, Any]:
    rival = Rival(module, Settings({}, 0, 1, "cpu"), python)
    try:
        return rival.about()
    finally:
        rival.close()


def main() -> None:
    """Prints the table.

    Raises:
      ChildProcessError: a library cannot be asked.
    """
    others = [
        _asked("jax_privacy_faults", sys.executable),
        _asked("opacus_faults", environments.python_of("opacus")),
    ]
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
    jax.config.update("jax_disable_most_optimizations", True)  # many tiny programs
    import test_faults as tests
    import test_measured_faults

    faults = tests.FAULTS | test_measured_faults.FAULTS

    print("| fault | fedpriv: `check_algorithm` | fedpriv: `certify` | jax_privacy | Opacus |")
    print("|---|---|---|---|---|")
    first, last = (each["findings"] for each in others)
    ours = f"nothing | {_certified(tests, tests.fed_avg())}"
    print(f"| (none) | {ours} | {first['epsilon']:.3g} | {last['epsilon']:.3g} |")
    for fault in first["said"]:
        algorithm, _ = faults[fault]
        ours = f"{_checked(tests, algorithm)} | {_certified(tests, algorithm)}"
        print(f"| {fault} | {ours} | {first['said'][fault]} | {last['said'][fault]} |")
    versions = {name: metadata.version(name) for name in ("fedpriv", "jax")}
    for each in others:
        versions |= each["versions"]
    print("\n" + ", ".join(f"{name} {version}" for name, version in versions.items()))
