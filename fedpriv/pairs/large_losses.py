"""Large losses, which are rare, told apart: no tilt of all reaches them where tails are heavier than exponential."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedpriv.core.complaints import require
from fedpriv.proof.cells import Losses
from fedpriv.proof.composed import Composed
from fedpriv.proof.pairs import All, Times, Told, fold, leaves_of
from fedpriv.proof.tilted import DrawLosses, Sum
from fedpriv.proof.verify import Direction


@dataclass(frozen=True)
class DirectionApart(Direction):
    """Of one direction of a pair, with large losses apart.

    Attributes:
        jumps: as of `ComposedApart`, above 0.
    """

    jumps: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.jumps < math.inf, "jumps", self.jumps, "give a finite number above 0")

    def composed(self, tree: Any, interval: float) -> Composed:
        """See `ComposedApart`."""
        return ComposedApart(tree, interval, self.jumps)


class ComposedApart(Composed):
    """The privacy loss of all draws together, in one direction, with large losses apart.

    Formal guarantees: as `Composed`, whatever `jumps` is.

    *Proof.* The sum is that of the cases in which no draw, or one, has a large loss; that two or more have one counts
    as delta = 1. Draws of the discretised pair are independent, given the cases that are told. So the law of the loss
    is the sum, over which draws have a large one, of products; the number X of these has Pr[X >= 2] <= E[X (X - 1) /
    2], which is computed with E[X]: of `Told` both are means; of n draws n E[X] and n E[X (X - 1) / 2] + n (n - 1) / 2
    E[X]^2; of several alike.

    Args:
        tree, interval: as `Composed`.
        jumps: expected number of draws with a large loss.
    """

    def __init__(self, tree: Any, interval: float, jumps: float) -> None:
        self.tree, self.interval, self.jumps = tree, interval, jumps
        cases, self._several = _apart(tree, interval, jumps)
        self.sums = [Sum(each, interval, log_weight) for log_weight, each in cases]

    @property
    def infinity(self) -> float:
        """Probability of an infinite loss, or of several large ones."""
        return self._several + super().infinity


def draws_in(tree: Any) -> dict[int, DrawLosses]:
    """Those that differ, by their identity."""
    return {id(draw): draw for draw in leaves_of(tree)}


class _Large(NamedTuple):
    """Of draws with a large loss: E[X], and E[X (X - 1) / 2]."""

    mean: float
    pairs: float


class _Split(NamedTuple):
    """A leaf's usual losses, and its large ones."""

    usual: DrawLosses
    large: DrawLosses

    @property
    def chance(self) -> float:
        """Of a large one."""
        return float(self.large.losses.chances.sum())


def _apart(tree: Any, interval: float, jumps: float) -> tuple[list[tuple[float, Any]], float]:
    """([(log weight, tree)] of the cases that no draw, or one, has a large loss; a bound on the chance of several)."""
    leaves = draws_in(tree)
    split = {
        key: _split(leaf.losses, interval, jumps / (len(leaves) * _uses(tree, leaf)))
        for key, leaf in leaves.items()
    }
    cases = [(0.0, _usual(tree, split))]
    for key, leaf in leaves.items():
        if split[key].chance > 0:
            cases += [(math.log(w), x) for w, x in _one_large(tree, leaf, split)]
    several = fold(
        tree,
        lambda leaf: _Large(split[id(leaf)].chance, 0.0),
        lambda each: _Large(
            math.fsum(c * x.mean for c, x in each), math.fsum(c * x.pairs for c, x in each)
        ),
        lambda x, n: _Large(n * x.mean, n * x.pairs + n * (n - 1) / 2 * x.mean**2),
        _several_of,
    )
    return cases, several.pairs * (1 + 1e-9)


def _usual(tree: Any, split: dict[int, _Split]) -> Any:
    def of_leaf(leaf: DrawLosses) -> Any:
        return split[id(leaf)].usual

    return fold(
        tree,
        of_leaf,
        lambda cases: Told(tuple(cases)),
        Times,
        lambda each: All(tuple(each)),
    )


def _one_large(tree: Any, leaf: DrawLosses, split: dict[int, _Split]) -> list[tuple[float, Any]]:
    """[(weight, tree)] of exactly one large loss, of this leaf: the derivative by it."""
    if isinstance(tree, DrawLosses):
        return [(1.0, split[id(leaf)].large)] if tree is leaf else []
    if isinstance(tree, Told):
        whole = math.fsum(chance for chance, _ in tree.cases)
        each = [(c / whole, _one_large(case, leaf, split)) for c, case in tree.cases]
        return [(c * w, x) for c, found in each for w, x in found]
    if isinstance(tree, Times):
        rest = () if tree.n == 1 else (Times(_usual(tree.of, split), tree.n - 1),)
        return [(tree.n * w, All((*rest, x))) for w, x in _one_large(tree.of, leaf, split)]
    found = []
    for i, each in enumerate(tree.of):
        others = tuple(_usual(other, split) for j, other in enumerate(tree.of) if j != i)
        found += [(w, All((*others, x))) for w, x in _one_large(each, leaf, split)]
    return found


def _several_of(each: list[_Large]) -> _Large:
    mean, pairs = 0.0, 0.0
    for x in each:
        pairs += x.pairs + mean * x.mean
        mean += x.mean
    return _Large(mean, pairs)


def _uses(tree: Any, leaf: DrawLosses) -> float:
    """How many draws are this leaf's, on average."""
    return fold(
        tree,
        lambda each: float(each is leaf),
        lambda cases: math.fsum(c * x for c, x in cases),
        lambda x, n: n * x,
        math.fsum,
    )


def _split(losses: Losses, interval: float, chance: float) -> _Split:
    """The large ones are of at most this chance; at least one cell is left to the others."""
    large = int(np.sum(np.cumsum(losses.chances[::-1]) <= chance))
    begin = max(len(losses.chances) - large, 1)
    above = losses.chances[begin:] if begin < len(losses.chances) else np.zeros(1)
    usual = losses._replace(chances=losses.chances[:begin])
    others = Losses(losses.low + begin, above, losses.infinity)
    return _Split(DrawLosses(usual, interval), DrawLosses(others, interval))
