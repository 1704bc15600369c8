"""Privacy losses of one draw: of a pair of which nothing is composed."""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np

from fedpriv.proof.cells import Losses, losses_of_curves
from fedpriv.proof.noise import Floats
from fedpriv.proof.pairs import DEVIATIONS, NOTHING, Leaf, Moved, Pair, Told, leaves_of


def is_draw(pair: Pair) -> bool:
    """Whether losses are those of a single draw: a leaf, or told cases of moves, whose curves are mixed."""
    return isinstance(pair, Leaf) or _has_curve(pair)


def _has_curve(pair: Pair) -> bool:
    if isinstance(pair, Told):
        return all(_has_curve(each) for _, each in pair.cases)
    return isinstance(pair, Moved) or pair == NOTHING


def directions(pair: Pair) -> int:
    """How many directions of a pair differ, of which all are bounded."""
    return 1 if all(leaf.is_symmetric for leaf in leaves_of(pair)) else 2


def reach_of(draw: Pair, deviations: float = DEVIATIONS) -> float:
    """The largest finite loss, nats; of Gaussian noise so many standard deviations away."""
    return max((leaf.reach(deviations) for leaf in leaves_of(draw)), default=0.0)


@lru_cache(maxsize=32)
def losses_of(draw: Pair, interval: float, beyond: float) -> tuple[Losses, Losses]:
    """Losses of (P against Q, Q against P) of one draw.

    Formal guarantees: each pair dominates the draw's, by the contract of a leaf or, of told cases, as
    `connect_the_dots` of their mean curve.

    Args:
        draw: as `is_draw` has it.
        interval: width of a cell, in nats.
        beyond: the largest losses count as infinite where delta there is no more than this; 0: beyond `reach_of`.

    Raises:
        ValueError: more than 2^23 cells, or noise that has no losses.
    """
    if isinstance(draw, Leaf):
        return draw.losses(interval, beyond)
    there, back = (partial(curve, draw, with_it=way) for way in (True, directions(draw) == 1))
    return losses_of_curves(there, back, reach_of(draw), interval, beyond)


def curve(pair: Pair, epsilon: Floats, with_it: bool) -> Floats:
    """The curve delta(epsilon >= 0), f64[n], of one draw: with the unit against without it, or the other way.

    Args:
        pair: as `is_draw` has it, of moves alone.
    """
    if isinstance(pair, Told):
        whole = math.fsum(chance for chance, _ in pair.cases)
        each = (chance / whole * curve(case, epsilon, with_it) for chance, case in pair.cases)
        return np.asarray(sum(each, np.zeros(len(epsilon))))
    return pair.curve(epsilon, with_it) if isinstance(pair, Moved) else np.zeros(len(epsilon))
