"""Composed privacy losses, exact far out in the tail: Fourier transforms of exponentially tilted laws.

Let L be the privacy loss of all draws, each discretised so that its pair dominates the draw's, where it is finite. For
any t > 0, with the tilted law dP_t = e^(t L - m) dP,

    delta(eps) = E_P[(1 - e^(eps - L))+] = e^(m - t eps) E_t[w(L - eps)],    w(x) = e^(-t x) (1 - e^-x) for x > 0.

The tilted law of a composition is the convolution of the tilted laws, so its Fourier transform is the product of
theirs. Every step errs upwards; 1 to 3 are those of `spectra`.

4. *The sum.* After the inverse transform the chances of all cells err by E in l2 altogether; so a sum with weights w
   errs by E times the l2 norm of the weights, whose square is at most 1 / (2 t (2 t + 1) (t + 1) h) + max w^2, h being
   the width of a cell: a sum of a unimodal function is at most its integral and its largest term. Terms are not
   negative, so a sum of k of them errs by k u, relative.
5. *The window.* What the tilted law has below the first cell or above the last (moment bounds) counts at the largest
   weight, (t / (t + 1))^t / (t + 1).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fedpriv.proof import spectra
from fedpriv.proof.cells import Losses
from fedpriv.proof.noise import Floats
from fedpriv.proof.pairs import fold
from fedpriv.proof.spectra import UNIT, Spectrum, transform_error

_OUTSIDE = 1e-15  # of the tilted law, on either side of the cells that are kept
_WEIGHTS = 1e-12  # relative error of e^(-t x) (1 - e^-x) for t x < 745, at most
_FAINT = 46.0  # nats; weights beyond, of 1e-20 at most, are left out of sums
_MOST_SIZE = 2**24  # cells of the losses of all draws
_KEPT = 32  # tilts of which a draw's moments are kept


class Moments(NamedTuple):
    """Of a tilted law, in nats, but for rounding."""

    log_moment: float
    mean: float
    variance: float


class DrawLosses:
    """The finite losses of one draw, in the place of the draw: of equal draws it is one object.

    Args:
        losses: on cells.
        interval: width of a cell, in nats.
    """

    def __init__(self, losses: Losses, interval: float) -> None:
        self.losses = losses
        self.nats = np.float64(interval) * (losses.low + np.arange(len(losses.chances)))
        with np.errstate(divide="ignore"):
            self._logs = np.log(losses.chances)
        self._log_moments: dict[float, float] = {}

    @property
    def ends(self) -> tuple[int, int]:
        """The first and the last cell."""
        return self.losses.low, self.losses.low + len(self.losses.chances) - 1

    def log_moment(self, tilt: float) -> float:
        """log E[e^(t L); L < inf]; the last are kept."""
        if tilt not in self._log_moments:
            exponents = tilt * self.nats + self._logs
            top = float(exponents.max())
            some = math.isfinite(top)  # otherwise all is infinite
            found = top + math.log(np.exp(exponents - top).sum()) if some else top
            if len(self._log_moments) > _KEPT:
                self._log_moments.clear()
            self._log_moments[tilt] = found
        return self._log_moments[tilt]

    def tilted(self, tilt: float) -> Floats:
        """The tilted law's chances."""
        return np.exp(tilt * self.nats + self._logs - self.log_moment(tilt))

    def moments(self, tilt: float) -> Moments:
        """Of its tilted law."""
        moment = self.log_moment(tilt)
        if math.isinf(moment):
            return Moments(moment, 0.0, 0.0)
        chances = self.tilted(tilt)
        mean = dot(self.nats, chances)
        return Moments(moment, mean, dot((self.nats - mean) ** 2, chances))

    def spectrum(self, tilt: float, size: int) -> Spectrum:
        """Of its tilted law, on `size` cells around."""
        moment, some = self.log_moment(tilt), np.isfinite(self._logs)
        if math.isinf(moment):
            return spectra.constant(0.0, moment, size)
        nats, logs = (float(np.abs(x[some]).max()) for x in (self.nats, self._logs))
        largest, low = tilt * nats + logs, self.losses.low
        return spectra.of_chances(self.tilted(tilt), low, largest, moment, size)


class TiltedLaw(NamedTuple):
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


