"""Delta of a pair, on a grid: an upper bound for every grid, every cut of large losses, and every tilt.

Large losses, which are rare, may be told apart: no tilt of all losses together reaches them where the tails of a draw
are heavier than exponential.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedpriv.pairs.algebra import All, Pair, Times, Told, fold
from fedpriv.pairs.cells import Losses
from fedpriv.pairs.curves import Floats
from fedpriv.pairs.draws import is_draw, is_symmetric, losses_of
from fedpriv.pairs.tilted import Leaf, Sum, log_most


def directions(pair: Pair) -> int:
    """How many directions of a pair differ, of which all are bounded."""
    return fold(
        pair,
        lambda each: 1 if is_symmetric(each) else 2,
        lambda cases: max(n for _, n in cases),
        lambda n, _: n,
        lambda each: max(each, default=1),
    )


def tree_of(pair: Pair, interval: float, beyond: float, direction: int) -> Any:
    """The pair with the losses of its draws on a grid, in one direction (0: with the unit against without it).

    Args:
        interval, beyond: as of `draws.losses_of`.
    """
    return _with_leaves(pair, {}, interval, beyond, direction)


def _with_leaves(
    pair: Pair, leaves: dict[Pair, Leaf], interval: float, beyond: float, direction: int
) -> Any:
    """As `tree_of`; equal draws have one leaf."""
    rest = leaves, interval, beyond, direction
    if isinstance(pair, All):
        return All(tuple(_with_leaves(each, *rest) for each in pair.of))
    if is_draw(pair):
        if pair not in leaves:
            leaves[pair] = Leaf(losses_of(pair, interval, beyond)[direction])
        return leaves[pair]
    if isinstance(pair, Times):
        return Times(_with_leaves(pair.of, *rest), pair.n)
    assert isinstance(pair, Told)
    return Told(tuple((chance, _with_leaves(case, *rest)) for chance, case in pair.cases))


class Composed:
    """The privacy loss of all draws together, in one direction.

    Formal guarantees: `delta` is an upper bound for the pair of the discretised losses, whatever the tilts and `jumps`,
    but for the rounding of what `README.md` names. Infinite losses are composed in closed form.

    With `jumps` the sum is that of the cases in which no draw, or one, has a large loss; that two or more have one
    counts as delta = 1. *Proof.* Draws of the discretised pair are independent, given the cases that are told. So the
    law of the loss is the sum, over which draws have a large one, of products; the number X of these has Pr[X >= 2] <=
    E[X (X - 1) / 2], which is computed with E[X]: of `Told` both are means; of n draws n E[X] and n E[X (X - 1) / 2] +
    n (n - 1) / 2 E[X]^2; of several alike.

    Args:
        tree: as `tree_of` gives it.
        interval: width of a cell, in nats.
        jumps: expected number of draws with a large loss; 0 tells no losses apart.
    """

    def __init__(self, tree: Any, interval: float, jumps: float = 0.0) -> None:
        self.tree, self.interval, self.jumps = tree, interval, jumps
        cases, self._several = _apart(tree, jumps) if jumps else ([(0.0, tree)], 0.0)
        self.sums = [Sum(each, interval, log_weight) for log_weight, each in cases]

    @property
    def leaves(self) -> list[Leaf]:
        """The draws that differ."""
        return list(Sum(self.tree, self.interval).leaves.values())

    def forget(self) -> None:
        """Drops what sums keep of a tilt: much memory."""
        for one in self.sums:
            one.forget()

    @property
    def infinity(self) -> float:
        """Probability of an infinite loss, or of several large ones if these are told apart."""
        finite = fold(
            self.tree,
            lambda leaf: _log_rest(leaf.losses.infinity),
            lambda cases: _log_rest(-math.fsum(c * math.expm1(x) for c, x in cases)),
            lambda x, n: n * x,
            math.fsum,
        )
        return self._several - math.expm1(finite) * (1 + 1e-14)

    def delta(self, epsilon: Floats, tilts: Sequence[Sequence[float]]) -> Floats:
        """An upper bound, f64[n], for tilts above 0 of each sum; the nearest of them is used."""
        total = np.full(len(epsilon), self.infinity)
        if self.infinity < 1:
            for each, own in zip(self.sums, tilts, strict=True):
                total = total + np.exp(np.minimum(_log_delta(each, epsilon, own), 0.0))
        return np.minimum(total * (1 + 1e-14), 1.0)


def _log_delta(one: Sum, epsilon: Floats, tilts: Sequence[float]) -> Floats:
    """By the tilt whose moment bound is least there."""
    bounds = [one.log_moment(t) + log_most(t) - t * epsilon for t in tilts]
    nearest = np.argmin(bounds, axis=0)
    found = np.empty(len(epsilon))
    for i in np.unique(nearest):
        for at in np.flatnonzero(nearest == i):
            found[at] = one.log_delta(float(epsilon[at]), tilts[i])
    return found


def _log_rest(chance: float) -> float:
    """log(1 - chance)."""
    return math.log1p(-chance) if chance < 1 else -math.inf


class _Large(NamedTuple):
    """Of draws with a large loss: E[X], and E[X (X - 1) / 2]."""

    mean: float
    pairs: float


class _Split(NamedTuple):
    """A leaf's usual losses, and its large ones."""

    usual: Leaf
    large: Leaf

    @property
    def chance(self) -> float:
        """Of a large one."""
        return float(self.large.losses.chances.sum())


def _apart(tree: Any, jumps: float) -> tuple[list[tuple[float, Any]], float]:
    """([(log weight, tree)] of the cases that no draw, or one, has a large loss; a bound on the chance of several)."""
    leaves = Sum(tree, 1.0).leaves
    split = {
        key: _split(leaf.losses, jumps / (len(leaves) * _uses(tree, leaf)))
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
    def of_leaf(leaf: Leaf) -> Any:
        return split[id(leaf)].usual

    return fold(
        tree,
        of_leaf,
        lambda cases: Told(tuple(cases)),
        Times,
        lambda each: All(tuple(each)),
    )


def _one_large(tree: Any, leaf: Leaf, split: dict[int, _Split]) -> list[tuple[float, Any]]:
    """[(weight, tree)] of exactly one large loss, of this leaf: the derivative by it."""
    if isinstance(tree, Leaf):
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


def _uses(tree: Any, leaf: Leaf) -> float:
    """How many draws are this leaf's, on average."""
    return fold(
        tree,
        lambda each: float(each is leaf),
        lambda cases: math.fsum(c * x for c, x in cases),
        lambda x, n: n * x,
        math.fsum,
    )


def _split(losses: Losses, chance: float) -> _Split:
    """The large ones are of at most this chance; at least one cell is left to the others."""
    large = int(np.sum(np.cumsum(losses.chances[::-1]) <= chance))
    begin = max(len(losses.chances) - large, 1)
    above = losses.chances[begin:] if begin < len(losses.chances) else np.zeros(1)
    return _Split(
        Leaf(losses._replace(chances=losses.chances[:begin])),
        Leaf(Losses(losses.low + begin, above, losses.infinity)),
    )
