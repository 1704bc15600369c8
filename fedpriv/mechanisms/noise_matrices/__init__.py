"""Correlated noise C^-1 z: strategy matrices C, and how each makes its noise round by round.

S. Denisov et al., "Improved Differential Privacy for SGD via Optimal Private Linear Operators on Adaptive Streams",
arXiv:2202.08312. Round t adds row t of C^-1 z to its sum. All rounds together are one Gaussian release of C x, whatever
earlier rounds showed. Later noise takes back part of earlier noise, which keeps their sum small.
"""

from fedpriv.mechanisms.noise_matrices.banded import (
    Banded,
    BandedInverse,
    banded,
    banded_inverse,
    banded_toeplitz,
)
from fedpriv.mechanisms.noise_matrices.blt import BufferedToeplitz, blt
from fedpriv.mechanisms.noise_matrices.errors import Error, error, least_error
from fedpriv.mechanisms.noise_matrices.factorization import (
    Factorization,
    Identity,
    identity,
)
from fedpriv.mechanisms.noise_matrices.tree import Tree, tree

PROVED = (Identity, Banded, BandedInverse, BufferedToeplitz, Tree)
"""Classes whose noise has the matrix that their sensitivity is of; of any other it is somebody's word."""

__all__ = [
    "PROVED",
    "Error",
    "Factorization",
    "banded",
    "banded_inverse",
    "banded_toeplitz",
    "blt",
    "error",
    "identity",
    "least_error",
    "tree",
]
