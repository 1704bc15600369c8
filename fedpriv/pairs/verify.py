"""Is delta(epsilon) at most delta, for a pair? A bound that holds for every witness; a search found a good one.

This file, and what it imports, is what has to be trusted of a number; `search.py` need not be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fedpriv.core.arguments import require
from fedpriv.pairs.algebra import NOTHING, SEEN, AnyPair, Best, Pair, Slack
from fedpriv.pairs.composed import Composed, directions, tree_of
from fedpriv.pairs.curves import Floats
from fedpriv.pairs.divergences import divergence_delta, never_hidden, renyi, usual_orders
from fedpriv.pairs.exact import exact
from fedpriv.pairs.told_counts import by_counts

COARSEST = 64.0
"""Nats; the width of a cell where e^width is safe."""
_LEAST, _LARGEST = 1e-10, 1e10  # tilts


@dataclass(frozen=True)
class Exact:
    """The exact law of what is seen, see `exact`."""


@dataclass(frozen=True)
class Direction:
    """Of one direction of a pair.

    Attributes:
        tilts: of each sum: those of which the best is used, above 0.
        jumps: as of `Composed`.
    """

    tilts: tuple[tuple[float, ...], ...]
    jumps: float = 0.0

    def __post_init__(self) -> None:
        fine = all(own and all(_LEAST <= t <= _LARGEST for t in own) for own in self.tilts)
        require(fine, "tilts", self.tilts, "give numbers from 1e-10 to 1e10, some of each sum")
        require(0 <= self.jumps < math.inf, "jumps", self.jumps, "give a finite number from 0 on")


@dataclass(frozen=True)
class Grid:
    """Losses on cells of one width, composed.

    Attributes:
        interval: width of a cell, in nats.
        beyond: as of `draws.losses_of`.
        directions: as many as of the pair differ.
    """

    interval: float
    beyond: float
    directions: tuple[Direction, ...]

    def __post_init__(self) -> None:
        fine = 0 < self.interval <= COARSEST
        require(fine, "interval", self.interval, "give nats above 0, of 64 at most")
        require(0 <= self.beyond < 1, "beyond", self.beyond, "give a chance below 1")
        known = all(isinstance(each, Direction) for each in self.directions)
        require(known, "directions", self.directions, "give tilts, of each direction")


@dataclass(frozen=True)
class Orders:
    """Rényi divergences of these orders, of `usual_orders`: of others, dp-accounting's rounding may decide."""

    orders: tuple[float, ...]

    def __post_init__(self) -> None:
        fine = len(self.orders) > 0 and set(self.orders) <= set(usual_orders())
        require(fine, "orders", self.orders, "give some of dp-accounting's default orders")


@dataclass(frozen=True)
class Counted:
    """Rényi divergences for each number of rounds that a unit takes part in, which is told; see `by_counts`."""


Witness: TypeAlias = Exact | Grid | Orders | Counted


def delta(pair: AnyPair, epsilon: float, witness: Witness) -> float:
    """The bound of `deltas` at one epsilon.

    Raises:
        ValueError: as `deltas`.
    """
    return float(deltas(pair, np.array([float(epsilon)]), witness)[0])


def deltas(pair: AnyPair, epsilon: Floats, witness: Witness) -> Floats:
    """As `delta`, f64[n], of epsilons f64[n].

    Raises:
        ValueError: a negative epsilon; a witness of another kind of pair, or a grid that is too fine.
    """
    fine = bool(np.all(epsilon >= 0) and np.all(np.isfinite(epsilon)))
    require(fine, "epsilon", epsilon, "give finite numbers from 0 on")
    if isinstance(pair, Slack):
        return _with_slack(pair, epsilon, witness)
    if pair in (NOTHING, SEEN):
        return np.full(len(epsilon), float(pair == SEEN))
    return np.minimum(_of_pair(pair, epsilon, witness), 1.0)


def _with_slack(pair: Slack, epsilon: Floats, witness: Witness) -> Floats:
    """Of laws that are so near to those of a function of R and R'.

    H(L || L') at e^eps is e^a H(R || R') at e^(eps - 2 a) at most, and, where eps < 2 a, e^(2 a) - e^eps more; a total
    variation t of both adds t (1 + e^eps).
    """
    twice = 2 * pair.apart
    inside = deltas(pair.of, np.maximum(epsilon - twice, 0.0), witness)
    below = math.exp(twice) - np.exp(np.minimum(epsilon, twice))
    with np.errstate(over="ignore"):
        further = pair.off * (1 + np.exp(epsilon)) if pair.off else 0.0
    return np.minimum(math.exp(pair.apart) * inside + below + further, 1.0)


def _of_pair(pair: Pair | Best, epsilon: Floats, witness: Witness) -> Floats:
    if isinstance(witness, Orders):
        total = renyi(pair, witness.orders)
        if total is not None:
            return never_hidden(pair) + divergence_delta(total, epsilon, witness.orders)
    elif not isinstance(pair, Best):
        if isinstance(witness, Grid):
            found = zip(composed_of(pair, witness), witness.directions, strict=False)
            return np.max([one.delta(epsilon, way.tilts) for one, way in found], axis=0)
        law = exact(pair) if isinstance(witness, Exact) else by_counts(pair, usual_orders())
        if law is not None:
            return law.delta(epsilon)
    raise ValueError(f"witness: {type(witness).__name__}; no such law of this pair is known")


def composed_of(pair: Pair, witness: Grid) -> list[Composed]:
    """Of each direction, on the grid.

    Raises:
        ValueError: fewer directions, or other sums, than the pair has.
    """
    many, given = directions(pair), len(witness.directions)
    require(given >= many, "directions", given, f"give {many}, as many as of the pair differ")
    found = []
    for way, direction in enumerate(witness.directions[:many]):
        tree = tree_of(pair, witness.interval, witness.beyond, way)
        composed = Composed(tree, witness.interval, direction.jumps)
        sums = len(composed.sums)
        require(
            len(direction.tilts) == sums, "tilts", direction.tilts, f"give those of {sums} sums"
        )
        found.append(composed)
    return found
