"""What arXiv:2111.09278 (DP-SCAFFOLD) prints: Tables 1 and 4, the epsilons, the grids of Figures 1 to 10.

Accuracies in % are means and standard deviations over 3 runs of the mean over the last tenth of the rounds (D.3.2).
Figures are pictures without numbers: what their captions and the text print is here, their curves are not.
"""

from __future__ import annotations

from typing import NamedTuple

SIGMAS = (10, 20, 40, 80, 160)
STEPS = (1, 5, 10, 20, 40)


class Printed(NamedTuple):
    """A cell of Tables 1 and 4: mean accuracy and its standard deviation, in %."""

    accuracy: float
    deviation: float


ROUNDS = {
    10: (542, 488, 428, 324, 72),
    20: (545, 502, 451, 352, 83),
    40: (546, 505, 457, 360, 86),
    80: (546, 506, 458, 362, 87),
    160: (546, 506, 458, 362, 87),
}
"""sigma_g -> T for each K: the largest that epsilon = 3 allows, the same in both tables."""

_TABLE_1 = {
    10: ((27.41, 0.71), (45.53, 0.99), (43.52, 1.52), (42.51, 0.80), (21.80, 3.28)),
    20: ((27.34, 1.31), (44.39, 0.46), (43.47, 1.74), (42.33, 0.77), (20.14, 2.67)),
    40: ((21.05, 2.27), (34.50, 0.65), (36.85, 0.85), (33.24, 0.41), (14.85, 0.95)),
    80: ((17.61, 2.62), (24.41, 0.81), (27.33, 0.37), (19.42, 0.51), (14.08, 0.14)),
    160: ((13.97, 1.70), (15.99, 0.30), (19.27, 1.65), (14.86, 0.75), (14.17, 0.06)),
}
_TABLE_4 = {
    10: ((31.29, 0.50), (44.37, 0.15), (44.17, 0.56), (41.71, 0.36), (25.92, 0.90)),
    20: ((28.31, 1.15), (41.97, 0.77), (43.27, 0.90), (41.13, 0.55), (28.20, 2.23)),
    40: ((21.07, 0.41), (33.01, 1.20), (35.96, 0.84), (32.82, 1.11), (23.49, 1.70)),
    80: ((17.09, 1.31), (21.84, 0.96), (25.92, 0.59), (24.02, 1.27), (17.95, 1.14)),
    160: ((15.24, 1.63), (15.37, 0.28), (20.09, 1.51), (18.09, 1.86), (15.38, 0.87)),
}


def _cells(table: dict[int, tuple[tuple[float, float], ...]]) -> dict[tuple[int, int], Printed]:
    return {
        (sigma, k): Printed(*cell)
        for sigma, row in table.items()
        for k, cell in zip(STEPS, row, strict=True)
    }


TABLE_1, TABLE_4 = _cells(_TABLE_1), _cells(_TABLE_4)
"""(sigma_g, K) -> accuracy, for (alpha, beta) = (5, 5) and (0, 0)."""


class Epsilon(NamedTuple):
    """A printed epsilon: record level, third party, delta = 1 / (M R).

    Attributes:
      where: it is printed.
      config: of which it is.
      settings: fields and values that differ from the config's.
      value: as printed.
    """

    where: str
    config: str
    settings: dict[str, float]
    value: float


_SYNTHETIC, _FEMNIST, _MNIST = (f"dp_scaffold_{x}" for x in ("synthetic", "femnist", "mnist"))
_QUARTER = {"client_rate": 0.05}
_K_100 = {"local_steps": 100}

EPSILONS = (
    Epsilon("Figures 1, 3-6 (first rows); D.3.3", _SYNTHETIC, {}, 13.0),
    Epsilon("Figures 1, 3-6 (second rows)", _SYNTHETIC, _K_100, 13.0),
    Epsilon("D.3.3, l = 0.05", _SYNTHETIC, _QUARTER, 4.2),
    Epsilon("Figure 2 (first row); D.3.3", _FEMNIST, {}, 11.4),
    Epsilon("Figures 7, 8 (first rows)", _FEMNIST, {}, 11.5),
    Epsilon("Figures 7, 8 (second rows)", _FEMNIST, _K_100, 11.5),
    Epsilon("Figure 2 (second row); D.3.3", _MNIST, {}, 7.2),
)

BUDGETS = {_SYNTHETIC: 5.0, _FEMNIST: 5.0, _MNIST: 3.0}
"""Epsilon of Figures 9 and 10, a row each."""
CLIENT_RATES = (0.08, 0.1, 0.12)
"""l of Figure 9, at s = 0.2 and K = 10."""
RECORD_RATES = (0.05, 0.1, 0.2)
"""s of Figure 10, at l = 0.1 and K = 10."""
