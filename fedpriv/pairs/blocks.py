"""Privacy losses of a unit that takes part in one round of a block, drawn at random.

V. Feldman and M. Shenfeld, "Privacy amplification by random allocation", 2025 (arXiv:2502.08202), and "Efficient
privacy loss accounting for subsampling and random allocation", 2026 (arXiv:2602.17284); with Gaussian noise it is the
balls-and-bins sampling of L. Chua et al., 2024 (arXiv:2412.16802).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedpriv.core.complaints import require
from fedpriv.proof.cells import Losses, check_cells, connect_the_dots
from fedpriv.proof.noise import Floats, Noise, law_of
from fedpriv.proof.pairs import DEVIATIONS, Leaf, check_chances, check_count, check_range

_CELLS = 2048  # aimed at for a law
_FAR = 12.0  # deviations of Gaussian noise beyond which a ratio counts as infinite, or as 0: less than 1e-32
_TAIL = 1e-32  # of a law, cut off on either side
_LARGEST = 600.0  # nats; where losses are larger, e^-loss is no float, and the unit counts as in a known round


@dataclass(frozen=True)
class Block(Leaf):
    """Rounds, in one of which noise is moved: any with the same chance, and which is secret; see `block_losses`.

    Attributes:
        noise: as `Moved`.
        rounds: of a block.
        cases: (chance, far, in how many of the rounds the unit would be seen), of which the view is told which.
    """

    noise: str | Noise
    rounds: int
    cases: tuple[tuple[float, float, int], ...]

    def __post_init__(self) -> None:
        law_of(self.noise)
        check_count("rounds", self.rounds)
        columns = zip(*self.cases, strict=True) if self.cases else ((), (), ())
        chances, far, seen = map(list, columns)
        check_chances(chances)
        check_range("cases", far)
        require(max(far) < math.inf, "cases", far, "give finite distances")
        some = all(rounds in range(self.rounds + 1) for rounds in seen)
        require(some, "cases", seen, "give numbers of rounds of the block")

    @property
    def is_symmetric(self) -> bool:
        """See `Leaf`."""
        return False

    def reach(self, deviations: float) -> float:
        """That of a round that the unit is in."""
        return law_of(self.noise).largest_loss(max(far for _, far, _ in self.cases), deviations)

    def losses(self, interval: float, beyond: float) -> tuple[Losses, Losses]:
        """See `block_losses`."""
        check_cells(self.reach(DEVIATIONS), interval)
        return block_losses(self, interval, beyond)


class _Ratio(NamedTuple):
    """Law of a likelihood ratio R = dP / dQ under Q: E[R] is 1, but for what lies beyond all bounds.

    Attributes:
        low: the first cell; cell i is R = e^i, i in nats a multiple of `width` times the interval.
        width: a power of two.
        chances: f64[k], under Q, of the cells from `low` on.
        zero: chance of 0.
        infinity: part of E[R] beyond all bounds: chance of it under P.
    """

    low: int
    width: int
    chances: Floats
    zero: float
    infinity: float


_SEEN = _Ratio(0, 1, np.zeros(1), 1.0, 1.0)
"""Of what P shows, and Q never does."""
_SEEN_LOSSES = Losses(0, np.zeros(1), 1.0)


def block_losses(block: Block, interval: float, beyond: float = 0.0) -> tuple[Losses, Losses]:
    """Losses of a block with the unit against without it, and of without it against with it.

    Formal guarantees: each pair dominates the given one, and so do their compositions over blocks, also where what a
    unit sends depends on all that was seen before, in the block, too, and on which rounds of earlier blocks it was in.

    *Proof.* Let the view know all draws of the others, and which case it is: their law is
    the same with the unit and without it. Given these, and the output y_1, ..., y_{t-1} before, let Q_t be the law of
    the output of round t without the unit, P_t with the unit in that round, and r_t = dP_t / dQ_t of y_t. The unit is
    in round t with probability 1 / b, and in the other rounds the output is that without it: so the likelihood ratio
    of the block is R = (r_1 + ... + r_b) / b. The divergences of the pair are means of convex functions of R under Q,
    H_a(P || Q) = E[(R - a)+] and H_a(Q || P) = E[(1 - a R)+]. Given the past, the divergences of (P_t, Q_t) in both
    directions are at most those of the noise moved by its distance, whose ratio is l: so E[f(r_t) | past] <= E[f(l)]
    for every convex f (linear parts agree, as both means are 1). Replacing r_b, r_{b-1}, ..., r_1 in turn by
    independent copies of l thus never lowers E[f((r_1 + ... + r_b) / b)]. Here that law is computed with every rounding
    a spread that keeps the mean, of l to the cells around it and of each average likewise: it never lowers E[f] either.
    What was seen gives a law of what the unit did in earlier blocks, and so of what it sends now; divergences are
    convex, hence at most those of the worst. Blocks compose by Zhu, Dong and Wang 2022 (arXiv:2106.08567), Theorem 10.

    Args:
        block: of real noise.
        interval: width of a cell, in nats.
        beyond: chance of losses that may count as infinite, for narrower cells of the others; 0 is the least.
    """
    tail = max(_TAIL, beyond / (2 * block.rounds.bit_length()))
    whole = math.fsum(chance for chance, _, _ in block.cases)
    there, back = [], []
    for chance, far, seen in block.cases:
        pair = _of_case(far, seen, block, interval, tail)
        there.append((chance / whole, pair[0]))
        back.append((chance / whole, pair[1]))
    return _mixed(there), _mixed(back)


def _of_case(
    far: float, seen: int, block: Block, interval: float, tail: float
) -> tuple[Losses, Losses]:
    noise, multiplier, rounds = block.noise, 1 / far, block.rounds
    assert isinstance(noise, str)
    is_loud = _largest(noise, multiplier) > _LARGEST
    if not seen:
        if is_loud or rounds == 1:
            return _of_moved_noise(noise, multiplier, interval, tail)
        ratio = _of_rounds(rounds, noise, multiplier, interval, tail)
    else:
        if seen == rounds or is_loud:
            return _SEEN_LOSSES, _SEEN_LOSSES
        ratio = _of_rounds(rounds - seen, noise, multiplier, interval, tail)
        others = _SEEN._replace(width=ratio.width)
        ratio = _average(ratio, others, 1 - seen / rounds, interval, tail)
    return _losses(ratio, interval), _losses(_reversed(ratio, interval), interval)


@lru_cache(maxsize=64)  # a megabyte each; a block needs about twice the logarithm of its length
def _of_rounds(rounds: int, noise: str, multiplier: float, interval: float, tail: float) -> _Ratio:
    """Of the mean of so many independent ratios l."""
    if rounds == 1:
        return _of_one(noise, multiplier, interval, tail)
    half = rounds // 2
    some, others = (_of_rounds(n, noise, multiplier, interval, tail) for n in (half, rounds - half))
    return _average(some, others, half / rounds, interval, tail)


def _largest(noise: str, multiplier: float, tail: float = _TAIL) -> float:
    """Nats of loss, but for a chance of `tail`."""
    from scipy.special import ndtri

    far = _FAR if tail == _TAIL else -float(ndtri(tail))
    return 1 / multiplier if noise == "laplace" else 0.5 / multiplier**2 + far / multiplier


def _of_one(noise: str, multiplier: float, interval: float, tail: float) -> _Ratio:
    """Of noise that is moved, spread to the cells."""
    cells = _largest(noise, multiplier, tail) / interval
    width = 2 ** max(0, math.ceil(math.log2(2 * cells / _CELLS)))
    there, back = _of_moved_noise(noise, multiplier, width * interval, tail)
    cell = there.low + np.arange(len(there.chances))
    chances = there.chances * np.exp(-cell * width * interval)
    return _Ratio(there.low, width, chances, back.infinity, there.infinity)


def _of_moved_noise(
    noise: str, multiplier: float, interval: float, tail: float
) -> tuple[Losses, Losses]:
    """Losses of a round that a unit is certain to be in."""

    def curve(epsilon: Floats) -> Floats:
        return law_of(noise).curve(epsilon, 1 / multiplier)

    last = math.ceil(_largest(noise, multiplier, tail) / interval)
    return connect_the_dots(curve, curve, last, interval)


def _average(a: _Ratio, b: _Ratio, share: float, interval: float, tail: float) -> _Ratio:
    """Of share A + (1 - share) B, independent.

    With B in cell d above A's the average lies `up` cells above A's, between two cells; their chances keep its mean.
    An average of 0 and a value is spread to 0 and that value.
    """
    width = min(a.width, b.width)
    a, b = _refined(a, width), _refined(b, width)
    nats, n, k = width * interval, len(a.chances), len(b.chances)
    gaps = np.arange(1 - n, k)
    up = np.logaddexp(math.log(share), math.log1p(-share) + (gaps + b.low - a.low) * nats) / nats
    below = np.floor(up).astype(int)
    upper = np.expm1((up - below) * nats) / np.expm1(nats)
    low = min(a.low, b.low) - 1
    chances = np.zeros(max(a.low + n, b.low + k) + 2 - low)
    for gap, to, part in zip(gaps.tolist(), below.tolist(), upper.tolist(), strict=True):
        start, stop = max(0, -gap), min(n, k - gap)
        both = a.chances[start:stop] * b.chances[start + gap : stop + gap]
        at = a.low + start + to - low
        moved = part * both
        chances[at : at + stop - start] += both - moved
        chances[at + 1 : at + 1 + stop - start] += moved
    chances[a.low - low :][:n] += b.zero * share * a.chances
    chances[b.low - low :][:k] += a.zero * (1 - share) * b.chances
    zero = (
        a.zero * b.zero + b.zero * (1 - share) * a.chances.sum() + a.zero * share * b.chances.sum()
    )
    infinity = share * a.infinity + (1 - share) * b.infinity
    return _trimmed(_Ratio(low, width, chances, float(zero), infinity), interval, tail)


def _refined(law: _Ratio, width: int) -> _Ratio:
    """On narrower cells."""
    times = law.width // width
    chances = np.zeros((len(law.chances) - 1) * times + 1)
    chances[::times] = law.chances
    return law._replace(low=law.low * times, width=width, chances=chances)


def _trimmed(law: _Ratio, interval: float, tail: float) -> _Ratio:
    """Tails spread to 0 and the first cell kept, or to the last and beyond; on narrower cells where few are left."""
    ratios = np.exp((law.low + np.arange(len(law.chances))) * law.width * interval)
    under_p = law.chances * ratios
    start = int(np.sum(np.cumsum(law.chances) <= tail))
    stop = len(ratios) - int(np.sum(np.cumsum(under_p[::-1]) <= tail))
    if start >= stop:  # hardly anything is finite
        return law
    below, above = law.chances[:start], law.chances[stop:]
    kept = law.chances[start:stop].copy()
    to_first = below * ratios[:start] / ratios[start]
    kept[0] += to_first.sum()
    kept[-1] += above.sum()
    zero = law.zero + float((below - to_first).sum())
    infinity = law.infinity + float((under_p[stop:] - above * ratios[stop - 1]).sum())
    law = _Ratio(law.low + start, law.width, kept, zero, infinity)
    finer = min(law.width, 2 ** max(0, math.floor(math.log2(_CELLS / len(kept)))))
    return _refined(law, law.width // finer)


def _reversed(law: _Ratio, interval: float) -> _Ratio:
    """Of dQ / dP under P."""
    last = law.low + len(law.chances) - 1
    ratios = np.exp((law.low + np.arange(len(law.chances))) * law.width * interval)
    return _Ratio(-last, law.width, (law.chances * ratios)[::-1], law.infinity, law.zero)


def _losses(law: _Ratio, interval: float) -> Losses:
    """Of log R under P, on cells of the interval."""
    law = _refined(law, 1)
    width = int(np.gcd.reduce(np.diff(np.flatnonzero(law.chances)))) or 1
    ratios = np.exp((law.low + np.arange(len(law.chances))) * interval)
    return Losses(law.low, law.chances * ratios, law.infinity, width)


def _mixed(cases: list[tuple[float, Losses]]) -> Losses:
    """Of a case by its chance; which it is shows."""
    low = min(law.low for _, law in cases)
    chances = np.zeros(max(law.low + len(law.chances) for _, law in cases) - low)
    for chance, law in cases:
        chances[law.low - low :][: len(law.chances)] += chance * law.chances
    infinity = sum(chance * law.infinity for chance, law in cases)
    _, likeliest = max(cases, key=lambda case: case[0])
    return Losses(low, chances, infinity, likeliest.width)
