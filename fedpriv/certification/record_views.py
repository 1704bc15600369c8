"""What each view sees of records: of the private means that clients take of them, or that are taken of a cohort."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedpriv.certification.unit_kinds import UnitKind
from fedpriv.certification.views import Cohorts, Sent, by_each, drawable
from fedpriv.core.trees import dimension
from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.privacy.drawn import Drawn
from fedpriv.privacy.noisy_integers import noise_of
from fedpriv.privacy.rows import Row
from fedpriv.privacy.sampling import Everyone, Sampling, Who, Why
from fedpriv.proof.drawn import NOT_EMPTIED
from fedpriv.proof.seen import ClippedUnit
from fedpriv.rounds.private_step import features_of
from fedpriv.rounds.record_marks import Mean
from fedpriv.rounds.record_samplers import accounting_of

_NOT_REMOVED = Why("a client stays without a record, whose place is empty")
_PUBLIC = Why("how many records a client holds is public, so that one is replaced")


def of_records(
    means: Sequence[Mean],
    cohorts: Cohorts,
    unit: ClippedUnit,
    first: int,
    kind: UnitKind,
    narrow: str,
) -> list[Row]:
    """The K noisy means of each round that a client takes part in, of which every view is taken to see each.

    The noise of others hides nothing of the steps before the last, which are seen through later ones, and what clients
    keep carries it over rounds. Only where a single noisy mean shows in the cohort's sum `alone` has it the noise of
    all its members towards a third party, or a server that sees sums, if all divide by the same number and none
    vanishes. No sampling of records hides a whole client.

    Args:
      first: the first of the rounds, which are alike.
      narrow: as `views.of_clients`.

    Raises:
      ValueError: integer noise that does not count together.
    """
    of_kinds = [_of_kind(each, cohorts, unit, first, kind, narrow) for each in _alike(means)]
    if cohorts.drawn.inclusion == 1:
        return [row for rows in of_kinds for row in rows]
    views = zip(
        *of_kinds, strict=True
    )  # of one draw of clients: a view sees all of them, or nothing
    return [replace(row, beside=tuple(others)) for row, *others in views]


def _alike(means: Sequence[Mean]) -> list[list[Mean]]:
    """By how records are drawn, and what perturbs them."""
    found: dict[Any, list[Mean]] = {}
    for mean in means:
        public = mean.step.sampling.public_sizes is not None
        drawn = mean.step.sampling if public else mean.step.sampling.accounting
        kind = drawn, id(mean.step.mechanism), mean.step.adder
        found.setdefault(kind, []).append(mean)
    return list(found.values())


def _of_kind(
    means: Sequence[Mean],
    cohorts: Cohorts,
    unit: ClippedUnit,
    first: int,
    kind: UnitKind,
    narrow: str,
) -> list[Row]:
    used: Any = means[0].step.mechanism
    most = max(mean.step.sampling.most for mean in means)
    multiplier = means[0].multiplier(first) / (most if unit == "client" else 1)
    far = 1 / multiplier if multiplier > 0 else math.inf
    summed = _are_summed(means, cohorts, unit, kind, narrow)
    integers = _integers_of(means, summed, narrow)
    drawn = _draws(means[0].step.sampling, unit, kind)
    sent = Sent(
        unit,
        noise_of(used.noise, far, integers),
        drawn,
        drawn,
        cohorts.repeated(sum(mean.times for mean in means), cohorts.drawn),
        cohorts.most,
        summed,
        "" if multiplier > 0 else used.reason,
        drawable(means[:1], first),
        tuple(means),
    )
    return by_each(sent)


def _draws(records: Any, unit: ClippedUnit, kind: UnitKind) -> Drawn:
    """Of one record of this kind of unit, or of all of a client."""
    by: Sampling = accounting_of(records, kind.size, kind.group)
    if unit == "client":
        return Drawn(Everyone(by.population), closed=(("emptied", NOT_EMPTIED),))
    if records.public_sizes is None:
        return Drawn(by, closed=(("removed", _NOT_REMOVED),))
    closed = (("removed", _PUBLIC), ("emptied", _PUBLIC))
    return Drawn(by, Who(stays=True), closed=closed)  # type: ignore[arg-type]


def _are_summed(
    means: Sequence[Mean], cohorts: Cohorts, unit: ClippedUnit, kind: UnitKind, narrow: str
) -> bool:
    """Whether the noises of all members count together, in one sum of a cohort."""
    used: Any = means[0].step.mechanism
    one_sum = means[0].step.adder == "own_summed" and not narrow and used.noise != "laplace"
    one_size = cohorts.are_of_one_size and cohorts.drawn.vanish == 0
    one_divisor = all(mean.step.sampling.public_sizes is None for mean in means)
    one_client = len(kind.held) < 2 or (cohorts.hold_everyone and _are_drawn_alone(means))
    return one_sum and one_size and one_divisor and unit == "record" and one_client


def _are_drawn_alone(means: Sequence[Mean]) -> bool:
    """Whether records are drawn independently, so that those of one person at several clients are, too."""
    each = [mean.step.sampling.accounting for mean in means]
    return all(by.independent and by.attained for by in each)


def _integers_of(means: Sequence[Mean], are_summed: bool, narrow: str) -> IntegerNoise | None:
    """The law of the noise of a sum of integers over all records of a cohort; None: it is real, or there is none.

    Raises:
      ValueError: the noises of members do not count together, or such sums have several laws.
    """
    sums = {features_of(mean.step).integer_sum(dimension(mean.like)) for mean in means}
    if sums == {None}:
        return None
    line = means[0].line
    if narrow:
        raise ValueError(f"uplink: {narrow}; leave it as cohort.private_mean gives it")
    if not are_summed:
        raise ValueError(
            f"mechanism: integer shares of records' noise ({line}) count together in cohorts of one size alone, for a "
            "record that one client holds; give fp.gaussian"
        )
    if len(sums) > 1:
        raise ValueError(
            f"round: private means of several sizes as integers ({line}, {means[-1].line}) are not certified "
            "together; take one of all parameters"
        )
    (of_cohort,) = sums
    assert of_cohort is not None
    return of_cohort.noise_of_all if of_cohort.noise_multiplier > 0 else None
