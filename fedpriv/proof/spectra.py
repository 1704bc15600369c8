"""Fourier transforms of tilted laws, their products, and what rounding may have changed.

Below, u = 2^-53. Each number here errs upwards, whatever t, the width of cells, and the number of draws are.

1. *Chances.* Those of a tilted draw, e^(t l + log p - m), have a relative error of a few u times the size of the
   exponents. m may be any number, as the same m scales the result. Products of n such chances err by n times as much: a
   factor e^(n c u) on the bound (`relative`).
2. *Transforms.* A Cooley-Tukey transform of size N with butterflies of r = 2, 3, 4, 5 points errs, relative in l2, by
   the sum over its stages of 3.7 u (a twiddle factor, off by 1.42 u, and a product, sqrt(5) u) and of the butterfly: u
   for r = 2, 2 u for r = 4, and sqrt(r) (r + 2) u otherwise, as each output sums r terms through r + 2 operations at
   most. That is 8.4 u for each binary digit of N at most (Higham, *Accuracy and Stability of Numerical Algorithms*,
   2002, Theorem 24.2, is the case r = 2); 10 u log2 N is counted. Measured, it is a few u.
3. *Products.* If transforms a, b are at most A, B in absolute value and err by E, F in l2 over sqrt(N), their product
   errs by E B + A F and 3 u A B. An n-th power by squaring errs by n A^(n-1) E and 3 n u A^n. A is the sum of the
   chances, and what their error allows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedpriv.proof.noise import Floats

UNIT = 2.0**-53
"""Relative error of one operation on floats, at most."""
_TRANSFORM = 10.0  # times UNIT and log2 of the size: error of a Fourier transform, relative, in l2
_LARGEST = 700.0  # nats; e to them is a float


class Spectrum(NamedTuple):
    """Of a tilted law: its Fourier transform, and what its rounding may have changed.

    Attributes:
        log_moment: m, log E[e^(t L)]; the law is that of e^(t L - m), whose sum is 1 but for rounding.
        values: complex[size / 2 + 1].
        most: bound on the absolute values, rounded and not.
        error: of the values, l2 over sqrt(size), at most.
        relative: by which factor e^relative the law may be off, at most, in all its chances.
    """

    log_moment: float
    values: NDArray[np.complex128]
    most: float
    error: float
    relative: float


def transform_error(size: int) -> float:
    """Of a transform of that size, relative, in l2, at most."""
    return _TRANSFORM * UNIT * math.log2(size)


def of_chances(chances: Floats, low: int, largest: float, log_moment: float, size: int) -> Spectrum:
    """Of a draw.

    Args:
        chances: f64[k], e^(t l + log p - m) of the cells from `low` on.
        largest: of the absolute values of t l + log p.
        size: of how many cells around.
    """
    folded = np.bincount((low + np.arange(len(chances))) % size, chances, size)
    values = np.fft.rfft(folded)
    error = transform_error(size) * float(np.linalg.norm(folded)) * (1 + 1e-9)
    most = float(chances.sum()) * (1 + UNIT * len(chances)) + math.sqrt(size) * error
    relative = UNIT * (4 * (largest + abs(log_moment)) + 8 + len(chances) / size)
    return Spectrum(log_moment, values, most, error, relative)


def constant(value: float, log_moment: float, size: int) -> Spectrum:
    """Of no draw (1), or of one whose losses are all infinite (0)."""
    return Spectrum(log_moment, np.full(size // 2 + 1, value, complex), value, 0.0, 0.0)


def mixed(cases: list[tuple[float, Spectrum]]) -> Spectrum:
    """Of told cases."""
    logs = [math.log(c) + one.log_moment for c, one in cases]
    log_moment = float(np.logaddexp.reduce(logs))
    each = [(math.exp(x - log_moment), one) for x, (_, one) in zip(logs, cases, strict=True)]
    rounding = 2 * (len(each) + 2) * UNIT
    values = np.asarray(sum(share * one.values for share, one in each))
    most = (1 + rounding) * math.fsum(share * one.most for share, one in each)
    error = math.fsum(share * one.error for share, one in each) + rounding * most
    relative = max(
        one.relative + UNIT * (4 + 4 * abs(math.log(c)) + 2 * abs(one.log_moment))
        for c, one in cases
        if math.isfinite(one.log_moment)
    )
    return Spectrum(log_moment, values, most, error, relative + UNIT * abs(log_moment))


def power(once: Spectrum, n: int) -> Spectrum:
    """By squaring: a product of complex floats is off by sqrt(5) units at most."""
    values, square, left = None, once.values, n
    while left:
        if left % 2:
            values = square if values is None else values * square
        left //= 2
        if left:
            square = square * square
    assert values is not None
    exponent = n * math.log(max(once.most, 1.0)) * (1 + 1e-9)
    most = math.exp(exponent) if exponent < _LARGEST else math.inf
    error = n * most * (once.error + 3 * UNIT)
    log_moment = n * once.log_moment
    relative = n * once.relative + 2 * UNIT * abs(log_moment)
    return Spectrum(log_moment, values, most, error, relative)


def product(each: list[Spectrum]) -> Spectrum:
    """Of several, at least one."""
    values = each[0].values
    for one in each[1:]:
        values = values * one.values
    most = math.prod(max(one.most, 1.0) for one in each) * (1 + 1e-9)
    error = most * math.fsum(one.error + 3 * UNIT for one in each)
    log_moment = math.fsum(one.log_moment for one in each)
    relative = math.fsum(one.relative for one in each) + 2 * UNIT * abs(log_moment)
    return Spectrum(log_moment, values, most, error, relative)
