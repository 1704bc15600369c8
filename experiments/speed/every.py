"""python -m experiments.benchmark every [--workloads W ...] [--output DIR]: workloads A to H, and their page.

Each runs with large pages of memory and without, where the system has them for who asks, for fedpriv and for others
alike: `rounds --peers`, A and D with 30 clients, and H `large --sizes small --peers`. An object that OUTPUT has already
is kept, so that the command can be stopped and given again: remove WORKLOAD-CORES-PAGES.json to measure it anew. In the
end OUTPUT has the page.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from experiments.speed import page
from fedpriv.core import large_pages
from fedpriv.core.complaints import require
from fedpriv.devices.layout import cores
from fedpriv.experiments.base.files import write_text
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config.fields import Number

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
    repeats: Number = 5
    """Turns."""
    peers: bool = True
    """Whether others run, too."""
    output: Path = Path("runs/speed")
    """Folder to write into."""


def main(options: Options) -> int:
    for name in options.workloads or [""]:
        require(name in WORDS, "workloads", name, f"choose some of {', '.join(WORDS)}")
    options.output.mkdir(parents=True, exist_ok=True)
    pages = PAGES if large_pages.available() else {"small": PAGES["small"]}
    for name in options.workloads:
        for size, value in pages.items():
            file = options.output / f"{name}-{cores()}-{size}.json"
            if not file.exists():
                say(f"workload {name}, {size} pages", file=sys.stderr)
                write_text(file, measured(name, value, options))
    found = [file for name in WORDS for file in options.output.glob(f"{name}-*-*.json")]
    say(page.write(sorted(found), options.output))
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
    if done.returncode:
        raise ValueError(f"workloads: {name} failed with exit code {done.returncode}; see above")
    return done.stdout
