"""Where the keys and random numbers of a traced program come from: paths of splits and folds from the round's key.

With threefry `fold_in(k, i)` is `split(k)[i]`, and the bits that are drawn from k are the words of its children. So who
sees numbers that were drawn from a key learns something of whatever noise descends from that key, and of no other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.extend.core import JaxprEqn, Literal

from fedpriv.certification.information_flow import NONE, NOWHERE, Labels, programs, where
from fedpriv.core.random_streams import RESERVED


class Span(NamedTuple):
    """Children of a key, those from `low` on and below `high`; in the order of an array's entries, if `ordered`."""

    low: int
    high: int
    ordered: bool = False


class Repeated(NamedTuple):
    """Any number of turns, or none, of a loop that takes these children of children."""

    spans: tuple[Span, ...]


Path: TypeAlias = tuple[Any, ...]
"""`Span`s and `Repeated`s, from the round's key on."""
COUNTED = Span(0, RESERVED)
"""Children by a number that the program computes; streams of the library's own are beyond."""
ANY_DESCENDANT = Repeated((Span(0, 2**32),))


@dataclass(frozen=True)
class FromKey:
    """A label of a key, or of words of one.

    Attributes:
      path: from the round's key; None of a key that does not descend from it.
      whole: whether it is a whole key, with all that is random about it.
    """

    path: Path | None
    whole: bool = True


@dataclass(frozen=True)
class Random:
    """A label of random numbers, drawn in `line` from the key at `path`."""

    path: Path
    line: str


ROUNDS_KEY = FromKey(())
FOREIGN = FromKey(None, whole=False)
"""A key that does not descend from the round's."""

_MOVES = frozenset(
    (
        *("slice", "squeeze", "reshape", "dynamic_slice", "gather", "concatenate", "copy"),
        *("broadcast_in_dim", "copy_p", "select_n", "expand_dims"),
    )
)
_CONTROL = frozenset(("scan", "while", "cond"))


def is_key(atom: Any) -> bool:
    """Whether a value of a traced program is a PRNG key, or an array of them."""
    dtype = getattr(atom.aval, "dtype", None)
    return dtype is not None and bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))


def of_constant(atom: Any) -> Labels:
    """The labels of an array that a program closes over."""
    return frozenset({FOREIGN}) if is_key(atom) else NONE


def is_fresh(key: Labels) -> bool:
    """Whether a key of these labels has all that is random about the round's key."""
    found = _keys(key)
    return bool(found) and all(k.path is not None and k.whole for k in found)


def of_any_client(key: Labels) -> Labels:
    """The labels of one client's key, child 0, as those of all clients' keys."""
    found = _keys(key)
    every = {replace(k, path=(*k.path[:-1], COUNTED)) for k in found if k.path}
    return (key - found) | every | frozenset(k for k in found if not k.path)


def located(eqn: JaxprEqn, labels: Labels) -> Labels:
    """The labels, of random numbers with the line that called for them, where the one that drew them is not known."""
    lost = {x for x in labels if isinstance(x, Random) and x.line == NOWHERE}
    if not lost:
        return labels
    line = where(eqn)
    return (labels - lost) | {replace(x, line=line) for x in lost}


def without_keys(labels: Labels) -> Labels:
    """Without those of keys and random numbers."""
    return frozenset(x for x in labels if not isinstance(x, FromKey | Random))


def through(eqn: JaxprEqn, labels: Any) -> Labels:
    """The labels of what an equation computes, given those of its inputs, as far as keys go; all others pass."""
    every = NONE.union(*labels)
    name = eqn.primitive.name
    if name in ("random_split", "random_fold_in"):
        rest = every - _keys(every)
        return rest | {_child(k, eqn) for k in _keys(labels[0]) or {FOREIGN}}
    if name in ("random_seed", "random_wrap", "random_unwrap"):
        kept = name != "random_seed"
        made = {replace(k, whole=k.whole and kept) for k in _keys(every)}
        return (every - _keys(every)) | (made or {FOREIGN})
    found = _keys(every)
    if not found or not eqn.outvars:
        return every
    if name in _CONTROL:
        mixed = {FOREIGN} if name == "cond" and not all(map(_keys, labels[1:])) else NONE
        return (every - found) | {_unordered(k) for k in found} | mixed
    if is_key(eqn.outvars[0]):
        return (every - found) | {_moved(k, eqn) for k in found}
    drawn = NONE
    if any(map(is_key, eqn.invars)):
        line = where(eqn)
        drawn = frozenset(Random(k.path, line) for k in found if k.path is not None)
        if not programs(eqn):
            return (every - found) | drawn
    kept = name in _MOVES and _keeps_words(eqn, labels)
    return (every - found) | drawn | {replace(_unordered(k), whole=k.whole and kept) for k in found}


