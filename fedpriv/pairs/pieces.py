"""Several pairs as one, in a form of which a grid shows more."""

from __future__ import annotations

import math
from collections.abc import Iterable

from fedpriv.proof import pairs as plain
from fedpriv.proof.pairs import All, Moved, Pair, Times, moved, times

_SMALL = 0.2  # largest separation of a piece: its losses fit the finest grid


def together(pairs: Iterable[Pair]) -> Pair:
    """Several, as `proof.pairs.together`.

    Beside others, sure moves of Gaussian noise become a few equal ones of the same separation altogether, sqrt(sum_k
    d_k^2) (Dong, Roth and Su 2022, Corollary 3.3), whose losses a grid holds better.
    """
    whole = plain.together(pairs)
    if not isinstance(whole, All):
        return whole
    sure = [each for each in whole.of if _is_sure_gaussian(_once(each))]
    if not sure or len(sure) == len(whole.of):
        return whole
    return All((_in_pieces(sure), *(each for each in whole.of if each not in sure)))


def _once(pair: Pair) -> Pair:
    return pair.of if isinstance(pair, Times) else pair


def _is_sure_gaussian(pair: Pair) -> bool:
    if not (isinstance(pair, Moved) and pair.noise == "gaussian"):
        return False
    return pair.is_sure and math.isfinite(pair.far)


def _in_pieces(sure: list[Pair]) -> Pair:
    counts = [(_once(pair), pair.n if isinstance(pair, Times) else 1) for pair in sure]
    squared = math.fsum(n * pair.far**2 for pair, n in counts if isinstance(pair, Moved))
    pieces = min(sum(n for _, n in counts), math.ceil(squared / _SMALL**2))
    far = math.sqrt(squared / pieces) * (1 + 1e-15)  # rounding never adds noise
    return times(moved("gaussian", [(far, 1.0)]), pieces)
