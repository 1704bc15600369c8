"""Matrices of correlated noise."""

import functools

from fedpriv import noise_matrices as nm
from refused.row import Refusal

MAKERS = ("identity", "tree", "banded", "banded_toeplitz", "banded_inverse", "blt")
BANDED = ("banded", "banded_toeplitz", "banded_inverse")

ROWS = [
    *(
        Refusal(
            f"{name} of no round",
            functools.partial(getattr(nm, name), 0, **({"bands": 2} if name in BANDED else {})),
            "rounds:",
            "0",
        )
        for name in MAKERS
    ),
    *(
        Refusal(
            f"{name} of more bands than rounds",
            functools.partial(getattr(nm, name), 10, 11),
            "bands:",
            "11",
        )
        for name in BANDED
    ),
    Refusal("no band", lambda: nm.banded_inverse(10, 0), "bands:", "0"),
    Refusal("a tree of very many rounds", lambda: nm.tree(10**5), "rounds:", "100000"),
    Refusal("restarts before every round", lambda: nm.tree(10, 0), "restart_every:", "0"),
    Refusal("rounds that are not apart", lambda: nm.blt(10, 0), "separation:", "0"),
    Refusal("nobody who takes part", lambda: nm.blt(10, 1, 0), "participations:", "0"),
    Refusal("a strategy of more rounds", lambda: nm.tree(10).strategy(11), "rounds:", "11"),
    Refusal("noise of more rounds", lambda: nm.tree(10).noising(11), "rounds:", "11"),
    Refusal("more rounds", lambda: nm.tree(10).sensitivity(11), "rounds:", "11"),
    Refusal("no separation", lambda: nm.tree(10).sensitivity(10, 0), "separation:", "0"),
    Refusal("a number for a matrix", lambda: nm.error(3, 10), "factorization:", "3"),
    Refusal("momentum of 1", lambda: nm.error(nm.tree(4), 4, momentum=1.0), "momentum:", "1.0"),
    Refusal(
        "bands for a momentum of 1",
        lambda: nm.banded_inverse(10, 2, momentum=1.0),
        "momentum:",
        "1.0",
    ),
    Refusal("momentum below 0", lambda: nm.blt(10, momentum=-0.1), "momentum:", "-0.1"),
    Refusal("no candidate", lambda: nm.least_error([], 10), "candidates:", "[]"),
]
