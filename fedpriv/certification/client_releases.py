"""What each view sees of the clients in a round: a table, by who adds the noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax

from fedpriv.certification.marks import Released, Sum
from fedpriv.core.arguments import require
from fedpriv.core.trees import dimension
from fedpriv.mechanisms.mechanisms import Mechanism, joint
from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.privacy import Everyone, Release, Sampling
from fedpriv.privacy.release import Adder, NoiseKind, Unit, View
from fedpriv.privacy.sampling import Accounting


class Cohorts(NamedTuple):
    """The cohorts of rounds that are alike.

    Attributes:
      drawn: how each is drawn; where a schedule decides who takes part, among those whose turn it is; or a block.
      rounds: how many there are, or how many are a client's turn, or blocks.
      most: clients of the largest.
      are_of_one_size: whether all have so many different clients, `most`, that count 1, before some may vanish.
      schedule: which rounds are a client's, in words, where a schedule decides.
      weight: times how far a unit moves the sum.
    """

    drawn: Sampling
    rounds: int
    most: int
    are_of_one_size: bool = False
    schedule: str = ""
    weight: float = 1.0

    @classmethod
    def of(cls, accounting: Accounting, rounds: int, group: str = "") -> Cohorts:
        """Those of so many rounds, of which this group's draws hold the unit."""
        own = accounting.of_group(group)
        turns, words = own.rounds_of_a_unit(rounds), own.in_words(rounds)
        if own.has_turns:  # also where they are not said
            words = words or f"turns by {own!r}"
        of_all = accounting.of_a_round
        one_size = of_all.has_one_size and of_all.most_often == 1 and not accounting.has_turns
        one_size &= accounting.counts_equally
        weight = accounting.weight_of(group)
        return cls(own.of_a_round, turns, accounting.most, one_size, words, weight)


class Draws(NamedTuple):
    """The draws of a round, as a view is taken to know them: as the fields of `Release`."""

    sampling: Sampling
    participation: Sampling | None = None
    local_steps: int = 1

    @classmethod
    def known(cls, drawn: Sampling) -> Draws:
        """Those of which the view is taken to know who takes part."""
        return cls(Everyone(drawn.population), drawn)

    @property
    def with_whole_noise(self) -> Draws:
        """The same, where noise that others add does not count."""
        known = self.participation
        return self._replace(
            sampling=self.sampling.with_whole_noise(),
            participation=None if known is None else known.with_whole_noise(),
        )


class Seen(NamedTuple):
    """What a view sees: a row of the table. All are fields of `Release`."""

    multiplier: float
    adder: Adder
    draws: Draws
    reason: str = ""
    integers: IntegerNoise | None = None


class Contributions(NamedTuple):
    """What a cohort sends, all together one release: messages whose sums are perturbed, or private means of records.

    Attributes:
      multiplier: that of their sums, with the noise of all; of noise that each adds itself, of one.
      noise: its kind.
      draws: of the cohort, and of records.
      most: clients of the largest cohort.
      are_summed: whether all cohorts are of that size, and the noises of all members add up in the sum.
      reason: why nothing is hidden, where nothing is.
      integers: of integer noise, its law.
    """

    multiplier: float
    noise: NoiseKind
    draws: Draws
    most: int
    are_summed: bool
    reason: str
    integers: IntegerNoise | None = None


def _by_shares(sent: Contributions) -> dict[View, Seen]:
    """The s members of a cohort each add 1 / s of the noise's variance.

    A server that sees their messages in clear sees each with its own share only. Towards it a member is hidden by that
    share, whether others vanish or not; making up for lost shares only adds to it.

    A client drawn with replacement fills n places of a round: it moves the sum n times as far, and the server sees n
    messages, each with a share of its own: as many releases as the round has draws, each of which may hold the client.
    """
    m, share, why = sent.multiplier, sent.multiplier / math.sqrt(sent.most), sent.reason
    whole = sent.integers
    of_one = whole and whole.share
    if sent.noise == "laplace" and m > 0:
        share, why = 0.0, "a client's share of Laplace noise is not Laplace"
    one, times = sent.draws.sampling.one_message()
    one_by_one = sent.draws._replace(sampling=one, local_steps=times)
    return {
        "third_party": Seen(m, "shares", sent.draws, sent.reason, whole),
        "server": Seen(share, "own", one_by_one.with_whole_noise, why, of_one),
        "server_secagg": Seen(m, "shares", sent.draws, sent.reason, whole),
    }


