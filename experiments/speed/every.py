"""python -m experiments.benchmark every [--workloads W ...] [--output DIR]: workloads A to H, and their page.

Each runs with large pages of memory and without, for fedpriv and for others alike, beside PyTorch and its peers:
`rounds --peers`, and H `large --sizes small --peers`. An object that OUTPUT has already is kept, so that the command
can be stopped and given again: remove WORKLOAD-CORES-PAGES.json to measure it anew. In the end OUTPUT has the page.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from experiments.speed import page
from fedpriv.core import large_pages
from fedpriv.devices.layout import cores
from fedpriv.experiments.base.files import write_text
from fedpriv.experiments.base.terminal import say

ROOT = Path(__file__).parents[2]
WORDS = {
    "A": ("rounds", "--clients", "30"),
    "B": ("rounds",),
    "C": ("rounds",),
    "D": ("rounds", "--clients", "30"),
    "E": ("rounds",),
    "F": ("rounds",),
    "G": ("rounds",),
    "H": ("large", "--sizes", "small"),
}
PAGES = {"small": 0, "large": 1}  # what the tunable is set to


@dataclass(frozen=True)
class Options:
    """Options of the command `benchmark every`."""

    workloads: tuple[str, ...] = tuple(WORDS)
    """Which of A to H."""
    repeats: int = 5
    """Turns."""
    peers: bool = True
    """Whether others run, too."""
    output: Path = Path("runs/speed")
    """Folder to write into."""


def main(options: Options) -> int:
    if unknown := set(options.workloads) - set(WORDS):
        raise ValueError(
            f"workloads: there is no {min(unknown)!r}; choose some of {', '.join(WORDS)}"
        )
    options.output.mkdir(parents=True, exist_ok=True)
    for name in options.workloads:
        for pages, value in PAGES.items():
            file = options.output / f"{name}-{cores()}-{pages}.json"
            if not file.exists():
                say(f"workload {name}, {pages} pages", file=sys.stderr)
                write_text(file, measured(name, value, options))
    say(page.write(sorted(options.output.glob("*.json")), options.output))
    return 0


def measured(name: str, value: int, options: Options) -> str:
    """What the workload's command prints where the tunable has this value.

    Raises:
      ValueError: it failed; its complaints were printed.
    """
    words = [*WORDS[name], "--workload", name, "--repeats", str(options.repeats), "--json"]
    words += ["--peers"] * options.peers
    command = [sys.executable, "-m", "experiments.benchmark", *words]
    env = os.environ | {large_pages.VARIABLE: f"{large_pages.TUNABLE}={value}"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=env, cwd=ROOT)
    if not done.stdout.startswith("{"):
        raise ValueError(f"workloads: {name} failed with exit code {done.returncode}; see above")
    return done.stdout
