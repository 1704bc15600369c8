"""python -m experiments.faults: planted faults, and what fedpriv, jax_privacy and Opacus say to each.

As rows of a table: the error or warning, in its words, or the epsilon that is printed for the faulty program. fedpriv's
programs are those of tests/test_faults.py and tests/test_measured_faults.py, of a checkout. Opacus runs in an
environment of its own (see experiments.benchmark --help); all on a CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from experiments.base.command import command
from experiments.base.terminal import say
from experiments.config.options import NoOptions, only_options
from experiments.speed.rivals.faults import compared, table


@command
def main(argv: Sequence[str] | None = None) -> int:
    only_options(NoOptions, sys.argv[1:] if argv is None else argv, "faults", __doc__)
    say(table(compared()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
