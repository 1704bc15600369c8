"""From what is seen to a proved (epsilon, delta): a search proposes a number with its witness; it is checked here."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from fedpriv.core.complaints import require
from fedpriv.proof import verify
from fedpriv.proof.cases import ADJACENCIES, Adjacency, Neighbour, Why
from fedpriv.proof.pairs import NOTHING, SEEN, Pair, together
from fedpriv.proof.row import seen_of
from fedpriv.proof.seen import ALWAYS_ASSUMED, Seen, View, common_neighbour

_delta = lru_cache(maxsize=256)(verify.delta)  # views often see the same


class Proposal(NamedTuple):
    """A number that a search found for a pair.

    Attributes:
        epsilon: in nats; infinity needs no witness.
        bound: the pair itself, or what from outside says that it is no less.
        witness: shows that delta(epsilon) of `bound` is small enough.
    """

    epsilon: float
    bound: Any
    witness: Any


@dataclass(frozen=True)
class Proved:
    """A proved (epsilon, delta), with everything needed to check it.

    Attributes:
        epsilon: privacy loss, in nats; infinity if nothing is guaranteed.
        delta: probability, in (0, 1).
        view: against whom the guarantee holds.
        unit: "client", "record" or "person".
        relation: how neighbouring data sets differ in one unit.
        event: what was composed, in words.
        assumptions: what must hold for the number to be true; if nothing hides the unit, why.
        bound, witness: of which `verify.delta(bound, epsilon, witness)` is at most delta.
        doors: what from outside this package was used, each as "door: class"; (): nothing was.
    """

    epsilon: float
    delta: float
    view: View
    unit: str
    relation: Adjacency
    event: str
    assumptions: tuple[str, ...]
    bound: Any
    witness: Any = None
    doors: tuple[str, ...] = ()


def prove(
    seen: Sequence[Seen],
    delta: float,
    view: View,
    propose: Callable[[Pair], Proposal],
    compose: Callable[[Iterable[Pair]], Pair] = together,
) -> Proved:
    """What is proved of all that is `seen`, of which that by other views is ignored.

    What this view sees is composed, with cohorts drawn independently (see `Seen`). It is certified for the first kind
    of neighbours for which all of it has a pair.

    *Proof.* The composed pair dominates what the view sees of such neighbours (see `pairs`); a witness bounds its
    delta(epsilon) whoever found it (see `verify`). Nothing released gives 0, nothing hidden gives infinity: without
    noise all is infinite, and what shows nothing costs nothing and composes with all.

    Args:
        propose: of a pair a number; called where something is released and something hides it.
        compose: several pairs; one from outside is a door where it says something else than `together`.

    Raises:
        ValueError: a view that sees nothing, different units, or no kind of neighbours for which all has a pair; a
            proposal that its witness does not show.
    """
    of_view = [each for each in seen if each.view == view]
    remedy = f"declare what this view sees (found: {sorted({each.view for each in seen})})"
    require(bool(of_view), "view", view, remedy)
    units = sorted({each.unit for each in of_view})
    remedy = "certify one unit at a time: an epsilon hides either records or whole clients"
    require(len(units) == 1, "unit", units, remedy)
    counted = what_counts(of_view)
    neighbour = common_neighbour(counted)
    outside: tuple[Any, ...] = ()
    if not counted[0].hidden:
        proposed = Proposal(math.inf, SEEN, None)
        reasons = dict.fromkeys(each.reason for each in counted)
        texts = tuple(f"not private: {reason}" for reason in reasons)
    elif not counted[0].shows:
        proposed = Proposal(0.0, NOTHING, verify.Exact())
        texts = ("nothing about the unit is released",)
    else:
        pairs: list[Any] = [each.pairs.of(neighbour) for each in counted]
        pair = compose(pairs)
        outside = () if pair == together(pairs) else (compose,)
        proposed = _checked(propose, pair, delta)
        texts = assumptions(counted, neighbour)
    return Proved(
        proposed.epsilon,
        delta,
        view,
        units[0],
        ADJACENCIES[neighbour],
        " + ".join(each.event for each in of_view),
        texts,
        proposed.bound,
        proposed.witness,
        doors(of_view, proposed, *outside),
    )


def what_counts(of_view: Sequence[Seen]) -> Sequence[Seen]:
    """What decides, of all that a view sees: what nothing hides, or else what shows something."""
    bare = [each for each in of_view if not each.hidden]
    return bare or [each for each in of_view if each.shows] or of_view[:1]


def _checked(propose: Callable[[Pair], Proposal], pair: Pair, delta: float) -> Proposal:
    """Raises ValueError: the proposal is not shown."""
    proposed = propose(pair)
    ours = proposed.bound == pair or not isinstance(proposed.bound, Pair)
    require(ours, "bound", proposed.bound, "give the pair, or what from outside bounds it")
    return accepted(proposed, delta)


def accepted(proposed: Proposal, delta: float) -> Proposal:
    """Raises ValueError: the witness of a proposal does not show it."""
    epsilon, bound, witness = proposed
    shows = epsilon == math.inf or _delta(bound, epsilon, witness) <= delta
    require(shows, "epsilon", epsilon, "its witness does not show it")
    return proposed


def assumptions(seen: Sequence[Seen], neighbour: Neighbour) -> tuple[str, ...]:
    """Of all that is seen."""
    own = (text for each in seen for text in each.words[neighbour])
    return tuple(dict.fromkeys((*own, *ALWAYS_ASSUMED)))


def doors(seen: Sequence[Seen], proposed: Proposal, *compose: Any) -> tuple[str, ...]:
    """What from outside was used: of rows, their draws, units, noise, and what makes a sum private; of pairs."""
    found = [name for each in compose for name in _named("composition", each)]
    found += ["row: declared by its pairs"] * any(map(_by_its_pairs, seen))
    found += [name for each in seen for name in _named("row", each)]
    for part in (part for each in seen for row in each.rows for part in row.parts):
        found += _named("row", part)
        found += [*_outside("noise", part.noisy), *_named("draws", part.drawn)]
        found += [*_outside("draws", part.drawn.by), *_named("unit", part.drawn.who)]
        found += _outside("draws", getattr(part, "repeated", ()))
        for release in part.releases:
            found += [*_named("mark", release), *_named("step", release.step)]
            used = release.step.mechanism
            found += _outside("mechanism", used)
            found += ["mechanism: declared"] * (not release.step.is_proved)
    found += [*_outside("pair", proposed.bound), *_outside("witness", proposed.witness)]
    return tuple(dict.fromkeys(found))


def _by_its_pairs(seen: Seen) -> bool:
    """Whether it says of a view, a unit or a pair what is not of the row that it is made of."""

    def said(of: Seen) -> set[Any]:
        known = {
            pair for pair in zip(ADJACENCIES, of.pairs, strict=True) if not isinstance(pair[1], Why)
        }
        return {of.view, of.unit, *known}

    return not any(said(seen) <= said(seen_of(row)) for row in seen.rows)


def _outside(name: str, value: Any) -> Iterator[str]:
    """What of a value, and of its fields, is not of this package."""
    yield from _named(name, value)
    if isinstance(value, type):
        return
    if is_dataclass(value) or hasattr(value, "_fields"):
        for each in getattr(value, "_fields", None) or [one.name for one in fields(value)]:
            yield from _outside("noise" if each == "noise" else name, getattr(value, each))
    elif isinstance(value, tuple):
        for one in value:
            yield from _outside(name, one)


def _named(name: str, value: Any) -> Iterator[str]:
    """The class of a value, or a function, that is neither of this package nor plain data."""
    made = value if hasattr(value, "__qualname__") else type(value)
    if not (_is_ours(made) or isinstance(value, _DATA)):
        yield f"{name}: {made.__module__}.{made.__qualname__.partition('.<locals>')[0]}"


def _is_ours(made: Any) -> bool:
    """Whether this package has it by its name, whatever a wrapper says of itself."""
    ours = str(made.__module__).startswith("fedpriv.proof.")
    return ours and getattr(sys.modules[made.__module__], made.__qualname__, None) is made


_DATA = (int, float, str, tuple, type(None), np.ndarray, np.generic, jax.Array)
