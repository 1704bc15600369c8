"""fedpriv inversion [options]: the images that a server reconstructs from what each algorithm shows it.

iDLG (Zhao, Mopuri, Bilen 2020) on clients with one image each, in the first round from a freshly drawn SigmoidLeNet:
the label by the last layer's gradient, then Adam(0.1) on a dummy image until its update points as what was seen does.
Prints a table, leaves inversion.json and victims.png in a folder. Figure 6 of the MSPDQ paper is
`fedpriv reproduce`'s. Exit code 2: something given was wrong; 130: interrupted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import fedpriv as fp
from fedpriv.core.arguments import Range
from fedpriv.engine import compilation_cache
from fedpriv.experiments.attacks.inversion.inversion import as_json, attack_all, picture, text
from fedpriv.experiments.attacks.inversion.views import draw_victims
from fedpriv.experiments.base.command import command
from fedpriv.experiments.base.files import write_text
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config.fields import Number, NumberOrZero
from fedpriv.experiments.config.options import only_options


@dataclass(frozen=True)
class Options:
    """Options of the command `inversion`."""

    data: Literal["fashion_mnist", "mnist", "digits"] = "fashion_mnist"
    """The data set."""
    victims: Annotated[int, Range("a whole number from 2 to 1000", 2, 1000, integer=True)] = 16
    """Number of clients, with one image each."""
    steps: Number = 300
    """Of Adam."""
    seed: NumberOrZero = 0
    """Seed of the victims, the model and the attack."""
    data_dir: Path | None = None
    """Folder of prepared data sets, as for `fedpriv run`."""
    output: Path = Path("runs/inversion")
    """Folder to write into."""
    json: bool = False
    """Print one JSON object."""


@command
def main(argv: Sequence[str] | None = None) -> int:
    options = only_options(
        Options, sys.argv[1:] if argv is None else argv, "fedpriv inversion", __doc__
    )
    compilation_cache.cache_programs()
    data = fp.datasets.load(options.data, options.data_dir)
    options.output.mkdir(parents=True, exist_ok=True)
    victims = draw_victims(data, options.victims, options.seed)
    attacked = attack_all(victims, options.steps, options.seed)
    settings = {name: getattr(options, name) for name in ("data", "victims", "steps", "seed")}
    written = as_json(settings, victims, attacked)
    write_text(options.output / "inversion.json", json.dumps(written, indent=2) + "\n")
    picture(victims, attacked, options.output / "victims.png")
    say(json.dumps(written, indent=2) if options.json else text(victims, attacked))
    return 0
