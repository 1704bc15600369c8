"""Labels of keys and random numbers in a traced program: which key of the round's they come from.

With threefry `fold_in(k, i)` is `split(k)[i]`, and bits that are drawn from k are computed from the words of its
children. So who sees numbers that were drawn from a key learns something of whatever noise descends from that key, and
of no other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn, Literal

from fedpriv.certification.information_flow import NONE, NOWHERE, Labels, Loop, where
from fedpriv.certification.key_paths import (
    COUNTED,
    Path,
    any_turns,
    child,
    children,
    moved,
    of_a_turn,
)
from fedpriv.core.jaxprs import programs

CLIENTS = "clients"
"""Among what a key varies with: each client has another."""


@dataclass(frozen=True)
class KeyLabel:
    """A label of a key, or of words of one.

    Attributes:
      path: from the round's key; None of a key that does not descend from it.
      whole: whether it is a whole key, with all that is random about it.
      varies: what it is another key for each of: the turns of `Loop`s, `CLIENTS`.
    """

    path: Path | None
    whole: bool = True
    varies: frozenset[Any] = frozenset()


@dataclass(frozen=True)
class DrawnLabel:
    """A label of random numbers, drawn in `line` from the key at `path`."""

    path: Path
    line: str


@dataclass(frozen=True)
class Counter:
    """A label of a number that is another one in every turn of a loop; without a loop, of 0, 1, 2, ... in an array."""

    loop: Loop | None = None


ROUNDS_KEY = KeyLabel(())
FOREIGN = KeyLabel(None, whole=False)
"""A key that does not descend from the round's."""

_MOVES = frozenset(
    (
        *("slice", "squeeze", "reshape", "dynamic_slice", "gather", "concatenate", "copy"),
        *("broadcast_in_dim", "copy_p", "select_n", "expand_dims"),
    )
)
_CONTROL = frozenset(("scan", "while", "cond"))
_STILL_COUNTS = frozenset(
    ("convert_element_type", "copy", "copy_p", "squeeze", "reshape", "add", "sub")
)


def is_key(atom: Any) -> bool:
    """Whether a value of a traced program is a PRNG key, or an array of them."""
    dtype = getattr(atom.aval, "dtype", None)
    return dtype is not None and bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))


def of_constant(atom: Any) -> Labels:
    """The labels of an array that a program closes over."""
    return frozenset({FOREIGN}) if is_key(atom) else NONE


def fault_of(key: Labels) -> str | None:
    """Why noise drawn from a key of these labels is not fresh in every round; None where it is."""
    its_keys = _keys(key)
    if not its_keys or any(k.path is None for k in its_keys):
        return "not drawn from the round's key, so that rounds share it"
    if not all(k.whole for k in its_keys):
        return "drawn from a part of the round's key that has few values, so that it can be guessed"
    return None


def varies(key: Labels, thing: Any) -> bool:
    """Whether a key of these labels is another one for each turn of a `Loop`, or for each of `CLIENTS`."""
    return all(thing in k.varies for k in _keys(key))


def as_every_client(key: Labels) -> Labels:
    """The labels of one client's key, child 0, as those of all clients' keys."""
    its_keys = _keys(key)
    every = {
        replace(k, path=(*k.path[:-1], COUNTED) if k.path else k.path, varies=k.varies | {CLIENTS})
        for k in its_keys
    }
    return (key - its_keys) | every


def each_turn(labels: Labels, loop: Loop, *, counts: bool, element: bool) -> Labels:
    """The labels of what a loop hands to a turn.

    Args:
      counts: whether it is a number that goes up by the same in every turn.
      element: whether it is an entry of an array that the loop goes through, and not what it carries.
    """
    its_keys = _keys(labels)
    numbered = {Counter(loop)} if counts or (element and Counter() in labels) else NONE
    turned = set()
    for k in its_keys:
        path = of_a_turn(k.path) if element and k.path else k.path
        # One of an array of equal keys, or a key that stays, is the same in every turn.
        other = (
            not element
            or len(its_keys) > 1
            or bool(path and not getattr(path[-1], "is_single", False))
        )
        turned.add(replace(k, path=path, varies=k.varies | {loop} if other else k.varies))
    return (labels - its_keys - {Counter()}) | {loop} | numbered | turned


