"""fedpriv uplink --dimension D [options]: bits that a client sends in a round, and SecAgg adds.

Of integers that secure aggregation adds up (of all coordinates, or of those that Fed-SMP keeps), of floats, QSGD, JoPEQ
and MSPDQ-FL, as their rounds report them, which are traced and not run; and, by formula, what SecAgg and SecAgg+ add.
Exit code 2: something given was wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from fedpriv.compression.quantization import SignedLevels
from fedpriv.core.arguments import Count, NonNegative, Rate
from fedpriv.experiments.accounting.uplink import Messages, table
from fedpriv.experiments.base.command import command
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config.options import only_options


@dataclass(frozen=True)
class Options:
    """Options of the command `uplink`."""

    dimension: Count
    """Values of a model."""
    clients: Count = 100
    """In a round."""
    bits: tuple[SignedLevels, ...] = (8, 10, 12, 14, 16, 18)
    """Per value, a column each."""
    kept: Rate = 0.005
    """Fraction of the coordinates that sparse messages keep."""
    noise_multiplier: NonNegative = 1.0
    """Of the noise of a sum, which its bits have to be enough for."""
    exchanges: Count = 10
    """Of MSPDQ-FL, in a round."""


@command
def main(argv: Sequence[str] | None = None) -> int:
    options = only_options(
        Options, sys.argv[1:] if argv is None else argv, "fedpriv uplink", __doc__
    )
    messages = Messages(
        options.dimension,
        options.clients,
        options.kept,
        options.noise_multiplier,
        options.exchanges,
    )
    say(table(messages, options.bits))
    return 0
