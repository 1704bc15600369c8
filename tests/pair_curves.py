"""What is proved of what is seen by privacy losses on grids alone, where a certificate may have a closed form."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from fedpriv.pairs.grids import all_grids, cell_width
from fedpriv.privacy import Seen
from fedpriv.privacy.certify import pair_of
from fedpriv.privacy.sampling import Neighbour
from fedpriv.proof.composed import Composed, tree_of
from fedpriv.proof.tilted import Sum, log_most
from fedpriv.proof.verify import delta as verified


def epsilon_on_grids(seen: Sequence[Seen], neighbour: Neighbour, delta: float) -> float:
    """The smallest that a grid shows, as the bound of its witness confirms; infinity where none does."""
    pair = pair_of(seen, neighbour)
    best = min(all_grids(pair, delta), key=lambda grid: grid.epsilon, default=None)
    if best is None or best.witness is None:
        return math.inf
    assert verified(pair, best.epsilon, best.witness) <= delta
    return best.epsilon


def directions(
    seen: Sequence[Seen], neighbour: Neighbour, interval: float | None = None
) -> list[Callable[[ArrayLike], np.ndarray]]:
    """With the unit against without it, and the other way round: epsilon f64[...] -> delta f64[...]."""
    pair = pair_of(seen, neighbour)
    width = interval or cell_width(pair)
    return [partial(bound, Composed(tree_of(pair, width, 0.0, way), width)) for way in (0, 1)]


def bound(composed: Composed, epsilon: ArrayLike) -> np.ndarray:
    """delta f64[...], at the tilt where the moments alone bound it best."""
    values = np.ravel(np.asarray(epsilon, float))
    tilts = [[best_tilt(one, value) for value in values] for one in composed.sums]
    return composed.delta(values, tilts).reshape(np.shape(epsilon))


def best_tilt(one: Sum, epsilon: float) -> float:
    """Where the moment bound on delta(epsilon) is nearly smallest."""

    def moment_bound(log: float) -> float:
        tilt = math.exp(log)
        return one.log_moment(tilt) + log_most(tilt) - tilt * epsilon

    ends = math.log(1e-9), math.log(1e9)
    options = {"xatol": 1e-3}
    least = minimize_scalar(moment_bound, bounds=ends, method="bounded", options=options)
    return math.exp(least.x)
