"""What each view sees of a run, read off its traced rounds.

Views: a third party sees every global model; a server every message; a server behind secure aggregation their sums.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedpriv.certification.client_releases import (
    Cohorts,
    Contributions,
    Draws,
    as_releases,
    by_each,
    drawable,
    of_clients,
    together,
)
from fedpriv.certification.marks import Mean, Released, Sum
from fedpriv.certification.trace import Stage
from fedpriv.certification.unit_kinds import ANY, UnitKind
from fedpriv.core.trees import dimension
from fedpriv.mechanisms.mechanisms import ALREADY_PRIVATE
from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.privacy import (
    VIEWS,
    Everyone,
    Release,
)
from fedpriv.privacy.release import Unit
from fedpriv.privacy.sampling import Accounting
from fedpriv.rounds.private_step import PrivateStep
from fedpriv.rounds.record_samplers import accounting_of
from fedpriv.rounds.scheduled_samplers import AnySampler


def pieces(stage: Stage, begin: int, end: int) -> list[tuple[int, int]]:
    """(number of rounds, the first of them) of each part of [begin, end) in which no mechanism changes."""
    cuts = {begin, end}
    for release in stage.releases:
        ends = np.cumsum([steps for steps, _ in release.step.mechanism.multipliers(end)])
        cuts |= {int(cut) for cut in ends if begin < cut < end}
    marks = sorted(cuts)
    return list(zip(np.diff(marks).tolist(), marks, strict=False)) or [(0, begin)]


def pieces_of_a_client(
    stage: Stage, accounting: Accounting, begin: int, end: int
) -> list[tuple[int, int]]:
    """As `pieces`; under a schedule, those in which a client's rounds cost most.

    Formal guarantees: an upper bound, attained by multipliers that fall or that rise.

    *Proof.* Of the rounds of a window one is a client's at most, and what it releases there is dominated by the release
    of the smallest multiplier among them, to which noise was added; also where the round is drawn at random.
    """
    parts = pieces(stage, begin, end)
    releases = _of_messages(stage) or stage.means
    if not accounting.has_turns or not releases or begin == end:
        return parts
    window = accounting.window
    if len(parts) == 1 or (stage.means and len(releases) > 1):  # means are releases of their own
        return [(first % window + steps, first) for steps, first in parts]
    power = 1 if releases[0].step.mechanism.noise == "laplace" else 2

    def of_all(t: int) -> float:
        return together([(each.multiplier(t), each.times) for each in releases], power)

    late = begin % window
    of_rounds = np.repeat([of_all(t) for _, t in parts], [steps for steps, _ in parts])
    windows = np.split(of_rounds, range(window - late, end - begin, window))
    most = accounting.rounds_of_a_unit(late + end - begin)
    harmful = Counter(sorted(float(each.min()) for each in windows)[:most])
    begins = {of_all(t): t for _, t in parts}
    return [(times * window, begins[multiplier]) for multiplier, times in harmful.items()]


def _of_messages(stage: Stage) -> list[Sum]:
    """The sums whose mechanism protects clients."""
    return [release for release in stage.sums if release.step.mechanism is not ALREADY_PRIVATE]


def bits_of_shares(stage: Stage) -> int:
    """What a client sends in a round, if the noise travels in shares: 32 bits for each real value that is perturbed."""
    sums = [
        each for each in _of_messages(stage) if each.step.fits_noise or each.step.adder == "own"
    ]
    means = (each for each in stage.means if each.step.adder == "own_summed")
    shared: list[Released] = [each for each in (*sums, *means) if each.step.is_noisy]
    return sum(each.times * _bits_of(each.step, dimension(each.like)) for each in shared)


def _bits_of(step: PrivateStep, d: int) -> int:
    return 32 * d if step.integer_sum(d) is None else step.wire(d).bits()


def too_narrow(stage: Stage) -> str:
    """Why no shares of the noise travel, if the uplink that the round reports has no room for them."""
    bits, reported = bits_of_shares(stage), stage.uplink
    if reported is None or reported >= bits:
        return ""
    calls = len({each.call for each in stage.releases})
    remedy = "; return the metrics of the last call of the cohort, which count every call before"
    return (
        f"the uplink that the round reports, {reported:.0f} bits, has no room for a share of it, {bits} bits: 32 for "
        f"each value{remedy if calls > 1 else ''}"
    )


def stage_releases(
    stage: Stage, sampler: AnySampler, unit: Unit, steps: int, first: int, kind: UnitKind = ANY
) -> list[Release]:
    """What each view sees of rounds that are alike.

    Args:
      kind: of the unit, as `TracedRound.releases`.

    Raises:
      ValueError: units, samplings or kinds of noise that do not go together, or a multiplier computed in the round.
    """
    cohorts = Cohorts.of(sampler.accounting, steps, kind.group)
    sums = _of_messages(stage)
    weight, clip_scale, delay = stage.answer
    by_group = delay is None and not sampler.accounting.counts_equally
    if (weight is not None or clip_scale is not None) and not by_group:
        _check_shares(sums)
        cohorts = cohorts._replace(are_of_one_size=False)
    if sums and stage.means and any(release.multiplier(first) > 0 for release in sums):
        raise ValueError(
            f"round: it protects clients ({sums[0].line}) and their records ({stage.means[0].line}); protect one unit"
        )
    if sums:
        return of_clients(sums, cohorts, unit, first, stage.remembers, too_narrow(stage))
    if stage.means:
        return _of_records(stage, cohorts, unit, first, kind)
    return [Release(view, unit, math.inf, cohorts.drawn, cohorts.rounds) for view in VIEWS]


def _check_shares(sums: Sequence[Sum]) -> None:
    """Raises ValueError: members' own noise is weighted beside the weights of their groups.

    How loud a sum is then depends on who is in it, of which no accounting is known.
    """
    for each in sums:
        if each.step.adder == "own" and each.step.is_noisy:
            raise ValueError(
                "sampler: its draws weigh answers, as by their delays, and each carries noise of its own "
                f'({each.line}); leave the weights out, or let members add shares of the noise (adder="shares")'
            )


def _of_records(
    stage: Stage, cohorts: Cohorts, unit: Unit, first: int, kind: UnitKind
) -> list[Release]:
    """The K noisy means of each round that a client takes part in, of which every view is taken to see each.

    The noise of others hides nothing of the steps before the last, which are seen through later ones, and what clients
    keep carries it over rounds. Only where a single noisy mean shows in the cohort's sum `alone` has it the noise of
    all its members towards a third party, or a server that sees sums, if all divide by the same number and none
    vanishes. No sampling of records hides a whole client.
    """
    groups: dict[Any, list[Mean]] = {}
    for mean in stage.means:
        public = mean.step.sampling.public_sizes is not None
        drawn = mean.step.sampling if public else mean.step.sampling.accounting
        alike = drawn, id(mean.step.mechanism), mean.step.adder
        groups.setdefault(alike, []).append(mean)
    if len(groups) > 1 and cohorts.drawn.rate < 1:
        raise ValueError(
            f"round: private means of two kinds in one round ({stage.means[0].line}, {stage.means[-1].line}); with "
            "sampled clients give one sampler of records and one mechanism"
        )
    releases: list[Release] = []
    clients, narrow = cohorts.drawn.with_whole_noise(), too_narrow(stage)
    for means in groups.values():
        records = accounting_of(means[0].step.sampling, kind.size, kind.group)
        used: Any = means[0].step.mechanism
        by_client = unit == "client"
        most = max(mean.step.sampling.most for mean in means)
        own = means[0].multiplier(first) / (most if by_client else 1)
        shared = (
            means[0].step.adder == "own_summed"
            and not narrow
            and cohorts.are_of_one_size
            and clients.dropout == 0
            and all(mean.step.sampling.public_sizes is None for mean in means)  # equal divisors
            and not by_client
            and len(kind.held)
            < 2  # who holds records at several clients moves the same sum by all of them
            and used.noise != "laplace"
        )
        integers = _integers_of(means, shared, narrow)
        drawn = Everyone(records.population) if by_client else records
        draws = Draws(drawn, clients, sum(mean.times for mean in means))
        reason, noise = "" if own > 0 else used.reason, used.noise
        sent = Contributions(own, noise, draws, cohorts.most, shared, reason, integers)
        releases += as_releases(by_each(sent), unit, cohorts, noise, drawable(means[:1], first))
    return releases


def _integers_of(means: Sequence[Mean], are_summed: bool, narrow: str) -> IntegerNoise | None:
    """The law of the noise of a sum of integers over all records of a cohort; None: it is real, or there is none.

    Raises:
      ValueError: the noises of members do not count together, or such sums have several laws.
    """
    sums = {mean.step.integer_sum(dimension(mean.like)) for mean in means}
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
