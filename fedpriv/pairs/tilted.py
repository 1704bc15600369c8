"""Composed privacy losses, exact far out in the tail: Fourier transforms of exponentially tilted laws.

The rounding of the sums is bounded here; `README.md` beside this file says by which theorems, and what is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fedpriv.pairs.algebra import fold
from fedpriv.pairs.cells import Losses
from fedpriv.pairs.curves import Floats
from fedpriv.pairs.spectra import (
    UNIT,
    Spectrum,
    cells_of,
    mixed,
    of_leaf,
    power,
    product,
    transform_error,
)

_OUTSIDE = 1e-15  # of the tilted law, on either side of the cells that are kept
_WEIGHTS = 1e-12  # relative error of e^(-t x) (1 - e^-x) for t x < 745, at most
_FAINT = 46.0  # nats; weights beyond, of 1e-20 at most, are left out of sums
_MOST_SIZE = 2**24  # cells of the losses of all draws


@dataclass(frozen=True, eq=False)
class Leaf:
    """Losses of a draw on the grid, in the place of the draw."""

    losses: Losses


class _Law(NamedTuple):
    """A tilted law on the cells from `low` on, with `near` and `far` weights by the distance from epsilon.

    Attributes:
        log_moment: as of `Spectrum`.
        low: the first cell.
        chances: f64[size].
        near, far: f64[k], e^(-t x) (1 - e^-x) and e^(-(t + 1) x), at x = 0, 1, ... cells, as far as they count.
        margin: of a mean of the weights under the law, what rounding and what lies outside may add.
        relative: as of `Spectrum`.
    """

    log_moment: float
    low: int
    chances: Floats
    near: Floats
    far: Floats
    margin: float
    relative: float


class Moments(NamedTuple):
    """Of a tilted law.

    Attributes:
        log_moment, mean, variance: nats.
        to_cells: about the variance that cells add, as a loss between two cells is spread to them: a sixth of their
            squared width on average, and its own size times the width where that is less.
    """

    log_moment: float
    mean: float
    variance: float
    to_cells: float


class Near(NamedTuple):
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


_NONE = Moments(0.0, 0.0, 0.0, 0.0)


class Sum:
    """A tree of leaves, composed: the privacy loss L of all its draws together, where that is finite.

    With the tilted law dP_t = e^(t L - m) dP, for every t > 0,

        delta(eps) = E_P[(1 - e^(eps - L))+] = e^(m - t eps) E_t[e^(-t (L - eps)) (1 - e^(eps - L)); L > eps].

    Args:
        tree: of `Leaf`, `Told`, `Times` and `All`.
        interval: width of a cell, in nats.
        log_weight: log of how often the tree counts.
    """

    def __init__(self, tree: Any, interval: float, log_weight: float = 0.0) -> None:
        self.tree, self.interval, self.log_weight = tree, interval, log_weight
        self._moments: dict[float, dict[int, float]] = {}
        self._latest: tuple[float, _Law] | None = None

    @cached_property
    def leaves(self) -> dict[int, Leaf]:
        """Those that differ, by their identity."""
        found: dict[int, Leaf] = {}

        def leaf(each: Leaf) -> None:
            found[id(each)] = each

        fold(self.tree, leaf, lambda cases: None, lambda of, n: None, lambda each: None)
        return found

    @cached_property
    def _logs(self) -> dict[int, tuple[Floats, Floats]]:
        """(losses in nats, logarithms of their chances), of each leaf."""
        with np.errstate(divide="ignore"):
            return {
                key: (
                    np.float64(self.interval) * cells_of(leaf.losses),
                    np.log(leaf.losses.chances),
                )
                for key, leaf in self.leaves.items()
            }

    def _log_moments(self, tilt: float) -> dict[int, float]:
        """log E[e^(t L); L < inf], of each leaf; the last are kept."""
        if tilt not in self._moments:
            found = {}
            for key, (cells, logs) in self._logs.items():
                exponents = tilt * cells + logs
                top = float(exponents.max())
                some = math.isfinite(top)  # else all is infinite
                found[key] = top + math.log(np.exp(exponents - top).sum()) if some else top
            if len(self._moments) > 32:
                self._moments.clear()
            self._moments[tilt] = found
        return self._moments[tilt]

    def log_moment(self, tilt: float) -> float:
        """m(t) = log E[e^(t L); L < inf], of all draws."""
        of_leaves = self._log_moments(tilt)
        return fold(
            self.tree,
            lambda leaf: of_leaves[id(leaf)],
            lambda cases: float(np.logaddexp.reduce([math.log(c) + m for c, m in cases])),
            lambda m, n: n * m,
            math.fsum,
        )

    def log_delta(self, epsilon: float, tilt: float) -> float:
        """log of an upper bound of delta(epsilon >= 0), of the finite losses, for any tilt above 0."""
        law, interval = self.law(tilt), self.interval
        at = max(math.floor(epsilon / interval * (1 - 4 * UNIT)) + 1, law.low)
        above = at * interval - epsilon
        begin = at - law.low
        mean = 0.0
        if begin < len(law.chances):
            chances = law.chances[begin : begin + len(law.near)]
            here = max(above, 0.0) + 4 * UNIT * (epsilon + interval)
            near = _dot(chances, law.near[: len(chances)])
            mean = near - math.expm1(-here) * _dot(chances, law.far[: len(chances)])
            mean *= math.exp(-tilt * above) * (1 + _WEIGHTS + UNIT * len(law.chances))
        mean = min(mean + law.margin, math.exp(log_most(tilt)) * (1 + _WEIGHTS))
        log_scale = law.log_moment - tilt * epsilon
        size = abs(law.log_moment) + abs(self.log_weight) + tilt * (epsilon + above) + 2
        rounding = law.relative + 4 * UNIT * size
        return self.log_weight + log_scale + rounding + math.log(mean)

    def law(self, tilt: float) -> _Law:
        """The tilted law of all draws; the last is kept."""
        if self._latest is None or self._latest[0] != tilt:
            self._latest = tilt, self._tilted(tilt)
        return self._latest[1]

    def forget(self) -> None:
        """Drops that law."""
        self._latest = None

    def near(self, epsilon: float, tilt: float, width: int) -> Near:
        """See `Near`; `width` is that of cells to which losses were rounded."""
        law = self.law(tilt)
        at = max(math.floor(epsilon / self.interval) + 1 - law.low, 0)
        log_scale = self.log_weight + law.log_moment - tilt * epsilon
        chances = law.chances[at : at + len(law.far)]
        slope = _dot(chances, law.far[: len(chances)])
        nats, here = width * self.interval, chances[:width]
        x = np.arange(len(here)) * self.interval
        return Near(log_scale, _dot(here, np.exp(-tilt * x)) / nats, slope, law.margin)

    def _tilted(self, tilt: float) -> _Law:
        from scipy.fft import next_fast_len

        low, high, outside = self._window(tilt)
        if high - low >= _MOST_SIZE:
            raise ValueError(f"interval: {self.interval}; all losses take more than 2^24 cells")
        size = next_fast_len(max(high - low + 1, 2), real=True)
        found = self._spectrum(tilt, size)
        # SciPy's transforms would keep the tables of each size: much memory over the rounds of a run.
        around = np.fft.irfft(found.values, size)
        chances = np.maximum(np.roll(around, -(low % size)), 0.0)
        error = found.error + transform_error(size) * (found.most + found.error)
        kept = min(size, math.ceil(_FAINT / (tilt * self.interval)) + 1)
        x = np.arange(kept) * self.interval
        far = np.exp(-(tilt + 1) * x)
        near = np.exp(-tilt * x) * -np.expm1(-x)
        most = math.exp(log_most(tilt)) * (1 + _WEIGHTS)
        square = 1 / (2 * tilt * (2 * tilt + 1) * (tilt + 1) * self.interval) + most**2
        margin = math.sqrt(square) * (1 + _WEIGHTS) * error + most * outside
        margin += 2 * math.exp(-_FAINT) if kept < size else 0.0  # of weights that are left out
        return _Law(found.log_moment, low, chances, near, far, margin, found.relative)

    def _spectrum(self, tilt: float, size: int) -> Spectrum:
        moments = self._log_moments(tilt)
        done: dict[int, Spectrum] = {}

        def leaf(each: Leaf) -> Spectrum:
            key = id(each)
            if key not in done:
                cells, logs = self._logs[key]
                done[key] = of_leaf(each.losses, cells, logs, tilt, moments[key], size)
            return done[key]

        def nothing() -> Spectrum:
            return Spectrum(0.0, np.ones(size // 2 + 1, complex), 1.0, 0.0, 0.0)

        return fold(
            self.tree, leaf, mixed, power, lambda each: product(each) if each else nothing()
        )

    def _window(self, tilt: float) -> tuple[int, int, float]:
        """(first cell, last cell, a bound on what the tilted law has above it), by moments."""
        here, deviation = (
            self.log_moment(tilt),
            max(math.sqrt(max(self.moments(tilt).variance, 0.0)), self.interval),
        )
        first, last = self._ends()
        ends = []
        for sign in (-1, 1):
            shifts = sign * 2.0 ** np.arange(-3, 6) / deviation
            bounds = [(self.log_moment(tilt + h) - here - math.log(_OUTSIDE)) / h for h in shifts]
            ends.append(max(bounds) if sign < 0 else min(bounds))
        low = max(math.floor(ends[0] / self.interval), first)
        high = min(math.ceil(ends[1] / self.interval), last)
        return low, max(high, low), 0.0 if high >= last else 4 * _OUTSIDE

    def moments(self, tilt: float) -> Moments:
        """Of the tilted law, but for rounding."""
        of_leaves = self._log_moments(tilt)

        def leaf(each: Leaf) -> Moments:
            cells, logs = self._logs[id(each)]
            moment = of_leaves[id(each)]
            if math.isinf(moment):
                return _NONE._replace(log_moment=moment)
            return _of_cells(
                each.losses, self.interval, cells, np.exp(tilt * cells + logs - moment), moment
            )

        def mixed(cases: list[tuple[float, Moments]]) -> Moments:
            moment = float(np.logaddexp.reduce([math.log(c) + m.log_moment for c, m in cases]))
            shares = [math.exp(math.log(c) + m.log_moment - moment) for c, m in cases]
            mean = sum(s * m.mean for s, (_, m) in zip(shares, cases, strict=True))
            square = sum(
                s * (m.variance + m.mean**2) for s, (_, m) in zip(shares, cases, strict=True)
            )
            spread = sum(s * m.to_cells for s, (_, m) in zip(shares, cases, strict=True))
            return Moments(moment, mean, square - mean**2, spread)

        return fold(
            self.tree,
            leaf,
            mixed,
            lambda m, n: Moments(*(n * each for each in m)),
            lambda each: Moments(*map(math.fsum, zip(*each, strict=True))) if each else _NONE,
        )

    def _ends(self) -> tuple[int, int]:
        """The first and the last cell that the loss of all draws can have."""
        return fold(
            self.tree,
            lambda leaf: (leaf.losses.low, leaf.losses.low + len(leaf.losses.chances) - 1),
            lambda cases: (min(e[0] for _, e in cases), max(e[1] for _, e in cases)),
            lambda ends, n: (n * ends[0], n * ends[1]),
            lambda each: (sum(e[0] for e in each), sum(e[1] for e in each)),
        )


def _dot(a: Floats, b: Floats) -> float:
    """Their product, without threads: for sums of this size these cost more than they save."""
    return float(np.einsum("i,i", a, b))


def _of_cells(
    losses: Losses, interval: float, cells: Floats, chances: Floats, log_moment: float
) -> Moments:
    mean, width = _dot(cells, chances), losses.width * interval
    low = losses.low
    none = float(chances[-low]) if low <= 0 < low + len(chances) else 0.0
    largest = width / 6 if none < 5 / 6 else min(width / 6, _dot(np.abs(cells), chances))
    return Moments(log_moment, mean, _dot((cells - mean) ** 2, chances), largest * width)


def log_most(tilt: float) -> float:
    """log of the largest e^(-t x) (1 - e^-x), x > 0 (Canonne, Kamath and Steinke 2020)."""
    return -tilt * math.log1p(1 / tilt) - math.log1p(tilt)
