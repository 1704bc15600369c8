"""Noise that several units of a person move: by a random distance, or with others in their places."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fedpriv.core.complaints import require
from fedpriv.pairs import mixture_curves as mixtures
from fedpriv.proof.noise import Floats, Noise
from fedpriv.proof.pairs import FARTHEST, NEAREST, ROUNDING, Moved, check_range


@dataclass(frozen=True)
class MovedBySeveral(Moved):
    """As `Moved`, by one of several distances: P = (1 - sum_j p_j) N + sum_j p_j (N + d_j) against Q = N.

    Attributes:
        law: (d_j, p_j), d rising; infinity, alone, where a unit is seen that is there.
        in_place: if replaced: whether all else is the same with either unit, whether it is drawn or not: P = (1 - sum_j
            p_j) N + sum_j p_j (N + d_j / 2) against Q = (1 - sum_j p_j) N + sum_j p_j (N - d_j / 2).
    """

    in_place: bool = False

    def check_law(self) -> None:
        """See `Moved`."""
        far = [d for d, _ in self.law]
        rises = all(a < b for a, b in pairwise([0.0, *far])) and len(far) > 0
        require(rises, "law", self.law, "give distances above 0 that rise")
        require(len(far) == 1 or far[-1] < math.inf, "law", self.law, "give infinity alone")
        check_range("law", far)
        chances = [p for _, p in self.law]
        likely = min(chances) > 0 and math.fsum(chances) <= 1 + ROUNDING
        require(likely, "law", self.law, "give chances above 0, of 1 at most altogether")
        placed = self.in_place is False or (self.in_place is True and self.replaced)
        require(placed, "in_place", self.in_place, "give true of a unit that is replaced alone")

    @property
    def is_sure(self) -> bool:
        """See `Moved`."""
        return len(self.law) == 1 and super().is_sure

    def curve(self, epsilon: Floats, with_it: bool) -> Floats:
        """See `mixture_curves`."""
        if math.isinf(self.far) or self.is_sure or (len(self.law) == 1 and not self.in_place):
            return super().curve(epsilon, with_it)
        several = mixtures.several_delta if with_it else mixtures.none_delta
        several = mixtures.replaced_delta if self.replaced else several
        several = mixtures.in_place_delta if self.in_place else several
        assert isinstance(self.noise, str)
        distances, chances = np.array(self.law).T
        return np.asarray(several(epsilon, distances, chances, self.noise))


def moved(
    noise: str | Noise,
    law: Iterable[tuple[float, float]],
    replaced: bool = False,
    subset: float | None = None,
    in_place: bool = False,
) -> Moved:
    """As `proof.pairs.moved`, of a law of several distances, or with others in place."""
    within: dict[float, float] = {}
    for d, p in law:
        near = max(d, NEAREST)
        within[near] = within.get(near, 0.0) + p
    if any(d > FARTHEST for d in within):
        within = {math.inf: min(1.0, math.fsum(within.values()))}
    return of_law(noise, tuple(within.items()), replaced, subset, in_place)


def of_law(
    noise: str | Noise,
    law: tuple[tuple[float, float], ...],
    replaced: bool = False,
    subset: float | None = None,
    in_place: bool = False,
) -> Moved:
    """A plain `Moved` where that is enough, so that equal pairs are of one kind."""
    if len(law) == 1 and in_place is False:
        return Moved(noise, law, replaced, subset)
    return MovedBySeveral(noise, law, replaced, subset, in_place)
