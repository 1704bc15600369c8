"""What is proved of a run at every delta: its privacy profile, and the trade-off between an attacker's two errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike

from fedpriv.core.arguments import Probability, checked
from fedpriv.core.complaints import require
from fedpriv.core.json_values import as_json
from fedpriv.pairs.search import curves_of
from fedpriv.pairs.written import read_pair, read_pairs, read_witness, written
from fedpriv.privacy.gaussian_bound import GaussianBound, gaussian_bound
from fedpriv.proof.noise import Floats
from fedpriv.proof.pairs import NOTHING, SEEN, AnyPair
from fedpriv.proof.verify import Witness
from fedpriv.proof.verify import deltas as deltas_of

_LEAST_DELTA = 1e-14  # above what is never hidden: there the profile ends
_POINTS = 512  # up to `_FINE`, and altogether
_FINE = 10.0  # nats; beyond, errors of less than e^-10 are decided about
_MOST = 700.0  # nats; e to them is a float


@dataclass(frozen=True)
class Composition:
    """What is proved of one kind of unit.

    Attributes:
        pair: what the view sees of it, see `fedpriv.pairs`; `SEEN` where nothing hides it, `NOTHING` where nothing is
            released.
        relation: of the neighbouring data sets.
        epsilon: what is proved of this kind at the certificate's delta, in nats.
        witness: what shows epsilon; None where it is infinite.
        others: further pairs that bound what is seen of the same unit.
    """

    pair: AnyPair = field(metadata=as_json(written, read_pair))
    relation: str
    epsilon: float = math.inf
    witness: Witness | None = field(default=None, metadata=as_json(written, read_witness))
    others: tuple[AnyPair, ...] = field(default=(), metadata=as_json(written, read_pairs))

    @property
    def hidden(self) -> bool:
        """Whether any noise hides the unit."""
        return self.pair != SEEN


@dataclass(frozen=True, eq=False)
class PrivacyProfile:
    """Upper bounds delta(epsilon) of a run, for both directions of its neighbouring data sets.

    Between two points a bound is a line in e^epsilon, as every privacy profile is convex in it.

    Attributes:
        epsilons: f64[n], nats, rising from 0.
        deltas: f64[n], of which the last holds for all larger epsilons.
        certified: (epsilon, delta) of the certificate; no delta up to that one has a smaller epsilon.
    """

    epsilons: Floats
    deltas: Floats
    certified: tuple[float, float] = (0.0, 1.0)

    def delta(self, epsilon: ArrayLike) -> Floats:
        """f64[...], for epsilon >= 0.

        Raises:
            ValueError: a negative epsilon.
        """
        eps = np.asarray(epsilon, float)
        require(bool((eps >= 0).all()), "epsilon", epsilon, "give numbers from 0 on")
        at = np.clip(np.searchsorted(self.epsilons, eps, side="right") - 1, 0, self._last - 1)
        begin, end = self.epsilons[at], self.epsilons[at + 1]
        inside = np.minimum(eps, end)
        # (e^eps - e^begin) / (e^end - e^begin), without overflow.
        share = np.exp(inside - end) * np.expm1(begin - inside) / np.expm1(begin - end)
        return self.deltas[at] + share * (self.deltas[at + 1] - self.deltas[at])

    def epsilon(self, delta: Probability) -> float:
        """The smallest epsilon, in nats, whose bound is `delta` at most; infinity where there is none.

        Raises:
            ValueError: a delta outside (0, 1).
        """
        delta = checked("delta", delta, Probability)
        known, at = self.certified
        return max(self._interpolated(delta), known if delta <= at else 0.0)

    def _interpolated(self, delta: float) -> float:
        enough = np.flatnonzero(self.deltas <= delta)
        if len(enough) == 0:
            return math.inf
        end = int(enough[0])
        if end == 0:
            return 0.0
        begin = end - 1
        share = (self.deltas[begin] - delta) / (self.deltas[begin] - self.deltas[end])
        width = self.epsilons[end] - self.epsilons[begin]
        if width > _MOST:
            return float(self.epsilons[end] + math.log(share) + math.exp(-_MOST) / share)
        inside = self.epsilons[begin] + math.log1p(share * math.expm1(width))
        return float(min(inside, self.epsilons[end]))

    def false_negative_rate(self, false_positive_rate: ArrayLike) -> Floats:
        """f64[...], the least one of an attacker with such a false-positive rate: the trade-off curve, from below.

        Formal guarantees: the largest of 1 - delta - e^eps a and e^-eps (1 - delta - a) over the points of the profile
        (Dong, Roth and Su 2022, Proposition 2.12), for attackers on either of two neighbours.

        Raises:
            ValueError: a rate outside [0, 1].
        """
        rate = np.asarray(false_positive_rate, float)
        inside = bool(((rate >= 0) & (rate <= 1)).all())
        require(inside, "false_positive_rate", false_positive_rate, "give rates in [0, 1]")
        odds, a = np.exp(np.minimum(self.epsilons, _MOST)), rate[..., None]
        kept = 1 - self.deltas
        return np.maximum(0.0, np.maximum(kept - odds * a, (kept - a) / odds).max(axis=-1))

    @cached_property
    def gaussian(self) -> GaussianBound | None:
        """The tightest Gaussian trade-off curve below this one; None where there is none."""
        return gaussian_bound(self.epsilons, self.deltas, self.false_negative_rate)

    @property
    def _last(self) -> int:
        return len(self.epsilons) - 1


def profile_of(compositions: Sequence[Composition], delta: float) -> PrivacyProfile:
    """The profile that holds for every kind of unit: the largest of theirs at each point.

    Formal guarantees: an upper bound of each kind's at every epsilon, and no larger than the largest of them at the
    points of any.

    *Proof.* The points are those of all kinds together. Between two of them each kind's profile is a line in e^epsilon,
    so the largest is convex there, and below the line through its values at both. Beyond a kind's last point its
    profile is constant.

    Args:
        compositions: of each kind of unit, at least one.
        delta: the certificate's, of which each has its epsilon.
    """
    each = [_of_kind(composition, delta) for composition in compositions]
    if len(each) == 1:
        return each[0]
    points = np.unique(np.concatenate([one.epsilons for one in each]))
    largest = np.max([one.delta(points) for one in each], axis=0)
    return PrivacyProfile(points, largest, max(one.certified for one in each))


@lru_cache(maxsize=256)
def _of_kind(composition: Composition, delta: float) -> PrivacyProfile:
    """The profile of what was composed.

    Formal guarantees: at every point the smaller bound of the accountants, see `proof.verify`.
    """
    epsilon = composition.epsilon
    if composition.pair in (NOTHING, SEEN):
        return PrivacyProfile(np.array([0.0, 1.0]), np.full(2, float(composition.pair == SEEN)))
    bounds = [
        (pair, curve)
        for pair in (composition.pair, *composition.others)
        for curve in curves_of(pair, delta, _LEAST_DELTA)
    ]
    if not bounds:  # too little noise for any accountant
        return PrivacyProfile(np.array([0.0, 1.0]), np.ones(2))
    top = min(curve.end for _, curve in bounds)
    known = [epsilon] if math.isfinite(epsilon) else []
    grids = [np.linspace(0.0, end, _POINTS) for end in (min(top, _FINE), max(top, 1e-9))]
    grid = np.unique(np.concatenate([*grids, known]))
    deltas = np.min([deltas_of(pair, grid, curve.witness) for pair, curve in bounds], axis=0)
    deltas[grid >= epsilon] = np.minimum(deltas[grid >= epsilon], delta)
    deltas = np.minimum.accumulate(np.minimum(deltas, 1.0))
    return PrivacyProfile(grid, deltas, (epsilon, delta))
