"""The search for a grid: cells of which width, and which tilts, show the smallest epsilon. It need not be trusted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedpriv.pairs.blocks import Block
from fedpriv.pairs.large_losses import ComposedApart, DirectionApart, draws_in
from fedpriv.pairs.parts import draws_of
from fedpriv.proof.cells import Losses
from fedpriv.proof.composed import Composed, tree_of
from fedpriv.proof.losses import directions, is_draw, reach_of
from fedpriv.proof.pairs import Leaf, Moved, Pair, fold
from fedpriv.proof.tilted import DrawLosses, Sum, dot, log_most
from fedpriv.proof.verify import COARSEST, Direction, Grid

_CELLS, _COMPOSED_CELLS = 5e4, 1e6  # aimed at for the losses of one draw, and of all draws
_FINEST = 1e-4  # nats; dp-accounting's own default
_WASTED = 1e-3  # of epsilon, that cells or rounding may cost before a narrower grid is tried
_LEAST = 1e-6  # nats; a smaller epsilon is taken for this one there
_STEPS = 50  # of a cell up to epsilon, at least
_BEYOND = 1e-6  # of delta, that losses have that count as infinite on a narrower grid
_LEAST_BEYOND = 1e-16  # they have no more, where smaller deltas may be asked for, too
_RARE = 1e-3, _BEYOND  # of delta, the same where none is; the first leaves more room
_MOST_ONCE, _MOST_COMPOSED = 2**17, 2**21  # cells of a narrower grid
_MOST_HALVINGS = 6  # at once, as epsilon falls with them
_TILTS = 8  # for a whole curve


class OnGrid(NamedTuple):
    """Losses of all draws on cells of one width.

    Attributes:
        epsilon: at the delta it was made for.
        composed: of each direction that differs.
        witness: that shows epsilon; None: there is none.
        beyond: as of `losses.losses_of`.
        too_wide: how many times as wide as they may be the cells are, at that delta; 1 or less where that costs little.
    """

    epsilon: float
    composed: tuple[Composed, ...]
    witness: Grid | None
    beyond: float
    too_wide: float


class _Priced(NamedTuple):
    """Epsilon of one direction at a delta, and about how much of it is given away, in nats.

    Attributes:
        epsilon, composed: as of `OnGrid`.
        tilts: of each sum.
        to_cells: by the width of the cells.
        to_rounding: by the margin for rounding.
        cells: how many the tilted losses of all draws take.
    """

    epsilon: float
    composed: Composed
    tilts: tuple[float, ...] = ()
    to_cells: float = 0.0
    to_rounding: float = 0.0
    cells: int = 0


@lru_cache(maxsize=4)
def all_grids(pair: Pair, delta: float) -> tuple[OnGrid, ...]:
    """`on_grids`, and finer ones where losses far rarer than delta may have taken the room of narrower cells."""
    grids = on_grids(pair, delta)
    if not grids:
        return ()
    last = grids[-1]
    assert last.composed
    interval = last.composed[0].interval
    for part in _RARE if last.too_wide > 1 else ():
        rare = _share(pair, part * delta)
        more = _narrowing(pair, delta, interval, rare, rare)
        grids += more
        infinity = max(composed.infinity for composed in more[-1].composed)
        if more[-1].too_wide <= 1 and infinity <= _BEYOND * delta:
            break
    return grids


@lru_cache(maxsize=4)
def on_grids(pair: Pair, delta: float) -> tuple[OnGrid, ...]:
    """The grid of `cell_width`, and narrower ones until no more than `_WASTED` of epsilon is given away.

    The last gives away more only where its cells would be too many. None where losses are too large for any grid.
    """
    rare = _share(pair, min(_BEYOND * delta, _LEAST_BEYOND))
    return _narrowing(pair, delta, cell_width(pair), 0.0, rare)


def whole_curve(grid: OnGrid, most: float) -> Grid:
    """A witness for all epsilons up to `most`."""
    ways = []
    for composed in grid.composed:
        tilts = []
        for one in composed.sums:
            first, last = (_tilt_at(one, value) for value in (0.0, most))
            tilts.append(tuple(np.geomspace(first, last, _TILTS).tolist()))
        ways.append(_direction(composed, tuple(tilts)))
    return Grid(grid.composed[0].interval, grid.beyond, tuple(ways))


def _tilt_at(one: Sum, value: float) -> float:
    """Where the moment bound on delta(epsilon) is nearly smallest."""
    return _least(lambda t: one.log_moment(t) + log_most(t) - t * value)


def _share(pair: Pair, chance: float) -> float:
    """The part of a chance that falls to one draw: a power of two, rounded down."""
    return float(2.0 ** math.floor(math.log2(max(chance / _draws(pair), 1e-300))))


def _draws(pair: Pair) -> int:
    """How many there are at most; at least one."""
    return 1 if is_draw(pair) else max(1, draws_of(pair))


def cell_width(pair: Pair) -> float:
    """Width of a cell in nats: 1e-4, or as many powers of two above as keep the arrays small.

    Wide cells cost tightness, never soundness. Powers of two let calls with different numbers of draws share the
    cached distribution of a draw.
    """
    spread = _spread(pair)
    composed = spread / 2 + 10 * math.sqrt(spread)
    width = max(_largest_loss(pair) / _CELLS, composed / _COMPOSED_CELLS) / _FINEST
    return float(_FINEST * 2.0 ** max(0, math.ceil(math.log2(width))))


def _largest_loss(pair: Pair) -> float:
    return fold(
        pair,
        lambda draw: max(reach_of(draw, 10.0), 1e-300),
        lambda cases: max(loss for _, loss in cases),
        lambda loss, _: loss,
        lambda each: max(each, default=1e-300),
    )


def _spread(pair: Pair) -> float:
    """Mean squared move of all draws together, as if they were told."""

    def of_draw(draw: Leaf) -> float:
        if isinstance(draw, Block):
            return math.fsum(chance * far**2 for chance, far, _ in draw.cases)
        if isinstance(draw, Moved):
            return math.fsum(p * d**2 for d, p in draw.law if math.isfinite(d))
        return 2 * draw.reach(0.0)  # as of a sure move of Gaussian noise

    return fold(
        pair,
        of_draw,
        lambda cases: math.fsum(chance * x for chance, x in cases),
        lambda x, n: n * x,
        math.fsum,
    )


def _narrowing(
    pair: Pair, delta: float, interval: float, beyond: float, rare: float
) -> tuple[OnGrid, ...]:
    """Grids from cells of `interval` on, see `on_grids`.

    Args:
        pair, delta: as `on_grids`.
        interval, beyond: of the first, as of `losses.losses_of`.
        rare: `beyond` of the narrower ones.
    """
    grids: list[OnGrid] = []
    while interval <= COARSEST:
        trees = (tree_of(pair, interval, beyond, way) for way in range(directions(pair)))
        found = [_priced(Composed(tree, interval), delta) for tree in trees]
        worst = max(found, key=lambda one: one.epsilon)
        each, value = tuple(one.composed for one in found), _raised(found, delta)
        witness = _witness(found, value, interval, beyond)
        too_wide = _too_wide(worst, interval)
        grids.append(OnGrid(value, each, witness, beyond, too_wide))
        forget(each)
        if too_wide <= 1:
            break
        # Losses that were rounded to wider cells are rounded less where rare ones are left out, not on narrower cells.
        width = max(map(_width, each))
        wanted = math.ceil(math.log2(2 * too_wide / width))
        room = min(
            _MOST_ONCE / max(_cells_of_one(one, rare) for one in each),
            _MOST_COMPOSED / max(worst.cells, 1),
        )
        halvings = max(0, min(wanted, _MOST_HALVINGS, math.floor(math.log2(room))))
        if halvings == 0 and (width == 1 or beyond == rare):
            break
        interval, beyond = interval / 2**halvings, rare
    return tuple(grids)


def _priced(composed: Composed, delta: float) -> _Priced:
    """With large losses told apart where the margin for rounding costs much otherwise."""
    found = _of_sums(composed, delta)
    if found.to_rounding <= _WASTED * max(found.epsilon, _LEAST):
        return found
    # So large that two of them are rare beside delta.
    apart = ComposedApart(composed.tree, composed.interval, math.sqrt(2e-4 * delta))
    return min(found, _of_sums(apart, delta), key=lambda one: one.epsilon)


def _of_sums(composed: Composed, delta: float) -> _Priced:
    from scipy.optimize import brentq

    sums = composed.sums
    left = (delta - composed.infinity) / len(sums)
    if left <= 0:
        return _Priced(math.inf, composed)
    tilts = tuple(_tilt_for(one, left) for one in sums)
    tops = [_by_moment(one, t, left) for one, t in zip(sums, tilts, strict=True)]
    top = max(tops)
    if top <= 0:
        return _Priced(0.0, composed, tilts)

    # Below it the margin alone is more than delta.
    low = max(0.0, *(end - 40 / t for t, end in zip(tilts, tops, strict=True)))
    target = math.log(left * len(sums))
    if _excess(top, sums, tilts, target) >= 0:
        found = top
    elif _excess(low, sums, tilts, target) <= 0:
        found = low
    else:
        # What a closure held, such as the laws, would stay: brentq leaves a cycle around its function.
        root = float(brentq(_excess, low, top, args=(sums, tilts, target), xtol=1e-11, rtol=1e-13))
        found = root * (1 + 1e-12) + 1e-10
    width = _width(composed)
    near = [_near(one, found, t, width) for one, t in zip(sums, tilts, strict=True)]
    logs = np.array([each.log_scale for each in near])
    weights = np.exp(logs - logs.max())
    density, slope, margin = weights @ np.array([each[1:] for each in near])
    spread = _to_cells(sums[0], tilts[0])
    to_cells, to_rounding = 0.0, math.inf
    if slope > 0:
        to_cells, to_rounding = spread / 2 * density / slope, margin / slope
    nats = width * composed.interval
    if density * nats >= slope / 2:  # losses all but end here: a cell to the left costs a sixth
        to_cells = max(to_cells, 6 * spread / nats)
    cells = max(len(one.law(t).chances) for one, t in zip(sums, tilts, strict=True))
    return _Priced(found, composed, tilts, float(to_cells), float(to_rounding), cells)


class _Near(NamedTuple):
    """Of a tilted law near epsilon.

    Attributes:
        log_scale: of all that follows.
        density: of the loss, per nat.
        slope: E[e^(-(t + 1) (L - eps)); L > eps].
        margin: as of the law.
    """

    log_scale: float
    density: float
    slope: float
    margin: float


def _near(one: Sum, epsilon: float, tilt: float, width: int) -> _Near:
    """See `_Near`; `width` is that of cells to which losses were rounded."""
    law = one.law(tilt)
    at = max(math.floor(epsilon / one.interval) + 1 - law.low, 0)
    log_scale = one.log_weight + law.log_moment - tilt * epsilon
    chances = law.chances[at : at + len(law.far)]
    slope = dot(chances, law.far[: len(chances)])
    nats, here = width * one.interval, chances[:width]
    x = np.arange(len(here)) * one.interval
    return _Near(log_scale, dot(here, np.exp(-tilt * x)) / nats, slope, law.margin)


def _to_cells(one: Sum, tilt: float) -> float:
    """About the variance of the tilted law that cells add, as a loss between two cells is spread to them.

    A sixth of their squared width on average, and its own size times the width where that is less.
    """

    def of_draw(draw: DrawLosses) -> tuple[float, float]:
        moment, low = draw.log_moment(tilt), draw.losses.low
        if math.isinf(moment):
            return moment, 0.0
        chances, width = draw.tilted(tilt), draw.losses.width * one.interval
        none = float(chances[-low]) if low <= 0 < low + len(chances) else 0.0
        largest = width / 6 if none < 5 / 6 else min(width / 6, dot(np.abs(draw.nats), chances))
        return moment, largest * width

    def mixed(cases: list[tuple[float, tuple[float, float]]]) -> tuple[float, float]:
        logs = [math.log(c) + moment for c, (moment, _) in cases]
        whole = float(np.logaddexp.reduce(logs))
        shares = (math.exp(log - whole) for log in logs)
        return whole, sum(share * x for share, (_, (_, x)) in zip(shares, cases, strict=True))

    _, spread = fold(
        one.tree,
        of_draw,
        mixed,
        lambda x, n: (n * x[0], n * x[1]),
        lambda each: (math.fsum(m for m, _ in each), math.fsum(x for _, x in each)),
    )
    return spread


def forget(several: Sequence[Composed]) -> None:
    """Drops what sums keep of a tilt: much memory."""
    for composed in several:
        for one in composed.sums:
            one.forget()


def _excess(value: float, sums: Sequence[Sum], tilts: Sequence[float], target: float) -> float:
    """log of the bound of delta(value), of finite losses, over what is left for them."""
    logs = [one.log_delta(value, t) for one, t in zip(sums, tilts, strict=True)]
    return float(np.logaddexp.reduce(logs)) - target


def _by_moment(one: Sum, tilt: float, delta: float) -> float:
    """Epsilon at delta by the moment bound."""
    return (one.log_weight + one.log_moment(tilt) + log_most(tilt) - math.log(delta)) / tilt


def _tilt_for(one: Sum, delta: float) -> float:
    """Where the moment bound on epsilon is nearly smallest."""
    return _least(lambda t: _by_moment(one, t, delta))


def _least(value: Callable[[float], float]) -> float:
    """A tilt where `value`, which falls and then rises, is nearly smallest."""
    from scipy.optimize import minimize_scalar

    least = minimize_scalar(
        lambda log: value(math.exp(log)),
        bounds=(math.log(1e-9), math.log(1e9)),
        method="bounded",
        options={"xatol": 1e-3},
    )
    return math.exp(least.x)


def _too_wide(found: _Priced, interval: float) -> float:
    """How many times as wide as they may be the cells are: 1 or less where that costs little."""
    if found.epsilon == 0 or math.isinf(found.epsilon):
        return 1.0
    value = max(found.epsilon, _LEAST)
    return max(_STEPS * interval, math.sqrt(value * found.to_cells / _WASTED)) / value


def _width(composed: Composed) -> int:
    """In cells, how wide those are to which losses were rounded."""
    return max((draw.losses.width for draw in draws_in(composed.tree).values()), default=1)


def _cells_of_one(composed: Composed, beyond: float) -> int:
    """How many cells the losses of a draw take on one side of 0, but for the largest, of this chance."""

    def last(losses: Losses) -> int:
        kept = np.flatnonzero(np.cumsum(losses.chances[::-1])[::-1] > beyond)
        return max(1, losses.low + int(kept[-1])) if len(kept) else 1

    return max((last(draw.losses) for draw in draws_in(composed.tree).values()), default=1)


def _witness(found: Sequence[_Priced], value: float, interval: float, beyond: float) -> Grid | None:
    """What shows that epsilon, of all directions."""
    if math.isinf(value):
        return None
    ways = tuple(_direction(one.composed, tuple((t,) for t in one.tilts)) for one in found)
    return Grid(interval, beyond, ways)


def _direction(composed: Composed, tilts: tuple[tuple[float, ...], ...]) -> Direction:
    if isinstance(composed, ComposedApart):
        return DirectionApart(tilts, composed.jumps)
    return Direction(tilts)


def _raised(found: Sequence[_Priced], delta: float) -> float:
    """The epsilon of the worst direction, or a little more, so that rounding shows it of all."""
    value, step = max(one.epsilon for one in found), 1e-15
    while math.isfinite(value) and step < 1e-3:
        each = (one.composed.delta(np.array([value]), [[t] for t in one.tilts]) for one in found)
        if max(float(bound[0]) for bound in each) <= delta:
            return value
        value, step = value * (1 + step) + step * _LEAST, 4 * step
    return math.inf


def epsilon_of(composed: Composed, delta: float) -> float:
    """The least epsilon of one direction, on its grid."""
    return _of_sums(composed, delta).epsilon
