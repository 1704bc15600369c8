"""What Wang, Cao, Jin and Chow (MSP-FL, MSPDQ-FL) print: settings and orderings.

The paper has no table: its results are curves and what section VI.B says of them. It prints neither networks nor the
number of rounds, and of the curves' settings only those below.
"""

from __future__ import annotations

EPS_DP = 10.0
"""Of FedAvg + LDP in Figure 2."""
MSP_EXCHANGES, MSPDQ_EXCHANGES = 4, 10
"""K_t in Figure 2."""
BITS = 8
"""B in Figure 2."""

FIGURE_3_EXCHANGES = (20, 30)
"""K_t of its panels, on MNIST and on CIFAR-10."""
FIGURE_4 = {
    "error": (4, 3, 2),
    "bits": (8, 7, 6),
    "splitting_factor": (0.3, 0.5, 0.7),
}
"""Groups 1 to 3, bars a, b, c; the error ||w_t - w*|| as a ratio."""
FIGURE_5_EXCHANGES = 20
FIGURE_7 = {
    (10, 0.1): 18,
    (4, 0.1): 18,
    (10, 0.3): 4,
}
"""(K_t, gamma_max) of its panels -> the number of invisible submodels that section VI.B names as critical: "the global
model quality is overly degraded if m >= 18", with K_t = 4 "close to that", and for gamma_max = 0.3 "the maximal number
allowed significantly decreases to m = 4"."""