class Sum:
    """A tree of draws, composed: the privacy loss L of all of them together, where that is finite.

    Args:
        tree: of `DrawLosses`, `Told`, `Times` and `All`.
        interval: width of a cell, in nats.
        log_weight: log of how often the tree counts.
    """

    def __init__(self, tree: Any, interval: float, log_weight: float = 0.0) -> None:
        self.tree, self.interval, self.log_weight = tree, interval, log_weight
        self._latest: tuple[float, TiltedLaw] | None = None

    def log_moment(self, tilt: float) -> float:
        """m(t) = log E[e^(t L); L < inf]."""
        return fold(
            self.tree,
            lambda draw: draw.log_moment(tilt),
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
            near = dot(chances, law.near[: len(chances)])
            mean = near - math.expm1(-here) * dot(chances, law.far[: len(chances)])
            mean *= math.exp(-tilt * above) * (1 + _WEIGHTS + UNIT * len(law.chances))
        mean = min(mean + law.margin, math.exp(log_most(tilt)) * (1 + _WEIGHTS))
        log_scale = law.log_moment - tilt * epsilon
        size = abs(law.log_moment) + abs(self.log_weight) + tilt * (epsilon + above) + 2
        rounding = law.relative + 4 * UNIT * size
        return self.log_weight + log_scale + rounding + math.log(mean)

    def law(self, tilt: float) -> TiltedLaw:
        """The tilted law of all draws; the last is kept."""
        if self._latest is None or self._latest[0] != tilt:
            self._latest = tilt, self._tilted(tilt)
        return self._latest[1]

    def forget(self) -> None:
        """Drops that law."""
        self._latest = None

    def _tilted(self, tilt: float) -> TiltedLaw:
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
        weights = math.sqrt(squared_weights(tilt, self.interval)) * (1 + _WEIGHTS)
        margin = weights * error + most * outside
        margin += 2 * math.exp(-_FAINT) if kept < size else 0.0  # of weights that are left out
        return TiltedLaw(found.log_moment, low, chances, near, far, margin, found.relative)

    def _spectrum(self, tilt: float, size: int) -> Spectrum:
        return fold(
            self.tree,
            lru_cache(None)(lambda draw: draw.spectrum(tilt, size)),
            spectra.mixed,
            spectra.power,
            lambda each: spectra.product(each) if each else spectra.constant(1.0, 0.0, size),
        )

    def _window(self, tilt: float) -> tuple[int, int, float]:
        """(first cell, last cell, a bound on what the tilted law has outside of them), by moments."""
        here, variance = self.log_moment(tilt), self.moments(tilt).variance
        deviation = max(math.sqrt(max(variance, 0.0)), self.interval)
        first, last = self._ends()
        ends = []
        for sign in (-1, 1):
            shifts = sign * 2.0 ** np.arange(-3, 6) / deviation
            bounds = [(self.log_moment(tilt + h) - here - math.log(_OUTSIDE)) / h for h in shifts]
            ends.append(max(bounds) if sign < 0 else min(bounds))
        low = max(math.floor(ends[0] / self.interval), first)
        high = min(math.ceil(ends[1] / self.interval), last)
        return low, max(high, low), 4 * _OUTSIDE * ((low > first) + (high < last))

    def moments(self, tilt: float) -> Moments:
        """Of the tilted law of all draws."""

        def mixed(cases: list[tuple[float, Moments]]) -> Moments:
            logs = [math.log(c) + m.log_moment for c, m in cases]
            moment = float(np.logaddexp.reduce(logs))
            each = [(math.exp(log - moment), m) for log, (_, m) in zip(logs, cases, strict=True)]
            mean = sum(share * m.mean for share, m in each)
            square = sum(share * (m.variance + m.mean**2) for share, m in each)
            return Moments(moment, mean, square - mean**2)

        return fold(
            self.tree,
            lambda draw: draw.moments(tilt),
            mixed,
            lambda m, n: Moments(*(n * each for each in m)),
            lambda each: Moments(*map(math.fsum, zip((0.0, 0.0, 0.0), *each, strict=True))),
        )

    def _ends(self) -> tuple[int, int]:
        """The first and the last cell that the loss of all draws can have."""
        return fold(
            self.tree,
            lambda draw: draw.ends,
            lambda cases: (min(e[0] for _, e in cases), max(e[1] for _, e in cases)),
            lambda ends, n: (n * ends[0], n * ends[1]),
            lambda each: (sum(e[0] for e in each), sum(e[1] for e in each)),
        )


def dot(a: Floats, b: Floats) -> float:
    """Their product, without threads: for sums of this size these cost more than they save."""
    return float(np.einsum("i,i", a, b))


def log_most(tilt: float) -> float:
    """log of the largest e^(-t x) (1 - e^-x), x > 0 (Canonne, Kamath and Steinke 2020)."""
    return -tilt * math.log1p(1 / tilt) - math.log1p(tilt)


def squared_weights(tilt: float, interval: float) -> float:
    """Of e^(-t x) (1 - e^-x) at x = 0, interval, ..., the sum of squares at most: their integral, and the largest."""
    integral = 1 / (2 * tilt * (2 * tilt + 1) * (tilt + 1))
    return integral / interval + math.exp(2 * log_most(tilt))
