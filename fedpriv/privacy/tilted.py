"""Composition of discretised privacy losses, exact far out in the tail: exponentially tilted Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedpriv.privacy.curves import Floats
from fedpriv.privacy.discretised import Losses
from fedpriv.privacy.large_losses import Case, Rounds, told_apart

# Margin, as a probability under the tilted law, for the rounding of the Fourier transforms: a constant and an amount
# for every release. The rounding that was measured against sums of 10^3 to 10^6 signs, which have a closed form, is an
# eighth of it at most (see the tests); rounding is allowed for, not proved.
_ROUNDING, _ROUNDING_PER_ROUND = 1e-13, 1e-16
_OUTSIDE = 1e-15  # of the tilted law, on either side of the cells that are kept
_TILTS = 8  # for a whole curve


class _Tail(NamedTuple):
    """Of a tilted loss L, for each cell l from `low` on: E[e^(-r (L - l)); L >= l] for r = t and r = t + 1.

    Attributes:
      low: the first cell.
      slow, fast: f64[cells], for t and t + 1.
    """

    low: int
    slow: Floats
    fast: Floats


class Priced(NamedTuple):
    """Epsilon at a delta, and about how much of it is given away, in nats.

    Attributes:
        epsilon: as `Composed.epsilon`.
        to_cells: by the width of the cells.
        to_rounding: by the margin for rounding.
        cells: how many the tilted losses of all rounds take.
    """

    epsilon: float
    to_cells: float
    to_rounding: float
    cells: int


class Composed:
    """The privacy loss L of all rounds together, composed by tilting.

    Formal guarantees: `epsilon` and `delta` are upper bounds for the pair of the discretised losses; see `_Sum` for the
    finite losses. Infinite losses are composed in closed form.

    With `jumps` the sum is that of the cases in which no release, or one, has a large loss; that two or more have one
    counts as delta = 1. Where the tails of a release are heavier than exponential no tilt reaches them: there the
    margin for rounding of all losses together can be more than delta, that of large ones, which are rare, is not.

    Args:
        rounds: at least one, on the same grid.
        interval: width of a cell, in nats.
        jumps: expected number of releases with a large loss; 0 tells no losses apart.
    """

    def __init__(self, rounds: tuple[Rounds, ...], interval: float, jumps: float = 0.0) -> None:
        self._rounds, self._interval = rounds, interval
        everything = [Case(0.0, rounds)], 0.0
        cases, self._several = told_apart(rounds, jumps) if jumps else everything
        self._sums = [_Sum(case, interval) for case in cases]

    @cached_property
    def infinity(self) -> float:
        """Probability of an infinite loss, or of several large ones if these are told apart."""
        finite = 0.0
        for r in self._rounds:
            block = -math.expm1(r.local_steps * math.log1p(-r.losses.infinity))
            finite += r.rounds * math.log1p(-r.rate * block)
        return self._several - math.expm1(finite)

    def with_jumps(self, delta: float) -> Composed:
        """The same, with large losses told apart: so large that two of them are rare beside delta."""
        return Composed(self._rounds, self._interval, math.sqrt(2e-4 * delta))

    def cells_of_one(self, beyond: float) -> int:
        """How many cells the losses of a release take on one side of 0, but for the largest, of this chance."""
        return max(_last_cell(r.losses, beyond) for r in self._rounds)

    @property
    def width(self) -> int:
        """In cells, how wide those are to which losses were rounded."""
        return max(r.losses.width for r in self._rounds)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0, in nats, that is certified at delta; infinity where there is none."""
        return self.priced(delta).epsilon

    def priced(self, delta: float) -> Priced:
        """`epsilon`, and what it gives away."""
        from scipy.optimize import brentq

        left = (delta - self.infinity) / len(self._sums)
        if left <= 0:
            return Priced(math.inf, 0.0, 0.0, 0)
        tilts = [each.tilt_for(left) for each in self._sums]
        tops = [each.by_moment(t, left) for each, t in zip(self._sums, tilts, strict=True)]
        top = max(tops)
        if top <= 0:
            return Priced(0.0, 0.0, 0.0, 0)
        parts = list(zip(self._sums, map(_Sum.tail, self._sums, tilts), tilts, tops, strict=True))

        # Below it the margin alone is more than delta.
        low = max(0.0, *(end - 40 / t for t, end in zip(tilts, tops, strict=True)))
        if _excess(top, parts) >= 0:
            found = top
        elif _excess(low, parts) <= 0:
            found = low
        else:
            # What a closure held, such as the tails, would stay: brentq leaves a cycle around its function.
            root = float(brentq(_excess, low, top, args=(parts,), xtol=1e-11, rtol=1e-13))
            found = root * (1 + 1e-12) + 1e-10
        logs = np.array([-_log_most(t) - t * (found - end) for _, _, t, end in parts])
        weights = np.exp(logs - logs.max())
        near = np.array([each.near(tail, t, found) for each, tail, t, _ in parts])
        density, slope, margin = weights @ near
        spread = self._sums[0].spread_to_cells(tilts[0])
        to_cells, to_rounding = 0.0, math.inf
        if slope > 0:
            to_cells, to_rounding = spread / 2 * density / slope, margin / slope
        nats = self.width * self._interval
        if density * nats >= slope / 2:  # at the largest losses, which can move by a cell
            to_cells = max(to_cells, 6 * spread / nats)
        cells = max(len(tail.slow) for _, tail, _, _ in parts)
        return Priced(found, float(to_cells), float(to_rounding), cells)

    def delta(self, epsilon: ArrayLike) -> Floats:
        """f64[...], certified at each epsilon >= 0."""
        eps = np.asarray(epsilon, float)
        return np.minimum(self.infinity + sum(each.delta(eps) for each in self._sums), 1.0)


