"""A pair as an event of dp-accounting, for its accountants, which are independent of ours."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

from fedpriv.pairs.blocks import Block
from fedpriv.pairs.end_of_run import Best, Slack
from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.proof.pairs import NOTHING, SEEN, All, AnyPair, Moved, Times, Told

PLD, RDP = "PLD", "RDP"
_BOTH = frozenset({PLD, RDP})
_RELATIONS = {
    "add_or_remove": "ADD_OR_REMOVE_ONE",
    "replace_one": "REPLACE_ONE",
    "zero_out": "REPLACE_SPECIAL",
}
"""Adjacency -> its name in dp-accounting."""


class Event(NamedTuple):
    """What dp-accounting composes.

    Attributes:
        event: a `DpEvent`.
        relation: a `NeighboringRelation`.
        accountant: of dp-accounting, that computes it to what is promised: "PLD", or "RDP".
    """

    event: Any
    relation: Any
    accountant: str


class NoEventError(ValueError):
    """Why dp-accounting has no event."""


def event(pair: AnyPair, relation: str) -> Event:
    """The event of a pair under this adjacency.

    Noise multipliers are relative to what the relation can move: where a unit is replaced, by twice its clip norm, they
    are half of the mechanism's, as dp-accounting's RDP accountant does not double the distance. Its PLD accountant
    does, which is why that one is not named there.

    Raises:
        NoEventError: there is none that an accountant computes.
    """
    import dp_accounting as dp

    if pair == SEEN:
        found, accountants = dp.NonPrivateDpEvent(), _BOTH
    else:
        found, accountants = _of(pair)
    if relation == "replace_one" and pair != NOTHING:
        accountants -= {PLD}
    if relation != "replace_one" and _is_without_replacement(pair):
        accountants = frozenset()
    if not accountants:
        raise NoEventError("none of its accountants computes all of these together")
    one = PLD if PLD in accountants else RDP
    return Event(found, dp.NeighboringRelation[_RELATIONS[relation]], one)


def _is_without_replacement(pair: AnyPair) -> bool:
    if isinstance(pair, Moved):
        return pair.subset is not None
    if isinstance(pair, All | Best):
        return any(map(_is_without_replacement, pair.of))
    return isinstance(pair, Times) and _is_without_replacement(pair.of)


def _of(pair: AnyPair) -> tuple[Any, frozenset[str]]:
    """(The event, the accountants that compute it)."""
    import dp_accounting as dp

    if isinstance(pair, Slack):
        raise NoEventError("its noise is of integers")
    if isinstance(pair, Best):
        if len(pair.of) > 1:
            raise NoEventError("runs have settings of their own; give that of one setting")
        inside, accountants = _of(pair.of[0])
        if pair.mean == 1:
            return inside, accountants
        return dp.dp_event.RepeatAndSelectDpEvent(inside, pair.mean, 1), accountants - {PLD}
    if isinstance(pair, All):
        each = [_of(one) for one in pair.of]
        events = [one for one, _ in each]
        whole = dp.ComposedDpEvent(events) if events else dp.NoOpDpEvent()
        return whole, _BOTH.intersection(*(accountants for _, accountants in each))
    if isinstance(pair, Times):
        once, accountants = _of(pair.of)
        return dp.SelfComposedDpEvent(once, pair.n), accountants
    if isinstance(pair, Told):
        if pair.made_by is None:
            raise NoEventError("a view is told which of several cases it is")
        return _of_cut(pair, *pair.made_by)
    if isinstance(pair, Block):
        raise NoEventError("units take part in one round of a block")
    if not isinstance(pair, Moved):
        raise NoEventError(f"it has none of {type(pair).__name__}")
    return _of_moved(pair)


def _of_moved(pair: Moved) -> tuple[Any, frozenset[str]]:
    import dp_accounting as dp

    if isinstance(pair.noise, IntegerNoise):
        raise NoEventError("its noise is of integers")
    if not isinstance(pair.noise, str):
        raise NoEventError(f"it has none of {pair.noise.kind} noise")
    far, rate = pair.law[0]
    noisy = {"gaussian": dp.GaussianDpEvent, "laplace": dp.LaplaceDpEvent}[pair.noise](1 / far)
    if pair.is_sure:
        return noisy, _BOTH
    gaussian = pair.noise == "gaussian"
    if pair.replaced:
        if pair.subset is None or pair.subset != rate or not gaussian or len(pair.law) > 1:
            raise NoEventError("a unit is replaced, and not by a uniform subset and Gaussian noise")
        size, population = _ratio(rate)
        return dp.SampledWithoutReplacementDpEvent(population, size, noisy), frozenset({RDP})
    if len(pair.law) == 1:
        return dp.PoissonSampledDpEvent(rate, noisy), _BOTH if gaussian else frozenset({PLD})
    if not gaussian:
        raise NoEventError("several units may be drawn, with Laplace noise")
    distances, chances = (list(column) for column in zip(*pair.law, strict=True))
    none = max(0.0, 1 - sum(chances))
    law = [0.0, *distances], [none, *chances]
    return dp.dp_event.MixtureOfGaussiansDpEvent(1.0, *law), frozenset({PLD})


def _of_cut(pair: Told, population: int, rate: float, capacity: int) -> tuple[Any, frozenset[str]]:
    """dp-accounting's own cases of a cut are larger: its epsilon is the looser one."""
    import dp_accounting as dp

    moved = min((case for _, case in pair.cases if isinstance(case, Moved)), key=lambda c: c.law)
    if moved.noise != "gaussian":
        raise NoEventError("cohorts are cut, and the noise is not Gaussian")
    multiplier = 1 / moved.law[0][0]
    cut = dp.TruncatedSubsampledGaussianDpEvent(population, rate, capacity, multiplier)
    return cut, frozenset({PLD})


def _ratio(rate: float) -> tuple[int, int]:
    """(size, population) of a subset at that rate, in small numbers where there are such."""
    simple = Fraction(rate).limit_denominator(10**7)
    return (simple if float(simple) == rate else Fraction(rate)).as_integer_ratio()
