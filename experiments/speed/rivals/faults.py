"""Planted faults, and what fedpriv, jax_privacy and Opacus say to each: `experiments.faults`."""

from __future__ import annotations

import re
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import jax

import fedpriv as fp
from experiments.speed.rivals.planted import DELTA, STEPS
from experiments.speed.rivals.runner import Rival, Settings, python_of


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


def _answers(name: str) -> dict[str, Any]:
    """What a library says: {"versions", "findings"}."""
    settings = Settings("faults", {}, 0, 1, "cpu")
    with closing(Rival(f"{__package__}.{name}_faults", settings, python_of(name))) as rival:
        return rival.about()


def compared() -> dict[str, Any]:
    """{"rows", "versions"}: a row has the fault, and what the four say to it.

    Raises:
      ChildProcessError: a library cannot be asked.
    """
    others = [_answers("jax_privacy"), _answers("opacus")]
    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests"))
    jax.config.update("jax_disable_most_optimizations", True)  # many tiny programs
    import test_faults as tests
    import test_measured_faults

    faults = tests.FAULTS | test_measured_faults.FAULTS
    first, last = (each["findings"] for each in others)
    sound = _certified(tests, tests.fed_avg())
    rows = [["(none)", "nothing", sound, f"{first['epsilon']:.3g}", f"{last['epsilon']:.3g}"]]
    for fault in first["said"]:
        algorithm, _ = faults[fault]
        ours = [_checked(tests, algorithm), _certified(tests, algorithm)]
        rows.append([fault, *ours, first["said"][fault], last["said"][fault]])
    versions = {"fedpriv": fp.__version__, "jax": jax.__version__}
    for each in others:
        versions |= each["versions"]
    return {"rows": rows, "versions": versions}


def table(found: dict[str, Any]) -> str:
    """As Markdown."""
    head = ["fault", "fedpriv: `check_algorithm`", "fedpriv: `certify`", "jax_privacy", "Opacus"]
    lines = [f"| {' | '.join(cells)} |" for cells in [head, *found["rows"]]]
    lines.insert(1, "|---" * len(head) + "|")
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return "\n".join([*lines, "", versions])