def _keys(labels: Labels) -> frozenset[FromKey]:
    return frozenset(x for x in labels if isinstance(x, FromKey))


def _child(key: FromKey, eqn: JaxprEqn) -> FromKey:
    if key.path is None:
        return key
    if eqn.primitive.name == "random_split":
        shape = eqn.params["shape"]
        alone = _shape(eqn.invars[0]) == () and len(shape) == 1
        return replace(_unordered(key), path=(*key.path, Span(0, math.prod(shape), alone)))
    number, child = eqn.invars[1], COUNTED
    if isinstance(number, Literal):
        child = Span(int(number.val), int(number.val) + 1)
    return replace(key, path=(*_unordered(key).path, child))  # type: ignore[misc]


def _moved(key: FromKey, eqn: JaxprEqn) -> FromKey:
    """A key after its array was cut or arranged otherwise."""
    last = key.path[-1] if key.path else None
    if not isinstance(last, Span) or not last.ordered or eqn.primitive.name == "squeeze":
        return key
    if eqn.primitive.name == "slice" and eqn.params["strides"] in (None, (1,)):
        (start,), (limit,) = eqn.params["start_indices"], eqn.params["limit_indices"]
        part = Span(last.low + start, last.low + limit, ordered=True)
        return replace(key, path=(*key.path[:-1], part))  # type: ignore[index]
    return _unordered(key)


def _unordered(key: FromKey) -> FromKey:
    if not key.path or not isinstance(key.path[-1], Span):
        return key
    return replace(key, path=(*key.path[:-1], key.path[-1]._replace(ordered=False)))


def _keeps_words(eqn: JaxprEqn, labels: Any) -> bool:
    """Whether an equation moves keys' words without taking a key apart: their last axis stays as it is."""
    name, words = eqn.primitive.name, [0]
    if name in ("select_n", "concatenate"):
        words = list(range(name == "select_n", len(labels)))
    last = _shape(eqn.outvars[0])[-1:]
    moved = [_shape(eqn.invars[i]) for i in words]
    uncut = name != "gather" or eqn.params["slice_sizes"][-1:] == moved[0][-1:]
    return (
        uncut and all(map(_keys, (labels[i] for i in words))) and all(s[-1:] == last for s in moved)
    )


def _shape(atom: Any) -> tuple[int, ...]:
    return tuple(atom.aval.shape)


def widened(labels: Labels) -> Labels:
    """The labels of what a loop carries: keys that descend from one another, turn by turn, as any number of turns."""
    for one, other in permutations([x for x in labels if isinstance(x, FromKey | Random)], 2):
        extends = (
            one.path is not None and other.path is not None and len(one.path) < len(other.path)
        )
        alike = extends and replace(one, path=()) == replace(other, path=())
        if alike and other.path[: len(one.path)] == one.path:  # type: ignore[index, arg-type]
            path = _any_turns(one.path, other.path[len(one.path) :])  # type: ignore[arg-type, index]
            return widened((labels - {one, other}) | {replace(one, path=path)})
    return labels


def _any_turns(path: Path, step: Path) -> Path:
    """All of `path`, then any number of `step`s."""
    if path and isinstance(path[-1], Repeated):
        return (
            path
            if path[-1] == ANY_DESCENDANT or path[-1].spans == step
            else (*path[:-1], ANY_DESCENDANT)
        )
    if any(isinstance(part, Repeated) for part in step):
        return (*path, ANY_DESCENDANT)
    return (*path, Repeated(step))


def tells_of(drawn: Path, noise: Path, *, reserved: bool) -> bool:
    """Whether numbers drawn from the one key may tell of noise drawn from the other, that key itself or a descendant.

    Args:
      reserved: whether streams of the library's own, beyond `RESERVED`, count as children that bits are words of.
    """
    seen: set[tuple[Path, Path]] = set()

    def meet(p: Path, n: Path) -> bool:
        if (p, n) in seen:
            return False
        seen.add((p, n))
        if _may_end(p) and (_may_end(n) or reserved or any(s.low < RESERVED for s, _ in _heads(n))):
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
    return max(one.low, other.low) < min(one.high, other.high)