class _Sum:
    """The finite privacy loss L of all rounds together, times a weight.

    Formal guarantees: `delta` and the roots of `expected` are upper bounds. For any t > 0, with M = E[e^(t L)] and the
    tilted law of L, of density e^(t l) / M against its own,

        delta(eps) = M e^(-t eps) E_tilted[e^(-t (L - eps)) (1 - e^(eps - L)); L > eps].

    The tilted law of a sum is that of the sum of tilted terms, so that it is composed by Fourier transforms. Their
    rounding, and losses outside of the cells that are kept, change the expectation by at most `margin`: the factor in
    it is at most 1. So delta is wrong by at most M e^(-t eps) margin, which is little beside delta where t is near the
    minimum of the moment bound on delta, and that bound is near to delta.

    Args:
        case: the rounds, and the weight.
        interval: as of `Composed`.
    """

    def __init__(self, case: Case, interval: float) -> None:
        rounds = case.rounds
        self._rounds, self._interval, self._log_weight = rounds, interval, case.log_weight
        self._cells = [(r.losses.low + np.arange(len(r.losses.chances))) * interval for r in rounds]
        with np.errstate(divide="ignore"):
            self._logs = [np.log(r.losses.chances) for r in rounds]
        self._latest: tuple[float, list[tuple[float, Floats]]] = math.nan, []
        releases = sum(r.rounds * r.local_steps for r in rounds)
        self._margin = _ROUNDING + _ROUNDING_PER_ROUND * releases + 2 * _OUTSIDE

    def by_moment(self, tilt: float, delta: float) -> float:
        """An epsilon that is certified at delta by the moment of this order alone."""
        return (self._log_moment(tilt) + _log_most(tilt) - math.log(delta)) / tilt

    def tilt_for(self, delta: float) -> float:
        """Where `by_moment` is nearly smallest."""
        return _least(lambda tilt: self.by_moment(tilt, delta))

    def delta(self, eps: Floats) -> Floats:
        """f64[...], for eps >= 0."""
        first, last = self._tilt_at(float(eps.min())), self._tilt_at(float(eps.max()))
        least = np.full(eps.shape, np.inf)
        for tilt in np.geomspace(first, last, _TILTS if eps.size > 1 else 1):
            with np.errstate(over="ignore"):
                scale = np.exp(self._log_moment(tilt) - tilt * eps)
            least = np.minimum(least, scale * self.expected(self.tail(tilt), tilt, eps))
        return least

    def _tilt_at(self, epsilon: float) -> float:
        """Where the moment bound on delta(epsilon) is nearly smallest."""
        return _least(lambda t: self._log_moment(t) + _log_most(t) - t * epsilon)

    def expected(self, tail: _Tail, tilt: float, epsilon: ArrayLike) -> Floats:
        """E_tilted[e^(-t (L - eps)) (1 - e^(eps - L)); L > eps], with the margin."""
        eps = np.asarray(epsilon, float)
        at = np.maximum(np.floor(eps / self._interval).astype(np.int64) + 1, tail.low)
        above = at * self._interval - eps
        there = np.minimum(at - tail.low, len(tail.slow) - 1)
        mean = np.exp(-tilt * above) * (tail.slow[there] - np.exp(-above) * tail.fast[there])
        return np.where(at - tail.low < len(tail.slow), np.maximum(mean, 0.0), 0.0) + self._margin

    def near(self, tail: _Tail, tilt: float, epsilon: float) -> tuple[float, float, float]:
        """Under the tilted law: density at epsilon, E[e^(-(t + 1) (L - eps)); L > eps], and the margin."""
        at = max(math.floor(epsilon / self._interval) + 1 - tail.low, 0)
        if at >= len(tail.slow):
            return 0.0, 0.0, self._margin
        cells = max(r.losses.width for r in self._rounds)
        nats = cells * self._interval
        after = tail.slow[at + cells] if at + cells < len(tail.slow) else 0.0
        here = max(tail.slow[at] - math.exp(-tilt * nats) * after, 0.0)
        return float(here) / nats, float(tail.fast[at]), self._margin

    def spread_to_cells(self, tilt: float) -> float:
        """About the variance that cells add to L, nats squared.

        A loss l between two cells is spread to them, which adds a sixth of their squared width on average, and |l|
        times the width where that is less.
        """
        total = 0.0
        for r, cells, (moment, chances) in zip(
            self._rounds, self._cells, self._once(tilt), strict=True
        ):
            width, none = r.losses.width * self._interval, _chance_of_none(r.losses.low, chances)
            largest = width / 6 if none < 5 / 6 else min(width / 6, float(np.abs(cells) @ chances))
            total += r.rounds * _taking_part(r, moment) * r.local_steps * largest * width
        return total

    def _log_moment(self, tilt: float) -> float:
        """log E[e^(t L); L < inf]."""
        moment = self._log_weight
        for r, (of_release, _) in zip(self._rounds, self._once(tilt), strict=True):
            moment += r.rounds * _of_round(r, of_release)
        return moment

    def _once(self, tilt: float) -> list[tuple[float, Floats]]:
        """(log moment of one release, its tilted chances), of each kind of rounds; the last are kept."""
        if self._latest[0] == tilt:
            return self._latest[1]
        each = []
        for cells, logs in zip(self._cells, self._logs, strict=True):
            exponents = tilt * cells + logs
            largest = exponents.max()
            weights = np.exp(exponents - largest)
            total = weights.sum()
            each.append((float(largest + math.log(total)), weights / total))
        self._latest = tilt, each
        return each

    def tail(self, tilt: float) -> _Tail:
        """Of the tilted loss of all rounds."""
        low, chances = self._tilted(tilt)
        return _Tail(low, *(_decaying(chances, rate * self._interval) for rate in (tilt, tilt + 1)))

    def _tilted(self, tilt: float) -> tuple[int, Floats]:
        """(the first cell, chances from there on) of the tilted loss of all rounds."""
        from scipy.fft import next_fast_len

        once = self._once(tilt)
        low, high = self._range(tilt, once)
        size = next_fast_len(high - low + 1, real=True)
        # SciPy's transforms would keep the tables of each size: much memory over the rounds of a run.
        spectrum = np.ones(size // 2 + 1, complex)
        for r, (moment, chances) in zip(self._rounds, once, strict=True):
            cells = (r.losses.low + np.arange(len(chances))) % size
            of_release = np.fft.rfft(np.bincount(cells, chances, size))
            taking_part = _taking_part(r, moment)
            of_round = (1 - taking_part) + taking_part * of_release**r.local_steps
            spectrum *= of_round**r.rounds
        around = np.fft.irfft(spectrum, size)
        return low, np.maximum(np.roll(around, -(low % size)), 0.0)

    def _range(self, tilt: float, once: list[tuple[float, Floats]]) -> tuple[int, int]:
        """Cells outside of which the tilted loss is with probability `_OUTSIDE` on either side (moment bounds)."""
        here, square = self._log_moment(tilt), 0.0  # variance
        for r, cells, (moment, chances) in zip(self._rounds, self._cells, once, strict=True):
            mean = float(cells @ chances)
            spread, rate = float((cells - mean) ** 2 @ chances), _taking_part(r, moment)
            everything = (
                rate * r.local_steps * spread + rate * (1 - rate) * (r.local_steps * mean) ** 2
            )
            square += r.rounds * everything
        deviation = max(math.sqrt(square), self._interval)
        ends = []
        for sign in (-1, 1):
            shifts = sign * 2.0 ** np.arange(-3, 6) / deviation
            bounds = [(self._log_moment(tilt + h) - here - math.log(_OUTSIDE)) / h for h in shifts]
            ends.append(max(bounds) if sign < 0 else min(bounds))
        low = max(math.floor(ends[0] / self._interval), self._end(0))
        high = min(math.ceil(ends[1] / self._interval), self._end(-1))
        return low, max(high, low)

    def _end(self, which: int) -> int:
        """The first (0) or last (-1) cell that the loss of all rounds can have."""
        cells = 0
        for r in self._rounds:
            cell = r.local_steps * (r.losses.low + (len(r.losses.chances) - 1 if which else 0))
            if r.rate < 1:
                cell = max(cell, 0) if which else min(cell, 0)
            cells += r.rounds * cell
        return cells


def _excess(epsilon: float, parts: list[tuple[_Sum, _Tail, float, float]]) -> float:
    """log((delta(epsilon) - infinity) / left), for `Composed.priced`: left is for all sums together."""
    logs = [
        math.log(each.expected(tail, t, epsilon)) - _log_most(t) - t * (epsilon - end)
        for each, tail, t, end in parts
    ]
    return float(np.logaddexp.reduce(logs)) - math.log(len(parts))


def _last_cell(losses: Losses, beyond: float) -> int:
    kept = np.flatnonzero(np.cumsum(losses.chances[::-1])[::-1] > beyond)
    return max(1, losses.low + int(kept[-1])) if len(kept) else 1


def _chance_of_none(low: int, chances: Floats) -> float:
    return float(chances[-low]) if low <= 0 < low + len(chances) else 0.0


def _of_round(r: Rounds, of_release: float) -> float:
    """Log moment of a round."""
    together = r.local_steps * of_release
    if r.rate == 1:
        return together
    return float(np.logaddexp(math.log1p(-r.rate), math.log(r.rate) + together))


def _taking_part(r: Rounds, of_release: float) -> float:
    """Probability, under the tilted law, that the unit is in the releases of a round."""
    if r.rate == 1:
        return 1.0
    return math.exp(math.log(r.rate) + r.local_steps * of_release - _of_round(r, of_release))


def _decaying(chances: Floats, rate: float) -> Floats:
    """f64[k]: sum_{j >= i} e^(-rate (j - i)) chances_j."""
    from scipy.signal import lfilter

    return np.asarray(lfilter([1.0], [1.0, -math.exp(-rate)], chances[::-1])[::-1])


def _log_most(tilt: float) -> float:
    """log of the largest e^(-t x) (1 - e^-x), x > 0 (Canonne, Kamath and Steinke 2020)."""
    return -tilt * math.log1p(1 / tilt) - math.log1p(tilt)


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
