"""Privacy losses of one draw on a grid, never better than they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedpriv.proof.noise import Floats

_MOST_CELLS = 2**23


class Losses(NamedTuple):
    """The discretised law of a privacy loss log(P / Q) under P.

    Attributes:
        low: the first cell; cell i is a loss of i times the width.
        chances: f64[k], of the cells from `low` on.
        infinity: probability of an infinite loss; with the chances it adds up to 1.
        width: of how many cells one has a chance; in the others, losses were rounded to it.
    """

    low: int
    chances: Floats
    infinity: float
    width: int = 1


def connect_the_dots(
    forward: Callable[[Floats], Floats],
    backward: Callable[[Floats], Floats],
    last: int,
    interval: float,
) -> tuple[Losses, Losses]:
    """Losses of (P against Q, Q against P) on the cells -last..last.

    Formal guarantees: each pair dominates the given one, and so do their compositions (Doroshenko et al. 2022,
    arXiv:2207.04380, Algorithm 1): between two cells the curve is replaced by a line in e^epsilon, above it since
    curves are convex.

    The chance of a cell is a second difference of the curve. At -e it is e^-e times what the reversed pair has at e, as
    H_a(P || Q) = 1 - a + a H_{1/a}(Q || P): so both tails are as exact as the curves at e > 0.

    Args:
        forward, backward: epsilon >= 0 -> hockey-stick divergence of P against Q, and of Q against P.
        last: number of cells above 0, at least 1.
        interval: width of a cell, in nats.
    """
    cells: Floats = np.arange(last + 1, dtype=np.float64) * interval
    there, back = forward(cells), backward(cells)
    step = np.expm1(interval)
    at_zero = 1 - there[0] + ((there[1] - there[0]) + (back[1] - there[0])) / step
    first, second = _above_zero(there, interval), _above_zero(back, interval)
    shrink = np.exp(-cells[1:])

    def losses(above: Floats, below: Floats, infinity: float) -> Losses:
        middle = np.array([max(float(at_zero), 0.0)])
        chances: Floats = np.concatenate([(shrink * below)[::-1], middle, above])
        positive = np.flatnonzero(chances)
        if len(positive) == 0:  # all is infinite
            return Losses(0, np.zeros(1), infinity)
        start, stop = positive[0], positive[-1] + 1
        return Losses(int(start) - last, chances[start:stop], infinity)

    return losses(first, second, float(there[-1])), losses(second, first, float(back[-1]))


def _above_zero(curve: Floats, interval: float) -> Floats:
    """Chances of the cells 1..last."""
    slopes = np.diff(curve)
    inner = (slopes[1:] - np.exp(interval) * slopes[:-1]) / np.expm1(interval)
    return np.maximum(np.append(inner, slopes[-1] / np.expm1(-interval)), 0.0)


def losses_of_curves(
    forward: Callable[[Floats], Floats],
    backward: Callable[[Floats], Floats],
    reach: float,
    interval: float,
    beyond: float,
) -> tuple[Losses, Losses]:
    """As `connect_the_dots`, up to losses of `reach`; what is beyond counts as infinite.

    Args:
        beyond: the largest losses, too, count as infinite where delta there is no more than this.

    Raises:
        ValueError: more than 2^23 cells.
    """
    if beyond and reach:
        losses = np.geomspace(min(interval, reach), reach, 512)
        rare = np.maximum(forward(losses), backward(losses)) <= beyond
        reach = float(losses[np.argmax(rare)]) if rare.any() else reach
    check_cells(reach, interval)
    return connect_the_dots(forward, backward, max(1, math.ceil(reach / interval)), interval)


def check_cells(reach: float, interval: float) -> None:
    """Raises ValueError: losses up to `reach` take more than 2^23 cells."""
    if not reach <= interval * _MOST_CELLS:
        raise ValueError(
            f"interval: {interval}; losses up to {reach:.4g} take more than 2^23 cells"
        )
