"""From a release to the pair that a view sees: the one place that asks a sampling how a unit moves the sum."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from fedpriv.pairs.algebra import (
    NOTHING,
    SEEN,
    All,
    AnyPair,
    Best,
    Block,
    Moved,
    Noise,
    Pair,
    Slack,
    Times,
    Told,
    fold,
    moved,
    times,
    together,
    told,
)
from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.privacy.integer_accounting import as_real, drawn_apart, of_integers, seldom_lost
from fedpriv.privacy.relations import multiplier_for
from fedpriv.privacy.release import Release
from fedpriv.privacy.sampling import DrawCase, Sampling

_NEVER = 1e-45  # rarer numbers of draws count as seen
_GROUPS = 16  # of numbers of shares of integer noise that are left


def pairs_of(
    settings: Sequence[Sequence[Release]], relation: str, delta: float, best_of: float = 1.0
) -> dict[str, AnyPair]:
    """Accountant -> the pair that it is asked of: one for both, but of integer noise.

    Args:
        settings: what a run of each setting releases.
        relation: "add_or_remove", "replace_one" or "zero_out".
        delta: of which a part is set aside for integer noise.
        best_of: mean number of runs of which the best is released, see `Best`.
    """

    def whole(seldom: float) -> Pair | Best:
        each = tuple(pair_of(releases, relation, seldom) for releases in settings)
        single = best_of == 1 and len(each) == 1
        return each[0] if single else Best(each, best_of)

    if not any(map(of_integers, settings)):
        return dict.fromkeys(("PLD", "RDP"), whole(0.0))
    found: dict[str, AnyPair] = {}
    off = drawn_apart(settings, best_of)
    real = as_real(settings[0]) if best_of == 1 else None
    if real is not None:
        found["PLD"] = Slack(pair_of(real.releases, relation), real.apart, off)
    found["RDP"] = Slack(whole(seldom_lost(settings, best_of, delta)), 0.0, off)
    return found


def pair_of(releases: Iterable[Release], relation: str, seldom: float = 0.0) -> Pair:
    """What these releases show of a unit, composed.

    Args:
        releases: with positive multipliers; infinite ones show nothing.
        relation: "add_or_remove", "replace_one" or "zero_out", as `relation_of` gives it.
        seldom: the chance, in a round, of the fewest shares of integer noise, which count as if all were seen.
    """
    return together(_of_release(release, relation, seldom) for release in releases)


def played_pair(release: Release, relation: str) -> Pair:
    """What an audit plays: draws as they happen, where `pair_of` counts a case that costs more.

    Of integer noise the moves alone: those of real noise of its multiplier.
    """
    if release.integers is not None:
        release = replace(release, noise="gaussian", integers=None)
    pair = _of_release(release, relation, 0.0, played=True)
    return _with_others_in_place(pair) if relation == "replace_one" else pair


def _with_others_in_place(pair: Pair) -> Pair:
    """As it is played where units are replaced: moved one way by this unit, the other way by another."""

    def leaf(draw: Pair) -> Pair:
        return replace(draw, replaced=True) if isinstance(draw, Moved) else draw

    return fold(pair, leaf, lambda cases: Told(tuple(cases)), Times, lambda each: All(tuple(each)))


def _of_release(release: Release, relation: str, seldom: float, played: bool = False) -> Pair:
    if math.isinf(release.multiplier) or release.rounds == 0:
        return NOTHING
    known = release.participation
    farther = release.multiplier / multiplier_for(release, relation)  # than a unit that is zeroed
    far = 1 / multiplier_for(release, relation)
    noise: Noise = release.noise
    if release.integers is not None:
        noise, far = release.integers.moved(farther), 1.0
    if known is not None and known.loses_noise:  # how much noise is left is known, too
        far *= release.sampling.most_often  # of a single sum
        if isinstance(noise, IntegerNoise):
            round_ = _of_lost_integers(known, noise.moved(far), "zero_out", seldom)
        else:
            round_ = _of_draw(known, noise, far, "zero_out", played)
    else:
        once = _of_draw(release.sampling, noise, far, relation, played, seldom)
        round_ = times(once, release.local_steps)
        if known is not None:
            rate = known.joining if played else known.rate
            round_ = told([(rate, round_), (1 - rate, NOTHING)])
    return times(round_, release.rounds)


def _of_draw(
    drawn: Sampling,
    noise: Noise,
    far: float,
    relation: str,
    played: bool = False,
    seldom: float = 0.0,
) -> Pair:
    """One draw, where a unit that is drawn once moves the sum that far.

    *Zeroed.* A view that knows who is drawn, and how often, sees the pattern B beside the sum Y. B has the same law for
    both neighbours, as cohorts are drawn without looking at the data: so it is told, H_a((B, Y) || (B, Y')) = sum_b
    Pr[b] H_a(Y | b || Y' | b). A draw that holds the unit n times is moved n times as far. Units that are drawn less
    often than the likeliest have stochastically smaller n, and a cohort that is cut counts at the rate before the cut:
    the curve rises in n.

    *Else* who is drawn is secret, and the sampling's cases have their proofs beside them.
    """
    if isinstance(noise, IntegerNoise):
        noise = replace(noise, dimension=noise.dimension * drawn.own_noises)
        if drawn.loses_noise:
            return _of_lost_integers(drawn, noise, relation, seldom)
    if drawn.takes_all:
        return moved(noise, ((far * drawn.most_often, 1.0),))
    cases = drawn.as_played() if played else drawn.cases()
    if relation == "zero_out" and drawn.loses_noise:
        return told(
            (case.chance, _sometimes(case.rate, noise, far * case.distance)) for case in cases
        )
    if relation == "zero_out" and played and drawn.most_often == 1:
        return _sometimes(drawn.joining, noise, far)
    if relation == "zero_out":
        numbers = zip(*(law.tolist() for law in drawn.times_drawn()), strict=True)
        return told((p, _often(n, p, noise, far)) for n, p in numbers)
    if drawn.block_rounds is not None and relation == "add_or_remove":
        return _of_block(drawn.block_rounds, cases, noise, far)
    subset = None
    if drawn.is_without_replacement and not drawn.loses_noise:
        subset = drawn.most / drawn.population
    replaced = relation == "replace_one"

    def of_case(case: DrawCase) -> Pair:
        if case.rate == 0:
            return NOTHING
        law = [(case.distance, case.rate)]
        if case.times and math.isfinite(case.distance):
            law = [(n * case.distance, p) for n, p in case.times]
        moves = tuple((far * d, p) for d, p in law)
        return moved(noise, moves, replaced, subset if replaced else None)

    return told(((case.chance, of_case(case)) for case in cases), drawn.made_by)


def _often(n: float, chance: float, noise: Noise, far: float) -> Pair:
    """Of a unit that is drawn n times, which the view is told."""
    if n == 0:
        return NOTHING
    return SEEN if chance < _NEVER else moved(noise, ((n * far, 1.0),))


def _sometimes(rate: float, noise: Noise, far: float) -> Pair:
    """Of a unit that is drawn at the rate, or not, which the view is told."""
    if rate == 0:
        return NOTHING
    return told([(1 - rate, NOTHING), (rate, moved(noise, ((far, 1.0),)))])


def _of_block(rounds: int, cases: tuple[DrawCase, ...], noise: Noise, far: float) -> Block:
    """Where units are seen, `rate` is the share of the rounds in which they are, and the others move the sum by 1."""

    def of_case(case: DrawCase) -> tuple[float, float, int]:
        is_seen = math.isinf(case.distance)
        (moved_by, _), *_ = moved(noise, [(far * (1 if is_seen else case.distance), 1.0)]).law
        if math.isinf(moved_by):  # so far that nothing is hidden
            return case.chance, 1.0, rounds
        return case.chance, moved_by, round(case.rate * rounds) if is_seen else 0

    return Block(noise, rounds, tuple(map(of_case, cases)))


def _of_lost_integers(drawn: Sampling, noise: IntegerNoise, relation: str, seldom: float) -> Pair:
    """One round of integer noise of which shares are lost, given how many are left.

    Neighbouring numbers are taken together, at the fewest of them. Not so few as seldom are left count as seen.
    """
    by_distance = sorted((c for c in drawn.cases() if c.rate > 0), key=lambda c: -c.distance)
    shown = [(case.chance, NOTHING) for case in drawn.cases() if case.rate == 0]
    lost = 0.0
    while by_distance and lost + by_distance[0].chance <= seldom:
        lost += by_distance.pop(0).chance
    cases: list[tuple[float, Pair]] = [*shown, (lost, SEEN)]
    groups = min(len(by_distance), _GROUPS)
    for numbers in np.array_split(np.arange(len(by_distance)), groups) if groups else ():
        group = [by_distance[i] for i in numbers]
        chance, rate = sum(case.chance for case in group), max(case.rate for case in group)
        left = noise.with_part(group[0].distance ** -2)
        if left is None:
            cases.append((chance, SEEN))
        elif relation == "zero_out":
            cases.append((chance * (1 - rate), NOTHING))
            cases.append((chance * rate, moved(left, ((1.0, 1.0),))))
        elif rate == 1:
            cases.append((chance, moved(left, ((1.0, 1.0),))))
        else:
            cases.append((chance, moved(left, ((1.0, rate),), True, rate)))
    return told(cases)
