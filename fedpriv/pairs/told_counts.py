"""Rounds of which a view knows in how many a unit takes part, by divergences: delta averages over that number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedpriv.pairs.divergences import DivergenceOrders, divergence_delta, renyi, usual_orders
from fedpriv.pairs.separations import separations
from fedpriv.proof.noise import Floats
from fedpriv.proof.pairs import All, Moved, Pair, Times, Told, fold, leaves_of
from fedpriv.proof.verify import Witness

_ONE = Moved("gaussian", ((1.0, 1.0),))  # a squared separation of 1: they count the draws


class CountedRounds(NamedTuple):
    """In how many rounds a unit takes part, of which each has the same divergences.

    Attributes:
        numbers: f64[n], of rounds.
        chances: f64[n].
        missing: probability of numbers that are left out.
        once: f64[orders], Rényi divergences of one round.
        orders: of them.
    """

    numbers: Floats
    chances: Floats
    missing: float
    once: Floats
    orders: DivergenceOrders

    def delta(self, epsilon: Floats) -> Floats:
        """f64[n]."""
        total = np.full(len(epsilon), self.missing)
        for rounds, chance in zip(self.numbers, self.chances, strict=True):
            if rounds:
                total += chance * divergence_delta(rounds * self.once, epsilon, self.orders)
        return total


def by_counts(pair: Pair, orders: DivergenceOrders) -> CountedRounds | None:
    """None where draws are not of one sure move, or something else than their number is left to chance.

    Formal guarantees: as `separations`, with the bound by divergences in place of each Gaussian's curve.
    """
    draws = set(leaves_of(pair))
    draw = next(iter(draws)) if len(draws) == 1 else None
    if not (isinstance(draw, Moved) and draw.is_sure):
        return None

    def one(draw: Pair) -> Pair:
        return _ONE

    counted = fold(
        pair, one, lambda cases: Told(tuple(cases)), Times, lambda each: All(tuple(each))
    )
    law, once = separations(counted), renyi(draw, orders)
    if law is None or once is None:
        return None
    return CountedRounds(*law, once, orders)


@dataclass(frozen=True)
class Counted(Witness):
    """Rényi divergences for each number of rounds that a unit takes part in, which is told; see `by_counts`."""

    def deltas(self, pair: Pair, epsilon: Floats) -> Floats:
        """By the law of that number."""
        law = by_counts(pair, usual_orders())
        if law is None:
            raise self.unknown()
        return law.delta(epsilon)
