"""The virtual environments of other simulators, built once and kept.

They lie in FEDPRIV_PEERS_DIR, by default ~/.cache/fedpriv/peers, in a folder each, named after what is pinned; delete
what is not needed any more. Other pins than ours are why they need environments of their own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from fedpriv.core.files import user_cache

PINS: dict[str, tuple[str, ...]] = {
    # As published it does not run on a current JAX.
    "fedjax": (
        "fedjax==0.0.17",
        "jax==0.4.30",
        "jaxlib==0.4.30",
        "dm-haiku==0.0.13",
        "optax==0.2.3",
        "chex==0.1.90",
        "numpy==1.26.4",
    ),
    "pfl": ("pfl==0.6.0", "torch==2.13.0"),
    "flower": ("flwr[simulation]==1.40.0", "torch==2.13.0"),
    "opacus": ("opacus==1.6.0", "torch==2.13.0"),
}

PYTHONS = {"fedjax": ((3, 11), (3, 12))}
"""Where the pins have no wheels for newer ones (jaxlib 0.4.30)."""

_DONE = "fedpriv-complete"  # written last


def folder(name: str) -> Path:
    """Of a simulator's environment, whether it exists or not."""
    given = os.environ.get("FEDPRIV_PEERS_DIR")
    parts = " ".join((*PINS[name], f"python{sys.version_info[0]}.{sys.version_info[1]}"))
    digest = hashlib.sha256(parts.encode()).hexdigest()[:12]
    peers = Path(given).absolute() if given else user_cache() / "peers"
    return peers / f"{name}-{digest}"


def built(name: str) -> bool:
    """Whether it is there, complete."""
    return (folder(name) / _DONE).exists()


def python_of(name: str) -> str:
    """The simulator's Python; builds the environment unless that has been done.

    Raises:
      ChildProcessError: it cannot be built, with the last complaint.
    """
    here = folder(name)
    python = here / "bin" / "python"
    if built(name):
        return str(python)
    print(f"building {here}", file=sys.stderr)
    try:
        here.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(here, ignore_errors=True)  # what was left of a build that was cut off
        _run([sys.executable, "-m", "venv", str(here)])
        _run([str(python), "-m", "pip", "install", "--quiet", *PINS[name]])
        (here / _DONE).write_text("\n".join(PINS[name]) + "\n")
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(here, ignore_errors=True)
        raise ChildProcessError(
            f"its environment cannot be built: {error}{_other_python(name)}"
        ) from None
    return str(python)


def _other_python(name: str) -> str:
    """A hint, where this Python may be the reason."""
    this = tuple(sys.version_info[:2])
    fit = PYTHONS.get(name, (this,))
    if this in fit:
        return ""
    wanted = " or ".join(f"{major}.{minor}" for major, minor in fit)
    return f" (its pins need Python {wanted}, this is {this[0]}.{this[1]})"


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        lines = [line for line in (result.stdout + result.stderr).splitlines() if line.strip()]
        complaints = [line for line in lines if "error" in line.lower()] or lines
        last = complaints[-1].strip() if complaints else f"exit code {result.returncode}"
        raise subprocess.SubprocessError(f"{' '.join(command[1:3])}: {last}")
