"""What Ranaweera et al. ("... An Utility-Enhanced Approach") print: gains, epsilons, Tables I to III.

Gains are in points of test accuracy. Levels of accuracy are in pictures only, networks, learning rates, C and the
sampling rates nowhere.
"""

from __future__ import annotations

SIGMAS = (1.0, 1.5, 3.0)
"""Small, medium and large noise."""
DATA = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
EPSILONS = {
    "mnist": (6.38, 3.61, 1.64),
    "fashion_mnist": (6.38, 3.61, 1.64),
    "cifar10": (24.5, 7.94, 4.75),
}
"""By sigma, as the head of Table III has them; delta = 1e-5."""

GAINS = {
    ("record", "mnist"): (4.9, 7.03, 9.16),
    ("record", "fashion_mnist"): (9.93, 12.7, 14.6),
    ("record", "cifar10"): (6.38, 7.2, 9.1),
    ("user", "mnist"): (3.64, 6.14, 12.97),
    ("user", "fashion_mnist"): (13.2, 14.82, 27.3),
    ("user", "cifar10"): (5.96, 6.67, 16.33),
}
"""Of DP-SGD-WAV over DP-SGD, or DP-FedAvg-WAV over DP-FedAvg, by sigma (sections 6.3 and 6.4)."""
GAINS_OVER_DYNAMIC = {
    ("record", "mnist"): (2.87, 4.2, 4.82),
    ("record", "fashion_mnist"): (5.64, 5.53, 5.35),
    ("record", "cifar10"): (1.871, 1.88, 2.05),
    ("user", "mnist"): (1.21, 1.82, 4.93),
    ("user", "fashion_mnist"): (2.4, 3.08, 4.39),
    ("user", "cifar10"): (1.987, 4.02, 5.94),
}
"""Of the same over Dyn-DP-SGD and Dyn-DP-FedAvg."""

TABLE_3 = {
    ("dp_adam", "mnist"): (3.56, 4.9, 6.12),
    ("dp_adam", "fashion_mnist"): (8.22, 10.23, 12.97),
    ("dp_adam", "cifar10"): (6.01, 6.83, 7.93),
    ("dp_adagrad", "mnist"): (2.31, 3.29, 4.97),
    ("dp_adagrad", "fashion_mnist"): (6.61, 8.19, 10.88),
    ("dp_adagrad", "cifar10"): (4.25, 5.53, 7.03),
}
"""Gains of the optimiser with wavelets over the same without, by sigma."""

EXAMPLE = (4, 8, 1, 9, 8, 4, 5, 3)
"""The vector of Table II."""
TABLE_2 = (
    (3, EXAMPLE, ()),
    (2, (6, 5, 6, 4), (-2, -4, 2, 1)),
    (1, (5.5, 5), (0.5, 1)),
    (0, (5.25,), (0.25,)),
)
"""Level, mean coefficients, detail coefficients."""
WEIGHTS = (8, 2, 2, 2, 2, 4, 4, 8)
"""W of [H_0 (the overall mean), finest details first, ..., the coarsest] for m = 8 (section 4.3)."""
