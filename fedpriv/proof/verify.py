"""Is delta(epsilon) at most delta, for a pair? A bound that holds for every witness; a search found a good one.

This file, and what it imports, is what has to be trusted of a number. The rounding of all sums is bounded, see
`spectra` and `tilted`, if (a) NumPy's transform is a Cooley-Tukey one, with twiddle factors correct to a unit in the
last place, and (b) exp, log, expm1, log1p err by a unit in the last place. Not bounded is the rounding of the curves of
one draw, which rest on scipy's `log_ndtr`: they are computed in logarithms, relative errors are of 1e-13 or so where a
move is not below 1e-3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpriv.core.complaints import require
from fedpriv.proof.composed import Composed, tree_of
from fedpriv.proof.exact import exact
from fedpriv.proof.losses import directions
from fedpriv.proof.noise import Floats
from fedpriv.proof.pairs import NOTHING, SEEN, AnyPair, Pair, Rest

COARSEST = 64.0
"""Nats; the width of a cell where e^width is safe."""
_LEAST, _LARGEST = 1e-10, 1e10  # tilts


class Witness(ABC):
    """What shows a delta at every epsilon: the door for other ways to bound one.

    Values are equal only where they show the same.
    """

    @abstractmethod
    def deltas(self, pair: Pair, epsilon: Floats) -> Floats:
        """Upper bounds, f64[n], of delta at epsilons f64[n] from 0 on, whatever the witness is.

        Raises:
            ValueError: it is a witness of other pairs, see `unknown`.
        """

    def unknown(self) -> ValueError:
        """That it shows nothing of a pair."""
        return ValueError(f"witness: {type(self).__name__}; no such law of this pair is known")


@dataclass(frozen=True)
class Exact(Witness):
    """The exact law of what is seen, see `exact`."""

    def deltas(self, pair: Pair, epsilon: Floats) -> Floats:
        """By the law."""
        law = exact(pair)
        if law is None:
            raise self.unknown()
        return law.delta(epsilon)


@dataclass(frozen=True)
class Direction:
    """Of one direction of a pair.

    Attributes:
        tilts: of each sum: those of which the best is used, above 0.
    """

    tilts: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        fine = all(own and all(_LEAST <= t <= _LARGEST for t in own) for own in self.tilts)
        require(fine, "tilts", self.tilts, "give numbers from 1e-10 to 1e10, some of each sum")

    def composed(self, tree: Any, interval: float) -> Composed:
        """All draws, on the grid."""
        return Composed(tree, interval)


@dataclass(frozen=True)
class Grid(Witness):
    """Losses on cells of one width, composed.

    Attributes:
        interval: width of a cell, in nats.
        beyond: as of `losses.losses_of`.
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

    def deltas(self, pair: Pair, epsilon: Floats) -> Floats:
        """The larger of both directions."""
        found = zip(self.composed(pair), self.directions, strict=False)
        return np.max([one.delta(epsilon, way.tilts) for one, way in found], axis=0)

    def composed(self, pair: Pair) -> list[Composed]:
        """Of each direction.

        Raises:
            ValueError: fewer directions, or other sums, than the pair has.
        """
        many, given = directions(pair), len(self.directions)
        require(given >= many, "directions", given, f"give {many}, as many as of the pair differ")
        found = []
        for way, direction in enumerate(self.directions[:many]):
            tree = tree_of(pair, self.interval, self.beyond, way)
            composed = direction.composed(tree, self.interval)
            sums, tilts = len(composed.sums), direction.tilts
            require(len(tilts) == sums, "tilts", tilts, f"give those of {sums} sums")
            found.append(composed)
        return found


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
    if isinstance(pair, Rest):
        return np.minimum(pair.deltas(epsilon, witness), 1.0)
    if pair in (NOTHING, SEEN):
        return np.full(len(epsilon), float(pair == SEEN))
    return np.minimum(witness.deltas(pair, epsilon), 1.0)
