"""fedpriv uploads FOLDER [FOLDER ...] --accuracy A: messages that cohorts sent to reach an accuracy.

The communication complexity of Wang et al. (Figure 4): for each run folder and algorithm with model splitting, the
rounds I until an evaluation shows accuracy A (in [0, 1]), the uploads M sum_t (K_t + 1) until then, as recorded, and
Proposition 3's bound on them, which is for K_t by Theorem 3 (`--exchanges 0`), each mean ± standard deviation over the
seeds. Exit code 2: something given was wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from fedpriv.core.arguments import Fraction
from fedpriv.experiments.base.command import command
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config.options import only_options
from fedpriv.experiments.tables.compare import evaluated
from fedpriv.experiments.tables.uploads import table


@dataclass(frozen=True)
class Options:
    """Options of the command `uploads`."""

    folders: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FOLDER")]
    """Run folders, or folders of run folders."""
    accuracy: Fraction
    """To reach."""


@command
def main(argv: Sequence[str] | None = None) -> int:
    options = only_options(
        Options, sys.argv[1:] if argv is None else argv, "fedpriv uploads", __doc__
    )
    say(table(evaluated(options.folders), options.accuracy))
    return 0
