"""What the end of a run shows of pairs: the best of several runs, or what is nearly a function of known noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedpriv.core.complaints import require
from fedpriv.pairs.divergences import DivergenceOrders, Divergent, Orders, never_hidden, renyi
from fedpriv.proof.noise import Floats
from fedpriv.proof.pairs import Pair
from fedpriv.proof.verify import Witness, deltas


@dataclass(frozen=True)
class Best(Divergent):
    """The best of a geometric number of runs, that mean on average, each by one of these pairs, drawn at random."""

    of: tuple[Pair, ...]
    mean: float

    def __post_init__(self) -> None:
        several = isinstance(self.of, tuple) and len(self.of) > 0
        require(several, "of", self.of, "give what a run is seen of, of each setting")
        finite = 1 <= self.mean < math.inf
        require(finite, "mean", self.mean, "give a finite mean from 1 on")

    def deltas(self, epsilon: Floats, witness: Witness) -> Floats:
        """By divergences alone."""
        if not isinstance(witness, Orders):
            raise witness.unknown()
        return witness.deltas(self, epsilon)

    def renyi(self, orders: DivergenceOrders) -> Floats | None:
        """Each run has settings drawn without looking at the data: its divergence is at most the largest of theirs.

        The best of K runs, K geometric, Pr[K = k] = (1 - 1 / mean)^(k-1) / mean: Papernot and Steinke 2022
        (arXiv:2110.03620), Theorem 2 with eta = 1 and gamma = 1 / mean.
        """
        each = [renyi(one, orders) for one in self.of]
        known = [divergences for divergences in each if divergences is not None]
        if len(known) < len(each):
            return None
        once: Floats = np.max(known, axis=0)
        if self.mean <= 1:
            return once
        a = np.asarray(orders)
        return once + 2 * np.min(choice_cost(a, once, self.mean)) + math.log(self.mean) / (a - 1)

    @property
    def never_hidden(self) -> float:
        """That some run of a geometric number of them has such a case is at most their mean number times its chance.

        Given that none has, the number is geometric, too, and smaller.
        """
        return min(1.0, self.mean * max(map(never_hidden, self.of)))


def choice_cost(orders: Floats, once: Floats, mean: float) -> Floats:
    """What choosing adds twice, by each order, of which the least holds for all."""
    return (1 - 1 / orders) * once + math.log(mean) / orders


@dataclass(frozen=True)
class Slack(Divergent):
    """What is seen is within e^-apart and e^apart, and a total variation of `off`, of what this pair dominates."""

    of: Pair | Best
    apart: float
    off: float

    def __post_init__(self) -> None:
        require(0 <= self.apart <= 1, "apart", self.apart, "give nats from 0 to 1")
        require(0 <= self.off <= 1, "off", self.off, "give a number in [0, 1]")

    def deltas(self, epsilon: Floats, witness: Witness) -> Floats:
        """Of laws that are so near to those of a function of R and R'.

        H(L || L') at e^eps is e^a H(R || R') at e^(eps - 2 a) at most, and, where eps < 2 a, e^(2 a) - e^eps more; a
        total variation t of both adds t (1 + e^eps).
        """
        twice = 2 * self.apart
        inside = deltas(self.of, np.maximum(epsilon - twice, 0.0), witness)
        below = math.exp(twice) - np.exp(np.minimum(epsilon, twice))
        with np.errstate(over="ignore"):
            further = self.off * (1 + np.exp(epsilon)) if self.off else 0.0
        return math.exp(self.apart) * inside + below + further

    def renyi(self, orders: DivergenceOrders) -> Floats | None:
        """Of its pair: of what is near to it, none are known."""
        return renyi(self.of, orders)

    @property
    def never_hidden(self) -> float:
        """Of its pair."""
        return never_hidden(self.of)
