"""Audits mechanisms: what draws of one show, beside what is claimed and certified; draws for audits of trainings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import jax
import numpy as np

from fedpriv.attacks.bounds import lower_bounds
from fedpriv.attacks.mechanism_audit import Scores, coordinates, draw_scores
from fedpriv.certification.traced_round import TracedRound
from fedpriv.experiments.accounting.cost import Account, accounts
from fedpriv.experiments.attacks.audit.row import LIKELY, SURE, Row, Unaudited
from fedpriv.experiments.base.time_left import Remaining
from fedpriv.experiments.config.ledger import Ledger
from fedpriv.mechanisms.described import scaling_of, worst_case_of
from fedpriv.pairs.parts import draws_of
from fedpriv.privacy.played import Plays, is_drawable, plays_of
from fedpriv.privacy.sampling import Neighbour, Why
from fedpriv.proof.bound import Mechanism
from fedpriv.proof.seen import Seen, common_neighbour

AFFORDABLE = 8e8
"""Numbers of noise per row: 10 to 20 s."""
FEWEST = 2000
"""Draws: where a whole run allows only fewer, they are of fewer rounds, which bound the whole from below too."""
LIMITS = 20
"""Times that as many draws as runs are drawn for the limit."""


def audit_mechanisms(
    ledger: Ledger, rounds: int, draws: int, seed: int
) -> tuple[list[Row], list[Unaudited]]:
    """Audits every view of every algorithm, distinct ones once; and those with nothing to draw, of infinite epsilon."""
    rows, bare = [], []
    every = _by_mechanism(ledger, accounts(ledger, rounds))
    alike = [_alike(ledger.trace(account.names[0]), account, rounds) for account in every]
    remaining = Remaining("mechanisms that are drawn", sum(map(len, alike)))
    for account, groups in zip(every, alike, strict=True):
        traced = ledger.trace(account.names[0])
        for views in groups:
            rows.append(_audited(account, traced, views, rounds, draws, seed))
            remaining.advance()
        if not drawable(traced.seen(1)):
            reasons = dict.fromkeys(each.reason for each in traced.seen(1) if each.reason)
            bare.append(Unaudited(account.names, "; ".join(reasons), account.claim))
    return rows, bare


def _by_mechanism(ledger: Ledger, found: Sequence[Account]) -> list[Account]:
    """Equal multipliers do not make equal mechanisms."""
    parts = []
    for account in found:
        groups: dict[object, list[str]] = {}
        for name in account.names:
            used = [plays for plays in map(plays_of, ledger.trace(name).seen(1)) if plays]
            same = tuple(map(_alike_mechanisms, used))
            groups.setdefault(same, []).append(name)
        parts += [account._replace(names=tuple(names)) for names in groups.values()]
    return parts


def _alike_mechanisms(plays: Plays) -> tuple[object, ...]:
    """What mechanisms of one multiplier may differ in."""
    if plays.used is None:
        return ()
    used: Mechanism = plays.used
    levels = map(float, jax.tree.leaves((used.clip_norm, used.noise_multiplier)))
    scaling, worst_case = scaling_of(used), worst_case_of(used)
    norms = scaling is None or scaling.norms is None
    dimension = worst_case and worst_case.dimension
    return *levels, dimension, scaling is None, norms, plays.noise


def drawable(seen: Sequence[Seen]) -> list[Seen]:
    return [each for each in seen if is_drawable(each)]


def _alike(traced: TracedRound, account: Account, rounds: int) -> list[tuple[str, ...]]:
    """The views with something to draw; those that see the same of a record together."""
    groups: dict[object, list[str]] = {}
    for certificate in account.certificates:
        seen = [each for each in traced.seen(rounds) if each.view == certificate.view]
        if drawable(seen):
            same = tuple(replace(each, view="server") for each in seen)
            by_record = all(each.unit == "record" for each in seen)
            groups.setdefault(same if by_record else certificate.view, []).append(certificate.view)
    return [tuple(views) for views in groups.values()]


def _audited(
    account: Account,
    traced: TracedRound,
    views: tuple[str, ...],
    rounds: int,
    draws: int,
    seed: int,
) -> Row:
    drawn, some = affordable(traced, views[0], rounds, draws)
    scores = draw_scores(traced.seen(some), views[0], draws=drawn, seed=seed)  # type: ignore[arg-type]
    certificate = next(c for c in account.certificates if c.view == views[0])
    bounds = lower_bounds(scores, certificate.delta, LIKELY)
    return Row(
        account.names,
        views,
        account.claim if account.claim and account.claim.view in views else None,
        certificate,
        least=bounds.least,
        surely=lower_bounds(scores, certificate.delta, SURE).least,
        most=math.log(drawn),
        about={"rounds": rounds, "drawn_rounds": some, "draws": drawn},
        audited=bounds._asdict(),
    )


def affordable(traced: TracedRound, view: str, rounds: int, draws: int) -> tuple[int, int]:
    """(draws, rounds) that an audit of mechanisms may take, by `AFFORDABLE`."""
    fits = int(AFFORDABLE / _cost(traced, view, rounds))
    if fits >= min(draws, FEWEST):
        return min(draws, fits), rounds
    one = int(AFFORDABLE / _cost(traced, view, 1))
    some = max(1, min(rounds, one // min(draws, FEWEST)))
    return min(draws, max(100, one // some)), some


def _cost(traced: TracedRound, view: str, rounds: int) -> float:
    """Numbers of noise per draw of both neighbours."""
    seen = drawable([each for each in traced.seen(rounds) if each.view == view])
    neighbour = common_neighbour(seen)
    every = (plays for plays in map(plays_of, seen) if plays is not None)
    numbers = [_numbers(plays, neighbour) for plays in every]
    return 2.0 * sum(numbers)


def _numbers(plays: Plays, neighbour: Neighbour) -> int:
    pair = plays.pairs.of(neighbour)
    return 0 if isinstance(pair, Why) else draws_of(pair) * coordinates(plays)


def parts_of(exact: Scores | None) -> list[Scores]:
    """Of an audit of mechanisms: the exact pair's draws in `LIMITS` parts, of as many as runs; else nothing."""
    if exact is None:
        return []
    parts = (np.split(side, LIMITS) for side in (exact.present, exact.absent))
    return [exact._replace(present=p, absent=a) for p, a in zip(*parts, strict=True)]


def exact_pair(traced: TracedRound, view: str, rounds: int, draws: int, seed: int) -> Scores | None:
    """Scores of as many draws of each neighbour; None where there is nothing to draw, or more than is affordable."""
    every = traced.seen(rounds)
    seen = [each for each in every if each.view == view]
    if not seen or len(drawable(seen)) < len(seen):
        return None
    if affordable(traced, view, rounds, draws) != (draws, rounds):
        return None
    return draw_scores(every, view, draws=draws, seed=seed)  # type: ignore[arg-type]