def by_each(sent: Contributions) -> dict[View, Seen]:
    """What views see where each member adds all of the noise to its own message, or to each of its means.

    Where they are summed, as those of integers always are, the noises of all count together in the sum; else one's own
    alone.
    """
    m, draws, why, whole = sent.multiplier, sent.draws, sent.reason, sent.integers
    of_one = whole and whole.share
    in_sum = Seen(m, "own", draws, why)
    if sent.are_summed:
        in_sum = Seen(m * math.sqrt(sent.most), "own_summed", draws, why, whole)
    return {
        "third_party": in_sum,
        "server": Seen(m, "own", draws.with_whole_noise, why, of_one),
        "server_secagg": in_sum,
    }


def _by_server(sent: Contributions, when: str) -> dict[View, Seen]:
    """Messages carry no noise, which the server adds: nothing hides them from it."""
    why = f"the server adds the noise, {when}"
    return {
        "third_party": Seen(sent.multiplier, "server", sent.draws, sent.reason, sent.integers),
        "server": Seen(0.0, "server", sent.draws.with_whole_noise, why),
        "server_secagg": Seen(0.0, "server", sent.draws, why),
    }


def of_clients(
    sums: Sequence[Sum], cohorts: Cohorts, unit: Unit, first: int, remembers: bool, narrow: str
) -> list[Release]:
    """Perturbed sums of the messages of one cohort, all together one release.

    A unit of another weight than 1 moves them so many times as far. Noise of its own is weighted along, so there the
    weight does not count.

    Args:
      first: the first of the rounds, which are alike.
      remembers: whether clients keep something.
      narrow: why messages that the round reports have no room for shares of the noise, if so; then the server adds it.
    """
    own, stays = _adds_its_own(sums), _who_stays(cohorts.drawn, sums, narrow)
    noise = _kind_of_noise(sums, first, cohorts.drawn.loses_noise)
    power = 2 if noise == "gaussian" else 1
    multiplier = together([(each.multiplier(first), each.times) for each in sums], power)
    multiplier /= 1.0 if own else cohorts.weight
    lossy = any(each.step.codec.lossy for each in sums)
    all_there = cohorts.are_of_one_size and (stays.dropout == 0 or stays.loses_noise)
    add_up = noise == "gaussian" and all_there and not (lossy or narrow)
    why, integers = _reason(sums, first), _integers(sums)
    draws = _draws(stays, remembers)
    sent = Contributions(multiplier, noise, draws, cohorts.most, add_up, why, integers)
    if narrow and multiplier > 0 and stays.loses_noise and not own:
        raise ValueError(
            f"uplink: the server adds the noise, as {narrow}; but members who vanish take theirs along "
            f'({sums[0].line}); leave the uplink as cohort.sum gives it, or give fp.dropping(..., noise="whole")'
        )
    if own and multiplier > 0:
        seen = by_each(sent._replace(draws=_draws_of_own_noise(sent.draws)))
    elif (when := _why_the_server(sums, narrow)) and multiplier > 0:
        seen = _by_server(sent, when)
    else:
        seen = _by_shares(sent)
    return as_releases(seen, unit, cohorts, noise, drawable(sums, first))


def as_releases(
    seen: dict[View, Seen], unit: Unit, cohorts: Cohorts, noise: NoiseKind, used: Mechanism | None
) -> list[Release]:
    """A `Release` for each row of the table of what views see.

    Args:
      used: the mechanism for audits, where there is one.
    """
    common: dict[str, Any] = {"rounds": cohorts.rounds, "schedule": cohorts.schedule}
    common |= {"noise": noise, "mechanism": used}
    return [
        Release(
            view,
            unit,
            row.multiplier,
            adder=row.adder,
            reason=row.reason,
            integers=row.integers,
            **row.draws._asdict(),
            **common,
        )
        for view, row in seen.items()
    ]


def _why_the_server(sums: Sequence[Sum], narrow: str) -> str:
    """When it adds the noise, in words; empty where messages carry it."""
    if any(each.step.codec.lossy for each in sums):
        return "after it has decoded messages"
    if any(not each.step.fits_noise for each in sums):
        return "after it has divided by the clients' weights"
    return f"as {narrow}" if narrow else ""


def _draws(drawn: Sampling, remembers: bool) -> Draws:
    """As they are counted.

    Clients that keep something remember when they were drawn, and their later messages may show it, see
    `Sampling.remembered`.

    So it is where everyone is drawn and shares of the noise are lost: how many stay shows, and a unit zeroed out among
    those who are known to stay costs less than one replaced.
    """
    if drawn.loses_noise and drawn.most == drawn.population:
        return Draws.known(drawn)
    secret = drawn.remembered() if remembers else drawn
    if secret is not None:
        return Draws(secret)
    remedy = "one draw may hold a client several times, and it remembers; say of `remembered` what that costs"
    require(drawn.most_often == 1, "sampling", drawn, remedy)  # who is known counts once
    return Draws.known(drawn)