def after_loop(loop: Loop, labels: Labels) -> Labels:
    """The labels of what a loop gives back, which varies with its turns no more."""
    its_keys = _keys(labels)
    kept = labels - its_keys - {loop, Counter(loop)}
    return kept | {replace(k, varies=k.varies - {loop}) for k in its_keys}


def with_line(eqn: JaxprEqn, labels: Labels) -> Labels:
    """The labels, of random numbers with the line that called for them, where the one that drew them is not known."""
    lost = {x for x in labels if isinstance(x, DrawnLabel) and x.line == NOWHERE}
    if not lost:
        return labels
    line = where(eqn)
    return (labels - lost) | {replace(x, line=line) for x in lost}


def without_keys(labels: Labels) -> Labels:
    """Without those of keys and random numbers."""
    return frozenset(x for x in labels if not isinstance(x, KeyLabel | DrawnLabel))


def through(eqn: JaxprEqn, labels: Any) -> Labels:
    """The labels of what an equation computes, given those of its inputs, as far as keys go; all others pass."""
    every, name = NONE.union(*labels), eqn.primitive.name
    counters = frozenset(x for x in every if isinstance(x, Counter))
    if name == "iota" and len(eqn.outvars[0].aval.shape) == 1:  # type: ignore[attr-defined]
        return every | {Counter()}
    if counters and not _still_counts(eqn, labels, counters):
        every -= counters
    its_keys = _keys(every)
    if name in ("random_split", "random_fold_in"):
        # Who knows what was folded in, such as words of a key, can look for it in what is drawn.
        folded = {replace(k, whole=False) for x in labels[1:] for k in _keys(x)}
        descendants = {_child(k, eqn, labels) for k in _keys(labels[0]) or {FOREIGN}}
        return (every - its_keys - counters) | folded | descendants
    if name in ("random_seed", "random_wrap", "random_unwrap"):
        kept = name != "random_seed"
        words = {replace(_reworded(k, eqn), whole=k.whole and kept) for k in its_keys}
        return (every - its_keys) | (words or {FOREIGN})
    if not its_keys or not eqn.outvars:
        return every
    if name in _CONTROL:
        mixed = {FOREIGN} if name == "cond" and not all(map(_keys, labels[1:])) else NONE
        return every | mixed
    if is_key(eqn.outvars[0]):
        return (every - its_keys) | {_moved(k, eqn, labels) for k in its_keys}
    drawn = NONE
    if any(map(is_key, eqn.invars)):
        line = where(eqn)
        drawn = frozenset(DrawnLabel(k.path, line) for k in its_keys if k.path is not None)
        if not programs(eqn):
            return (every - its_keys) | drawn
    whole = name in _MOVES and _keeps_words(eqn, labels)
    words = {_moved(k, eqn, labels) if whole else replace(k, whole=False) for k in its_keys}
    return (every - its_keys) | drawn | words


def _keys(labels: Labels) -> frozenset[KeyLabel]:
    return frozenset(x for x in labels if isinstance(x, KeyLabel))


def _still_counts(eqn: JaxprEqn, labels: Any, counters: Labels) -> bool:
    """Whether what is computed of a counter, and of nothing random, is another number for every number."""
    name = eqn.primitive.name
    if any(isinstance(x, DrawnLabel) for each in labels for x in each):
        return False
    if name == "mul":
        return any(isinstance(atom, Literal) and np.all(atom.val != 0) for atom in eqn.invars)
    if name == "select_n":
        return all(counters <= each for each in labels[1:])
    return name in _STILL_COUNTS or bool(programs(eqn))


