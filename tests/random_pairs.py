"""Random pairs: small trees of every kind of node that dp-accounting has, too.

`PYTHONPATH=.:tests python -m random_pairs 2000` compares so many with its privacy loss distributions.
"""

import math
import sys
import time
from collections.abc import Iterator

import numpy as np

from fedpriv.pairs.search import by_losses
from fedpriv.pairs.several import moved
from fedpriv.pairs.theirs import by_dp_accounting
from fedpriv.proof.pairs import NOTHING, All, Moved, Pair, Times, Told


def draw(rng: np.random.Generator, several: bool = True) -> Moved:
    """One draw: sure, at a rate, or (of Gaussian noise) of several units."""
    far = float(rng.uniform(0.05, 1.0))
    kind = int(rng.integers(4 if several else 3))
    if kind == 0:
        return Moved("gaussian", ((far, 1.0),))
    rate = float(rng.uniform(0.01, 0.5))
    if kind == 1:
        return Moved("laplace", ((far, rate),))
    if kind == 2:
        return Moved("gaussian", ((far, rate),))
    law = tuple((far * n, rate / 2**n) for n in (1, 2))
    return moved("gaussian", law)


def tree(rng: np.random.Generator, depth: int = 2, several: bool = True) -> Pair:
    """A tree of so many levels at most, whose epsilon is of the order of 1."""
    kind = int(rng.integers(4)) if depth else 0
    if kind == 0:
        return draw(rng, several)
    if kind == 1:
        return Times(tree(rng, depth - 1, several), int(rng.integers(2, 6)))
    if kind == 2:
        return All((tree(rng, depth - 1, several), tree(rng, depth - 1, several)))
    chance = float(rng.uniform(0.1, 0.9))
    other = NOTHING if rng.random() < 0.5 else tree(rng, depth - 1, several)
    return Told(((chance, tree(rng, depth - 1, several)), (1 - chance, other)))


def trees(seed: int, count: int, several: bool = True) -> Iterator[tuple[Pair, float]]:
    """(a tree, a delta), so many of them."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield tree(rng, several=several), float(10 ** rng.uniform(-9, -2))


def larger(pair: Pair, rng: np.random.Generator) -> Pair:
    """The same with one thing larger: a move, a rate, or a number of draws."""
    if isinstance(pair, Times):
        if rng.random() < 0.5:
            return Times(pair.of, pair.n + 1)
        return Times(larger(pair.of, rng), pair.n)
    if isinstance(pair, All):
        first, *others = pair.of
        return All((larger(first, rng), *others))
    if isinstance(pair, Told):
        (chance, first), *others = pair.cases
        return Told(((chance, larger(first, rng)), *others))
    assert isinstance(pair, Moved)
    if rng.random() < 0.5 or pair.is_sure:
        return moved(pair.noise, [(1.1 * d, p) for d, p in pair.law])
    room = min(1.5, 1 / math.fsum(p for _, p in pair.law))
    return moved(pair.noise, [(d, room * p) for d, p in pair.law])


def beside_dp_accounting(pair: Pair, delta: float, interval: float = 1e-3) -> tuple[float, float]:
    """(ours less theirs from losses rounded down, ours over theirs rounded up): at least 0, and 1 or so."""
    ours = by_losses(pair, delta).epsilon
    low, high = by_dp_accounting(pair, delta, interval)
    return ours - low, (ours + 1e-3) / (high + 1e-3)


def main() -> None:
    """Prints the extremes."""
    begun, least, most = time.process_time(), math.inf, 0.0
    for number, (pair, delta) in enumerate(trees(0, int(sys.argv[1]), several=False), 1):
        above, ratio = beside_dp_accounting(pair, delta)
        if above < least or ratio > most:
            least, most = min(least, above), max(most, ratio)
            said = f"{number}: ours less their optimistic epsilon at least {least:.3g}"
            print(f"{said}, over their pessimistic one at most {most:.6f}", flush=True)
    print(f"{number} trees in {time.process_time() - begun:.0f} processor seconds")


if __name__ == "__main__":
    main()