def _draws_of_own_noise(draws: Draws) -> Draws:
    """A cohort of another size than one is as if the view knew who takes part.

    A client that is drawn twice sends one message, and the same again.
    """
    varies = draws.sampling.is_known_with_own_noise
    return Draws.known(draws.sampling) if varies else draws


def _adds_its_own(sums: Sequence[Sum]) -> bool:
    return sums[0].step.adder == "own"


def _who_stays(drawn: Sampling, sums: Sequence[Sum], narrow: str) -> Sampling:
    """How members vanish, for those who add the noise of these sums.

    What the server adds is whole. With whole noise, each of everyone stays on its own: a Poisson cohort. Noise of their
    own goes with those who vanish; where none but its own is counted for a member, a subset of any size hides no less
    than one that is complete.
    """
    if not _adds_its_own(sums):
        if drawn.loses_noise and not any(each.step.adder == "server" for each in sums):
            return drawn
        return drawn.with_whole_noise().independent()
    gaussian = all(each.step.mechanism.noise == "gaussian" for each in sums)
    if gaussian and not (narrow or any(each.step.codec.lossy for each in sums)):
        return drawn.with_own_noise()
    return drawn.if_all_stay()


def _kind_of_noise(sums: Sequence[Sum], first: int, shares_are_lost: bool) -> NoiseKind:
    """Of all sums of a cohort.

    Raises:
      ValueError: they differ in it, or in who adds it; or shares of one are lost, and the server adds that of another.
    """
    noisy = [each for each in sums if each.multiplier(first) > 0]
    kinds = {each.step.mechanism.noise for each in noisy}
    adding = {each.step.adder == "server" for each in noisy} if shares_are_lost else set()
    own = {each.step.adder == "own" for each in sums}
    if any(len(kind) > 1 for kind in (own, kinds, adding)):
        raise ValueError(
            f"round: sums of one cohort differ in their kind of noise, or in who adds it ({sums[0].line}, "
            f"{sums[-1].line}); make them alike"
        )
    return kinds.pop() if kinds else "gaussian"  # type: ignore[return-value]


def together(multipliers: Iterable[tuple[float, int]], power: int) -> float:
    """One multiplier of releases of one cohort, each so many times: sensitivities add up in l2 (power 2), or l1."""
    each = [(m, times) for m, times in multipliers if times]
    if any(m == 0 for m, _ in each):
        return 0.0
    if len(each) == 1 and each[0][1] == 1:
        return each[0][0]
    return float(sum(times * m**-power for m, times in each) ** (-1 / power))


def _integers(sums: Sequence[Sum]) -> IntegerNoise | None:
    """The law of the noise of a sum of integers; None: it is real, or there is none.

    Raises:
      ValueError: several such sums of one cohort.
    """
    each = [s.step.integer_sum(dimension(s.like)) for s in sums]
    if all(one is None for one in each):
        return None
    if len(sums) > 1 or sums[0].times > 1:
        raise ValueError(
            f"round: several sums of integers of one cohort ({sums[0].line}) are not certified together; send all in "
            "one message"
        )
    (of_cohort,) = each
    assert of_cohort is not None
    return of_cohort.noise_of_all if of_cohort.noise_multiplier > 0 else None


def _reason(sums: Sequence[Sum], first: int) -> str:
    """Why nothing is hidden, if nothing is."""
    bare = [each.step.mechanism.reason for each in sums if each.multiplier(first) == 0]
    return "; ".join(dict.fromkeys(bare))


def drawable(releases: Sequence[Released], first: int) -> Mechanism | None:
    """The mechanism of a release that audits draw from, where there is one."""
    used = releases[0].step.mechanism.in_round(first) if len(releases) == 1 else None
    return of_unit_norm(used) if isinstance(used, Mechanism) else None


def of_unit_norm(used: Mechanism) -> Mechanism:
    """The mechanism of a release, with a clip norm of 1 where it is computed in the round."""
    if used.parts:
        return joint(*map(of_unit_norm, used.parts))
    traced = any(isinstance(c, jax.core.Tracer) for c in jax.tree.leaves(used.clip_norm))
    return used.at(1.0, used.noise_multiplier) if traced and used.at else used
