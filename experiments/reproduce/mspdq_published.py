"""What Wang, Cao, Jin and Chow (MSP-FL, MSPDQ-FL) print: settings, and what they say of their curves (section VI.B).

The paper has no table. It prints neither its networks nor the number of rounds, and of its curves' settings only those
below and those in configs/mspdq_*.py.
"""

from __future__ import annotations

from typing import NamedTuple

FIGURE_3_EXCHANGES = (20, 30)
"""K_t of its panels, for MNIST and for CIFAR-10."""
BITS = (8, 6, 4)

GROUPS = {"error": (4, 3, 2), "bits": (8, 7, 6), "splitting_factor": (0.3, 0.5, 0.7)}
"""Of Figure 4, bars a, b, c; the error ||w_t - w*|| as a ratio."""

FIGURE_5_EXCHANGES = 20


class Splits(NamedTuple):
    """A row of Figure 7.

    Attributes:
      exchanges: K_t.
      gamma: gamma_max.
      allowed, broken: the largest m that trains, and the least that does not, by section VI.B: "overly degraded if m >=
        18" ("close to that" for K_t = 4); "the maximal number allowed significantly decreases to m = 4".
      others: further m that are drawn here; the paper prints none.
    """

    exchanges: int
    gamma: float
    allowed: int
    broken: int
    others: tuple[int, ...]


FIGURE_7 = (
    Splits(10, 0.1, 17, 18, (10, 15)),
    Splits(4, 0.1, 17, 18, (10, 15)),
    Splits(10, 0.3, 4, 5, (2,)),
)
