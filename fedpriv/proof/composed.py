"""Delta of a pair on a grid, in one direction: an upper bound for every grid and every tilt."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fedpriv.proof.losses import is_draw, losses_of
from fedpriv.proof.noise import Floats
from fedpriv.proof.pairs import All, Pair, Times, Told, fold
from fedpriv.proof.tilted import DrawLosses, Sum, log_most


def tree_of(pair: Pair, interval: float, beyond: float, direction: int) -> Any:
    """The pair with the losses of its draws on a grid, in one direction (0: with the unit against without it).

    Args:
        interval, beyond: as of `losses.losses_of`.
    """

    @lru_cache(None)  # equal draws are one object
    def on_grid(draw: Pair) -> DrawLosses:
        return DrawLosses(losses_of(draw, interval, beyond)[direction], interval)

    return _with_draws(pair, on_grid)


def _with_draws(pair: Pair, on_grid: Callable[[Pair], DrawLosses]) -> Any:
    if isinstance(pair, All):
        return All(tuple(_with_draws(each, on_grid) for each in pair.of))
    if is_draw(pair):
        return on_grid(pair)
    if isinstance(pair, Times):
        return Times(_with_draws(pair.of, on_grid), pair.n)
    assert isinstance(pair, Told)
    return Told(tuple((chance, _with_draws(case, on_grid)) for chance, case in pair.cases))


class Composed:
    """The privacy loss of all draws together, in one direction.

    Formal guarantees: `delta` is an upper bound for the pair of the discretised losses, whatever the tilts. Infinite
    losses are composed in closed form.

    Attributes:
        tree: as `tree_of` gives it.
        interval: width of a cell, in nats.
        sums: whose deltas add up to that of the finite losses; here one.
    """

    def __init__(self, tree: Any, interval: float) -> None:
        self.tree, self.interval = tree, interval
        self.sums = [Sum(tree, interval)]

    @property
    def infinity(self) -> float:
        """Probability of an infinite loss."""
        finite = fold(
            self.tree,
            lambda draw: _log_rest(draw.losses.infinity),
            lambda cases: _log_rest(-math.fsum(c * math.expm1(x) for c, x in cases)),
            lambda x, n: n * x,
            math.fsum,
        )
        return -math.expm1(finite) * (1 + 1e-14)

    def delta(self, epsilon: Floats, tilts: Sequence[Sequence[float]]) -> Floats:
        """An upper bound, f64[n], for tilts above 0 of each sum; the nearest of them is used."""
        total = np.full(len(epsilon), self.infinity)
        if self.infinity < 1:
            for each, own in zip(self.sums, tilts, strict=True):
                total = total + np.exp(np.minimum(_log_delta(each, epsilon, own), 0.0))
        return np.minimum(total * (1 + 1e-14), 1.0)


def _log_delta(one: Sum, epsilon: Floats, tilts: Sequence[float]) -> Floats:
    """By the tilt whose moment bound is least there."""
    bounds = [one.log_moment(t) + log_most(t) - t * epsilon for t in tilts]
    nearest = np.argmin(bounds, axis=0)
    found = np.empty(len(epsilon))
    for i in np.unique(nearest):
        for at in np.flatnonzero(nearest == i):
            found[at] = one.log_delta(float(epsilon[at]), tilts[i])
    return found


def _log_rest(chance: float) -> float:
    """log(1 - chance)."""
    return math.log1p(-chance) if chance < 1 else -math.inf
