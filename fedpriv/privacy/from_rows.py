"""From a row of the table of views to what is seen (`Seen`), and rows that are declared by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any, get_args

from fedpriv.core.arguments import (
    Count,
    CountOrZero,
    Multiplier,
    Rate,
    checked,
    require,
)
from fedpriv.pairs.algebra import NOTHING, SEEN, times
from fedpriv.pairs.integer_noise import IntegerKind, IntegerNoise
from fedpriv.privacy.drawn import Drawn, Noisy, Pairs, Repeated, of_each
from fedpriv.privacy.row import Row
from fedpriv.privacy.sampling import (
    ADJACENCIES,
    PROVED,
    Sampling,
    Who,
    Why,
    check_sampling,
    told_law,
)
from fedpriv.privacy.seen import NOTHING_HIDES, Adder, NoiseKind, Plays, Seen, Unit, View
from fedpriv.privacy.words import words

_LEAST = {"gaussian": 1e-4, "laplace": 5e-3, "discrete_gaussian": 1e-4, "skellam": 1e-4}
"""Multipliers below which floats are no bound: dp-accounting fails where e^(1 / b) overflows."""


def seen_of(row: Row, honest: float = 1.0) -> Seen:
    """What the view sees, of which only this fraction of shares of noise is added and stays unknown to it."""
    row = row.each(lambda one: _within_range(_with_honest(one, honest)))
    parts = row.parts
    for part in parts:
        _check_draw("sampling", part.drawn.by)
        if part.repeated.among is not None:
            _check_draw("participation", part.repeated.among)
    nothing = row.repeated.rounds == 0 or all(each.noisy.far == 0 for each in parts)
    bare = [each for each in parts if math.isinf(each.noisy.far) and not nothing]
    pairs = _pairs(row, Drawn.pairs)
    if bare or nothing:
        pairs = pairs.map(lambda pair: NOTHING if nothing else SEEN)
    if bare and all(isinstance(pair, Why) for pair in pairs):
        pairs = Pairs(*[SEEN] * 4)  # for whatever neighbours
    known = [n for n in ADJACENCIES if not isinstance(pairs.of(n), Why)]
    said = {n: tuple(text for each in parts for text in words(each, n, honest)) for n in known}
    reason = "; ".join(dict.fromkeys(each.reason or NOTHING_HIDES for each in bare))
    event, attained = " + ".join(each.event for each in parts), all(p.attained for p in parts)
    plays = _plays(row) if len(parts) == 1 else None
    return Seen(row.view, row.unit, pairs, event, said, reason, attained, plays)


def _pairs(row: Row, of: Callable[[Drawn, Noisy], Pairs], played: bool = False) -> Pairs:
    """Of all rounds."""
    clients = [(each.clients, _of_a_client(each, of)) for each in (row, *row.others)]
    return row.repeated.pairs(clients, played)._replace(**_never_removed(row))


def _of_a_client(row: Row, of: Callable[[Drawn, Noisy], Pairs]) -> Pairs:
    """Of a round in which it takes part: of all that it releases there."""
    return of_each([_of_steps(each, of) for each in (row, *row.beside)])


def _of_steps(row: Row, of: Callable[[Drawn, Noisy], Pairs]) -> Pairs:
    hides = 0 < row.noisy.far < math.inf
    once = of(row.drawn, row.noisy if hides else Noisy("gaussian"))
    return once.map(lambda pair: times(pair, row.repeated.steps) if row.noisy.far else NOTHING)


def _plays(row: Row) -> Plays:
    noise, drawn, steps = row.noisy, row.drawn, row.repeated.steps
    pairs = _pairs(row, Drawn.played, played=True)
    lost, of_records = drawn.who.lost, row.of_records
    return Plays(row.used, noise.noise, noise.far, pairs, drawn.by, steps, lost, of_records)


def _never_removed(row: Row) -> dict[str, Why]:
    """Why a unit is not removed, or replaced, where it leaves something else behind."""
    among, why = row.repeated.among, None
    if row.goes_with_its_unit and not row.drawn.is_told and row.drawn.by.known_by_noise:
        why = Why("noise that clients add themselves tells who takes part; give `participation`")
        return dict.fromkeys(("removed", "emptied", "replaced"), why)
    if row.goes_with_its_unit:
        why = Why("noise that clients add themselves is gone with one that is removed")
    elif among is not None and not among.everyone and not row.of_records:
        why = Why(
            "who takes part is taken to be known, among whom one that is removed would be missing"
        )
    return {} if why is None else {"removed": why, "emptied": why}


def _with_honest(row: Row, honest: float) -> Row:
    if honest == 1 or not row.counts_others or row.noisy.far in (0, math.inf):
        return row
    left = row.noisy.left(honest)
    if left is not None:
        return row._replace(noisy=left)
    reason = "Laplace noise with missing shares is no longer Laplace"
    if isinstance(row.noisy.noise, IntegerNoise):
        reason = "no member's whole share of the noise is left"
    return row._replace(noisy=Noisy(row.noisy.kind, math.inf), reason=reason)


def _within_range(row: Row) -> Row:
    """Where there is too little noise for a finite number, nothing hides."""
    noisy = row.noisy
    often = row.drawn.by.repeats * row.drawn.who.units
    if noisy.multiplier in (0, math.inf) or noisy.multiplier >= _LEAST[noisy.kind] * often:
        return row
    reason = f"the noise is {noisy.multiplier:.3g} of what it hides, too little for a finite number"
    return row._replace(noisy=Noisy(noisy.kind, math.inf), reason=reason)


def declared(
    view: View,
    unit: Unit,
    multiplier: Multiplier,
    sampling: Sampling,
    rounds: CountOrZero,
    *,
    noise: NoiseKind = "gaussian",
    adder: Adder = "shares",
    local_steps: Count = 1,
    participation: Sampling | None = None,
    reason: str = "",
    integers: IntegerNoise | None = None,
    mechanism: Any = None,
    honest: Rate = 1.0,
) -> Seen:
    """What one view sees of one unit in `rounds` rounds, as somebody's word: a Gaussian or Laplace mechanism.

    Each round draws once by `participation`, and once by `sampling` for each of its `local_steps`, all independently.
    If K releases share *one* draw that the view knows, give that draw as `participation`, with
    `sampling=Everyone(...)`. If the view does not know it, they are one release of multiplier (sum_k
    multiplier_k^-2)^-1/2.

    Args:
        view, unit: as of `Seen`.
        multiplier: 1 / whitened sensitivity of zeroing out one unit when it takes part, 1 / sup ||Sigma^-1/2 A u|| (see
            `whitened_multiplier`); for Laplace noise its scale b over the l1 sensitivity; 0 if nothing hides the unit,
            infinity if the view does not see it. It is that of a unit drawn once: one drawn n times counts n times.
        sampling: how the units of a round, or the records of a local step, are drawn.
        rounds: number of rounds.
        noise: its kind.
        adder: who adds the noise that is counted; see `Adder`.
        local_steps: number of releases in a round, such as a client's K local steps, each with its own draw.
        participation: how a round's clients are drawn, once for all its local steps; the view is taken to know who
            takes part. A client drawn several times takes part once. None: there is only `sampling`.
        reason: why `multiplier` is 0, in words.
        integers: of integer noise, what its law is and how far a unit moves the sum; None of real noise.
        mechanism: the `fp.Mechanism` that bounds a contribution and perturbs the sum, for audits.
        honest: the fraction of shares of the noise that is added and stays unknown to the view.

    Raises:
        ValueError: for an unknown view, unit, noise or adder, a negative multiplier, a negative number of steps, or
            noise that a server adds and that is to hide something from it, or that of a sum from who sees messages.
    """
    view, unit = checked("view", view, View), checked("unit", unit, Unit)
    multiplier = checked("multiplier", multiplier, Multiplier)
    noise, adder = checked("noise", noise, NoiseKind), checked("adder", adder, Adder)
    rounds, steps = (
        checked("rounds", rounds, CountOrZero),
        checked("local_steps", local_steps, Count),
    )
    honest = checked("honest", honest, Rate)
    for name, each in (("sampling", sampling), ("participation", participation)):
        if each is not None or name == "sampling":
            _check_draw(name, each)
    _check_adder(view, adder, multiplier)
    _check_integers(noise, multiplier, integers)
    few = rounds * steps <= 2**53
    require(few, "local_steps", local_steps, "give at most 2^53 steps in all rounds")
    far = math.inf if multiplier == 0 else 1 / multiplier
    noisy = Noisy(noise, far) if integers is None else Noisy(integers)
    of_records = unit == "record"
    who = Who(lost=sampling.lossy)
    drawn = Drawn(sampling, who, known=view != "third_party" and not of_records)
    if participation is not None and participation.lossy:
        remedy = "members that vanish set the noise of all steps; give Everyone as `sampling`"
        require(sampling.everyone, "participation", participation, remedy)
        ((often, _),) = told_law(sampling, Who())
        noisy = noisy.moved(often)
        drawn = Drawn(participation, Who(lost=True), known=True, shared=steps)
        participation, steps = None, 1
    repeated = Repeated(rounds, steps, participation)
    row = Row(view, unit, noisy, adder, drawn, repeated, of_records, reason, mechanism)
    return seen_of(row, honest)


def _check_draw(name: str, drawn: Any) -> None:
    remedy = "give Everyone, FixedSize, Poisson, Allocation or WithReplacement"
    require(isinstance(drawn, Sampling), name, drawn, remedy)
    if type(drawn) not in PROVED:
        named = isinstance(drawn, Hashable) and type(drawn).__hash__ is not None
        require(named, name, drawn, "make it a frozen dataclass, so that it is known by its value")
        check_sampling(drawn)


def _check_adder(view: View, adder: Adder, multiplier: float) -> None:
    seen = adder == "server" and view != "third_party" and multiplier > 0
    remedy = 'a server sees the sum before it adds the noise; give "enclave", or a multiplier of 0'
    require(not seen, "adder", adder, remedy)
    seen = adder in ("enclave", "own_summed") and view == "server" and multiplier > 0
    remedy = 'it sees every message, not only the sum with this noise; give "server_secagg", or noise of a message'
    require(not seen, "view", view, remedy)


def _check_integers(noise: NoiseKind, multiplier: float, integers: Any) -> None:
    of_integers = noise in get_args(IntegerKind) and 0 < multiplier < math.inf
    kind = integers and integers.kind
    remedy = "give it for a discrete Gaussian or Skellam noise, of that kind, and for no other"
    require(kind == (noise if of_integers else None), "integers", integers, remedy)
    if integers is not None:
        alike = math.isclose(multiplier, integers.multiplier, rel_tol=1e-6)
        remedy = f"give that of `integers`, {integers.multiplier:.7g}"
        require(alike, "multiplier", multiplier, remedy)
