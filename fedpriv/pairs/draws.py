"""Privacy losses of one draw: of a pair of which nothing is composed."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from fedpriv.pairs import curves
from fedpriv.pairs import mixture_curves as mixtures
from fedpriv.pairs.algebra import NOTHING, Block, Moved, Noise, Pair, Told
from fedpriv.pairs.blocks import block_losses
from fedpriv.pairs.cells import Losses, connect_the_dots
from fedpriv.pairs.curves import Floats

_FAR = 14.0  # deviations of Gaussian noise beyond which a loss counts as infinite: less than 1e-44
_MOST_CELLS = 2**23  # of a grid


def is_draw(pair: Pair) -> bool:
    """Whether losses are those of a single draw: nothing of it is composed; or of one block."""
    return isinstance(pair, Block) or _has_curve(pair)


def _has_curve(pair: Pair) -> bool:
    if isinstance(pair, Told):
        return all(_has_curve(each) for _, each in pair.cases)
    return isinstance(pair, Moved) or pair == NOTHING


def is_symmetric(pair: Pair) -> bool:
    """Whether a curve stands for both directions: noise is moved for sure, or a unit is replaced."""
    if isinstance(pair, Moved):
        return pair.is_sure or pair.replaced
    if isinstance(pair, Told):
        return all(is_symmetric(each) for _, each in pair.cases)
    return pair == NOTHING


@lru_cache(maxsize=32)
def losses_of(draw: Pair, interval: float, beyond: float) -> tuple[Losses, Losses]:
    """Losses of (P against Q, Q against P) of one draw.

    Formal guarantees: an upper bound, as `connect_the_dots`, of `curve` or of a block.

    Args:
        draw: as `is_draw` has it.
        interval: width of a cell, in nats.
        beyond: the largest losses count as infinite where delta there is no more than this; 0: beyond 14 deviations.

    Raises:
        ValueError: more than 2^23 cells, or noise of integers, which has no losses here.
    """
    reach = reach_of(draw, _FAR)
    if isinstance(draw, Block):
        _check_real(draw.noise)
        _check_cells(reach, interval)
        return block_losses(draw, interval, beyond)

    def there(epsilon: Floats) -> Floats:
        return curve(draw, epsilon, with_it=True)

    def back(epsilon: Floats) -> Floats:
        return curve(draw, epsilon, with_it=False)

    if is_symmetric(draw):
        back = there
    if beyond and reach:
        losses = np.geomspace(min(interval, reach), reach, 512)
        rare = np.maximum(there(losses), back(losses)) <= beyond
        reach = float(losses[np.argmax(rare)]) if rare.any() else reach
    _check_cells(reach, interval)
    return connect_the_dots(there, back, max(1, math.ceil(reach / interval)), interval)


def _check_cells(reach: float, interval: float) -> None:
    if not reach <= interval * _MOST_CELLS:
        raise ValueError(
            f"interval: {interval}; losses up to {reach:.4g} take more than 2^23 cells"
        )


def curve(pair: Pair, epsilon: Floats, with_it: bool) -> Floats:
    """The curve delta(epsilon >= 0), f64[n], of one draw: with the unit against without it, or the other way.

    Args:
        pair: a draw, but no block.

    Raises:
        ValueError: noise of integers.
    """
    if isinstance(pair, Told):
        whole = math.fsum(chance for chance, _ in pair.cases)
        each = (chance / whole * curve(case, epsilon, with_it) for chance, case in pair.cases)
        return np.asarray(sum(each, np.zeros(len(epsilon))))
    if pair == NOTHING:
        return np.zeros(len(epsilon))
    assert isinstance(pair, Moved)
    noise, (far, rate) = pair.noise, pair.law[0]
    noise = _check_real(noise)
    if math.isinf(far):
        return np.asarray(
            curves.seen_delta(epsilon, min(rate, 1.0), not (with_it or pair.replaced))
        )
    if len(pair.law) > 1 or (pair.in_place and not pair.is_sure):
        several = _OF_SEVERAL["in_place" if pair.in_place else _which(pair, with_it)]
        return np.asarray(several(epsilon, *np.array(pair.law).T, noise))
    if pair.is_sure:
        return np.asarray(curves.CURVES[noise](epsilon, far))
    of_one = _OF_ONE[_which(pair, with_it)]
    return np.asarray(of_one(epsilon, 1 / far, rate, noise))


def _which(pair: Moved, with_it: bool) -> str | bool:
    return "replaced" if pair.replaced else with_it


def _check_real(noise: Noise) -> str:
    if isinstance(noise, str):
        return noise
    raise ValueError("noise: of integers, of which divergences alone are known")


_OF_ONE: dict[str | bool, Callable[..., Floats]] = {
    True: curves.remove_delta,
    False: curves.add_delta,
    "replaced": curves.replace_delta,
}
_OF_SEVERAL: dict[str | bool, Callable[..., Floats]] = {
    True: mixtures.several_delta,
    False: mixtures.none_delta,
    "replaced": mixtures.replaced_delta,
    "in_place": mixtures.in_place_delta,
}
"""By the direction; of one distance, and of several."""


def reach_of(draw: Pair, deviations: float) -> float:
    """The largest finite loss, nats; of Gaussian noise so many standard deviations away."""
    if isinstance(draw, Told):
        return max(reach_of(each, deviations) for _, each in draw.cases)
    if isinstance(draw, Block):
        far = max(case[1] for case in draw.cases)
    elif isinstance(draw, Moved):
        far = max((d for d, _ in draw.law if math.isfinite(d)), default=0.0)
    else:
        return 0.0
    return far if draw.noise == "laplace" else far**2 / 2 + deviations * far
