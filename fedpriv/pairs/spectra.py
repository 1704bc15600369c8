"""Fourier transforms of tilted laws, their products, and what rounding may have changed: see `README.md`."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedpriv.pairs.cells import Losses
from fedpriv.pairs.curves import Floats

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


def of_leaf(
    losses: Losses, cells: Floats, logs: Floats, tilt: float, log_moment: float, size: int
) -> Spectrum:
    """Of a leaf; `cells` are its losses in nats, `logs` those of its chances, of `size` cells around."""
    if math.isinf(log_moment):
        return Spectrum(log_moment, np.zeros(size // 2 + 1, complex), 0.0, 0.0, 0.0)
    chances = np.exp(tilt * cells + logs - log_moment)
    folded = np.bincount(cells_of(losses) % size, chances, size)
    values = np.fft.rfft(folded)
    error = transform_error(size) * float(np.linalg.norm(folded)) * (1 + 1e-9)
    most = float(chances.sum()) * (1 + UNIT * len(chances)) + math.sqrt(size) * error
    some = np.isfinite(logs)
    largest = tilt * float(np.abs(cells[some]).max()) + float(np.abs(logs[some]).max())
    relative = UNIT * (4 * (largest + abs(log_moment)) + 8 + len(chances) / size)
    return Spectrum(log_moment, values, most, error, relative)


def mixed(cases: list[tuple[float, Spectrum]]) -> Spectrum:
    """Of told cases."""
    logs = [math.log(c) + each.log_moment for c, each in cases]
    log_moment = float(np.logaddexp.reduce(logs))
    shares = [math.exp(x - log_moment) for x in logs]
    each = [spectrum for _, spectrum in cases]
    values = sum(share * one.values for share, one in zip(shares, each, strict=True))
    most = (1 + 2 * (len(each) + 2) * UNIT) * math.fsum(
        share * one.most for share, one in zip(shares, each, strict=True)
    )
    error = math.fsum(share * one.error for share, one in zip(shares, each, strict=True))
    relative = max(
        one.relative + UNIT * (4 + 4 * abs(math.log(c)) + 2 * abs(one.log_moment))
        for c, one in cases
        if math.isfinite(one.log_moment)
    )
    relative += UNIT * abs(log_moment)
    return Spectrum(
        log_moment, np.asarray(values), most, error + 2 * (len(each) + 2) * UNIT * most, relative
    )


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


def cells_of(losses: Losses) -> NDArray[np.int64]:
    """Numbers of the cells that have a chance, or lie between such."""
    return losses.low + np.arange(len(losses.chances))
