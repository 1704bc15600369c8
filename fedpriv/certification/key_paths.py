"""Paths of splits and folds, from the round's key to a key: which children were taken, as far as the program tells."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fedpriv.core.random_streams import RESERVED

_MOST = 4096  # children of an array of keys that are told apart


class Span(NamedTuple):
    """Children of a key: those from `low` on and below `high`, or those of `numbers`.

    Attributes:
      numbers: where they are known, for each way in which a loop may take them the child of each entry of an array of
        keys, in order; else nothing.
      shape: of that array of keys.
    """

    low: int
    high: int
    numbers: tuple[tuple[int, ...], ...] = ()
    shape: tuple[int, ...] = ()

    @property
    def is_single(self) -> bool:
        """Whether it is one child, always the same."""
        return self.high - self.low == 1


class Repeated(NamedTuple):
    """Any number of turns, or none, of a loop that takes these children of children."""

    spans: tuple[Span, ...]


Path: TypeAlias = tuple[Any, ...]
"""`Span`s and `Repeated`s, from the round's key on."""
COUNTED = Span(0, RESERVED)
"""Children by a number that the program computes; streams of the library's own are beyond."""
_ANY_DESCENDANT = Repeated((Span(0, 2**32),))


def child(number: int) -> Span:
    """A single one."""
    return Span(number, number + 1)


def children(keys: tuple[int, ...], split: tuple[int, ...]) -> Span:
    """Those of each of an array of keys of shape `keys`, split into as many as `split` has entries."""
    shape, count = (*keys, *split), math.prod(split)
    if math.prod(shape) > _MOST:
        return Span(0, count)
    numbers = np.broadcast_to(np.arange(count).reshape(split), shape)
    return _of(numbers[None])


def _of(numbers: np.ndarray) -> Span:
    """Of i64[ways, ...]."""
    if not numbers.size:
        return COUNTED
    if numbers.ndim == 1:  # of one key: in one form, whatever it was taken from
        numbers = np.unique(numbers)
        if len(numbers) == 1:
            return child(int(numbers[0]))
    rows = tuple(tuple(row) for row in numbers.reshape(len(numbers), -1).tolist())
    return Span(int(numbers.min()), int(numbers.max()) + 1, rows, numbers.shape[1:])


def moved(path: Path, move: Callable[[np.ndarray], np.ndarray] | None) -> Path:
    """The path of an array of keys that is cut or arranged otherwise: by `move`, or in a way that is not known."""
    last = path[-1] if path else None
    if not isinstance(last, Span) or not last.numbers:
        return path
    if move is None:  # any of them
        return (*path[:-1], _of(np.ravel(last.numbers)))
    ways = [move(np.reshape(row, last.shape)) for row in last.numbers]
    return (*path[:-1], _of(np.stack(ways)))


def of_a_turn(path: Path) -> Path:
    """The path of what a loop hands to a turn, of an array of keys that it goes through along the first axis."""
    last = path[-1] if path else None
    if not isinstance(last, Span) or not last.shape:
        return path
    return (*path[:-1], _of(np.concatenate([np.reshape(row, last.shape) for row in last.numbers])))


def any_turns(path: Path, step: Path) -> Path:
    """All of `path`, then any number of `step`s."""
    if path and isinstance(path[-1], Repeated):
        known = path[-1] == _ANY_DESCENDANT or path[-1].spans == step
        return path if known else (*path[:-1], _ANY_DESCENDANT)
    if any(isinstance(part, Repeated) for part in step):
        return (*path, _ANY_DESCENDANT)
    return (*path, Repeated(step))


def may_reveal(drawn: Path, noise: Path, *, reserved: bool) -> bool:
    """Whether numbers drawn from the one key may tell of noise drawn from the other, that key itself or a descendant.

    Args:
      reserved: whether streams of the library's own, beyond `RESERVED`, count as children that bits are made of.
    """
    compared: set[tuple[Path, Path]] = set()

    def meet(p: Path, n: Path) -> bool:
        if (p, n) in compared:
            return False
        compared.add((p, n))
        told = _may_end(n) or reserved or any(s.low < RESERVED for s, _ in _heads(n))
        if _may_end(p) and told:
            return True
        pairs = ((a, b) for a in _heads(p) for b in _heads(n))
        return any(_overlap(s, t) and meet(after, later) for (s, after), (t, later) in pairs)

    return meet(drawn, noise)


def _may_end(path: Path) -> bool:
    return all(isinstance(part, Repeated) for part in path)


def _heads(path: Path) -> Iterator[tuple[Span, Path]]:
    """(a first child, what comes after it), each that there can be."""
    if not path:
        return
    first, rest = path[0], path[1:]
    if isinstance(first, Repeated):
        yield first.spans[0], (*first.spans[1:], *path)
        yield from _heads(rest)
    else:
        yield first, rest


def _overlap(one: Span, other: Span) -> bool:
    if one.numbers and other.numbers:
        return bool(
            {n for row in one.numbers for n in row} & {n for row in other.numbers for n in row}
        )
    if one.numbers or other.numbers:
        known, span = (one, other) if one.numbers else (other, one)
        return any(span.low <= n < span.high for row in known.numbers for n in row)
    return max(one.low, other.low) < min(one.high, other.high)