def _child(key: KeyLabel, eqn: JaxprEqn, labels: Any) -> KeyLabel:
    if key.path is None:
        return key
    parent = moved(key.path, None)
    if eqn.primitive.name == "random_split":
        return replace(key, path=(*parent, children(_shape(eqn.invars[0]), eqn.params["shape"])))
    number = eqn.invars[1]
    own = child(int(number.val)) if isinstance(number, Literal) else COUNTED
    loops = {x.loop for x in labels[1] if isinstance(x, Counter) and x.loop}
    return replace(key, path=(*parent, own), varies=key.varies | loops)


def _moved(key: KeyLabel, eqn: JaxprEqn, labels: Any) -> KeyLabel:
    """A key after its array, or that of its words, was cut or arranged otherwise."""
    if not key.path:
        return key
    name, last = eqn.primitive.name, key.path[-1]
    indexed = {x.loop for each in labels[1:] for x in each if isinstance(x, Counter) and x.loop}
    if name in ("gather", "dynamic_slice") and not getattr(last, "is_single", True):
        return replace(key, path=moved(key.path, _move(eqn)), varies=key.varies | indexed)
    return replace(key, path=moved(key.path, _move(eqn)))


def _move(eqn: JaxprEqn) -> Callable[[np.ndarray], np.ndarray] | None:
    """What an equation does to an array whose entries it moves, where that is simple."""
    name, params, shape = eqn.primitive.name, eqn.params, _shape(eqn.outvars[0])
    if name in ("squeeze", "reshape", "expand_dims", "copy", "copy_p"):
        return lambda numbers: numbers.reshape(shape)
    if name == "slice":
        cut = zip(
            params["start_indices"],
            params["limit_indices"],
            params["strides"] or [1] * len(shape),
            strict=True,
        )
        places = tuple(slice(*ends) for ends in cut)
        return lambda numbers: numbers[places]
    if name == "transpose":
        return lambda numbers: numbers.transpose(params["permutation"])
    if name == "rev":
        return lambda numbers: np.flip(numbers, params["dimensions"])
    return None


def _reworded(key: KeyLabel, eqn: JaxprEqn) -> KeyLabel:
    """Of an array of keys as that of their words, which has a further axis, or the reverse."""
    if not key.path:
        return key
    if eqn.primitive.name == "random_unwrap":
        count = _shape(eqn.outvars[0])[-1]
        return replace(key, path=moved(key.path, lambda n: np.repeat(n[..., None], count, -1)))
    return replace(key, path=moved(key.path, lambda n: n[..., 0] if n.ndim else n))


def _keeps_words(eqn: JaxprEqn, labels: Any) -> bool:
    """Whether an equation moves keys' words without taking a key apart: their last axis stays as it is."""
    name, words = eqn.primitive.name, [0]
    if name in ("select_n", "concatenate"):
        words = list(range(name == "select_n", len(labels)))
    last = _shape(eqn.outvars[0])[-1:]
    shapes = [_shape(eqn.invars[i]) for i in words]
    uncut = name != "gather" or eqn.params["slice_sizes"][-1:] == shapes[0][-1:]
    all_words = all(map(_keys, (labels[i] for i in words)))
    return uncut and all_words and all(shape[-1:] == last for shape in shapes)


def _shape(atom: Any) -> tuple[int, ...]:
    return tuple(atom.aval.shape)


def widened(labels: Labels) -> Labels:
    """The labels of what a loop carries: keys that descend from one another, turn by turn, as any number of turns."""
    traced = [x for x in labels if isinstance(x, KeyLabel | DrawnLabel) and x.path is not None]
    for one, other in permutations(traced, 2):
        start = len(one.path or ())
        alike = replace(one, path=()) == replace(other, path=())
        if alike and start < len(other.path or ()) and (other.path or ())[:start] == one.path:
            path = any_turns(one.path or (), (other.path or ())[start:])
            return widened((labels - {one, other}) | {replace(one, path=path)})
    return labels
