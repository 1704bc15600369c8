"""Rows of the table of views that are not plain: noise of one's own, or of the server, integers, weights, memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fedpriv.core.complaints import require
from fedpriv.core.trees import dimension
from fedpriv.mechanisms.mechanisms import Mechanism, joint
from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.privacy.drawn import Drawn, Repeated
from fedpriv.privacy.noisy_integers import NoisyIntegers, noise_of
from fedpriv.privacy.rows import Row
from fedpriv.privacy.rows import of_unit_norm as of_unit_norm_of_one
from fedpriv.privacy.sampling.asked import complete, known_by_noise
from fedpriv.privacy.sampling.kinds_of_units import Who, changed
from fedpriv.privacy.sampling.turns import Accounting
from fedpriv.proof.cases import Neighbour, Noisy, Why
from fedpriv.proof.drawn import NOT_EMPTIED
from fedpriv.proof.draws import Sampling
from fedpriv.proof.marks import Released, Sum
from fedpriv.proof.samplings import Everyone
from fedpriv.proof.seen import ClippedUnit, View
from fedpriv.proof.views import by_shares, kind_of_noise, reason_of, together, unlike
from fedpriv.rounds.private_step import features_of


class Cohorts(NamedTuple):
    """The cohorts of rounds that are alike.

    Attributes:
      drawn: how each is drawn; where a schedule decides who takes part, among those whose turn it is; or a block.
      rounds: how many there are, or how many are a client's turn, or blocks.
      most: clients of the largest.
      are_of_one_size: whether all have so many different clients, `most`, that count 1, before some may vanish.
      schedule: which rounds are a client's, in words, where a schedule decides.
      weight: times how far a unit moves the sum.
      hold_everyone: whether all clients, of all groups, are in every cohort.
    """

    drawn: Sampling
    rounds: int
    most: int
    are_of_one_size: bool = False
    schedule: str = ""
    weight: float = 1.0
    hold_everyone: bool = False

    @classmethod
    def of(cls, accounting: Accounting, rounds: int, group: str = "") -> Cohorts:
        """Those of so many rounds, of which this group's draws hold the unit."""
        own, weight = accounting.of_group(group)
        turns, words = rounds, ""
        if own.turns is not None:
            turns, words = own.turns.of(rounds), own.turns.in_words(rounds)
        of_all = accounting.of_a_round
        one_size = of_all.full and of_all.repeats == 1 and accounting.turns is None
        one_size &= accounting.counts_equally
        whole = of_all.everyone and accounting.turns is None
        return cls(own.of_a_round, turns, accounting.most, one_size, words, weight, whole)

    def repeated(self, steps: int = 1, among: Sampling | None = None) -> Repeated:
        """Releases of all rounds."""
        return Repeated(self.rounds, steps, among, self.schedule)


class Sent(NamedTuple):
    """What a cohort sends, all together one release: messages whose sums are perturbed, or private means of records.

    Attributes:
      unit: that is clipped.
      whole: the noise of all members in their sum; of noise that each adds itself, of one.
      drawn: the draws of the unit, as a view of sums is taken to know them.
      told: as a server that sees messages knows them.
      repeated: how often.
      most: clients of the largest cohort.
      are_summed: whether all cohorts are of that size, and the noises of all members add up in the sum.
      reason: why nothing is hidden, where nothing is.
      used: the mechanism for audits, where there is one.
      releases: the marks of what is sent.
    """

    unit: ClippedUnit
    whole: Noisy
    drawn: Drawn
    told: Drawn
    repeated: Repeated
    most: int
    are_summed: bool
    reason: str
    used: Mechanism | None
    releases: tuple[Released, ...] = ()

    def row(self, view: View, noisy: Noisy, adder: Any, reason: str = "") -> Row:
        """Of the table."""
        drawn = self.told if view == "server" else self.drawn
        if view != "third_party" and self.unit == "client":
            drawn = drawn._replace(known=True)
        of_records = self.unit == "record"
        why = reason or self.reason
        row = Row(view, self.unit, noisy, adder, drawn, self.repeated, of_records, why, self.used)
        return replace(row, releases=self.releases)


def by_each(sent: Sent) -> list[Row]:
    """What views see where each member adds all of the noise to its own message, or to each of its means.

    Where they are summed, as those of integers always are, the noises of all count together in the sum; else one's own
    alone.
    """
    own, in_sum, adder = sent.whole, sent.whole, "own"
    if isinstance(own, NoisyIntegers):
        own = own.share(sent.most)
    if sent.are_summed:
        in_sum, adder = sent.whole, "own_summed"
        if not isinstance(in_sum, NoisyIntegers):
            in_sum = in_sum.moved(1 / math.sqrt(sent.most))
    return [
        sent.row("third_party", in_sum, adder),
        sent.row("server", own, "own"),
        sent.row("server_secagg", in_sum, adder),
    ]


def by_server(sent: Sent, when: str) -> list[Row]:
    """Messages carry no noise, which the server adds: nothing hides them from it."""
    why = f"the server adds the noise, {when}"
    return [
        sent.row("third_party", sent.whole, "server"),
        sent.row("server", sent.whole.bare, "server", why),
        sent.row("server_secagg", sent.whole.bare, "server", why),
    ]


def of_clients(
    sums: Sequence[Sum],
    cohorts: Cohorts,
    unit: ClippedUnit,
    first: int,
    remembers: bool,
    narrow: str,
) -> list[Row]:
    """Perturbed sums of the messages of one cohort, all together one release.

    A unit of another weight than 1 moves them so many times as far. Noise of its own is weighted along, so there the
    weight does not count.

    Args:
      first: the first of the rounds, which are alike.
      remembers: whether clients keep something.
      narrow: why messages that the round reports have no room for shares of the noise, if so; then the server adds it.
    """
    own, gaussian = sums[0].step.adder == "own", _all_gaussian(sums)
    uncoded = not (narrow or any(features_of(each.step).codec.lossy for each in sums))
    by, lost = _who_stays(cohorts.drawn, sums, own and gaussian and uncoded)
    kind = _kind_of_noise(sums, first, cohorts.drawn.lossy)
    power = 2 if kind == "gaussian" else 1
    multiplier = together([(each.multiplier(first), each.times) for each in sums], power)
    multiplier /= 1.0 if own else cohorts.weight
    far = 1 / multiplier if multiplier > 0 else math.inf
    integers = _integers(sums)
    if narrow and multiplier > 0 and lost and not own:
        raise ValueError(
            f"uplink: the server adds the noise, as {narrow}; but members who vanish take theirs along "
            f'({sums[0].line}); leave the uplink as cohort.sum gives it, or give fp.dropping(..., noise="whole")'
        )
    drawn, among = _as_known(by, lost, remembers)
    if own and multiplier > 0 and among is None and not drawn.known:
        drawn, among = _of_own_noise(drawn, sums)
    summed = kind == "gaussian" and uncoded and cohorts.are_of_one_size
    sent = Sent(
        unit,
        noise_of(kind, far, integers),
        drawn,
        drawn._replace(who=changed(drawn.who, lost=False)),
        cohorts.repeated(among=among),
        cohorts.most,
        summed and (by.vanish == 0 or lost),
        reason_of(sums, first),
        drawable(sums, first),
        tuple(sums),
    )
    if own and multiplier > 0:
        return by_each(sent)
    if (when := _why_the_server(sums, narrow)) and multiplier > 0:
        return by_server(sent, when)
    return by_shares(sent._replace(told=sent.told._replace(apart=True)))


def _all_gaussian(sums: Sequence[Sum]) -> bool:
    return all(each.step.mechanism.noise == "gaussian" for each in sums)


def _why_the_server(sums: Sequence[Sum], narrow: str) -> str:
    """When it adds the noise, in words; empty where messages carry it."""
    if any(features_of(each.step).codec.lossy for each in sums):
        return "after it has decoded messages"
    if any(not features_of(each.step).fits_noise for each in sums):
        return "after it has divided by the clients' weights"
    return f"as {narrow}" if narrow else ""


def _who_stays(drawn: Sampling, sums: Sequence[Sum], takes_along: bool) -> tuple[Sampling, bool]:
    """(How members are drawn, whether those who vanish take shares of the noise of these sums along).

    What the server adds is whole. Noise of their own goes with those who vanish; where none but its own is counted for
    a member, a subset of any size hides no less than one that is complete.

    Args:
      takes_along: whether members who vanish take noise along that is all their own, and counts in the sum.
    """
    if sums[0].step.adder != "own":
        return drawn, drawn.lossy and not any(each.step.adder == "server" for each in sums)
    return (drawn, drawn.vanish > 0) if takes_along else (complete(drawn), False)


def _as_known(by: Sampling, lost: bool, remembers: bool) -> tuple[Drawn, Sampling | None]:
    """(The draws of a client, among whom it is known to be).

    Clients that keep something remember when they were drawn, and their later messages may show it: where that is not
    proved to tell nothing, who takes part is taken to be known. So it is where everyone is drawn and shares of the
    noise are lost: how many stay shows, and a unit zeroed out among those who are known to stay costs less than one
    replaced.
    """
    closed = (("emptied", NOT_EMPTIED),)
    drawn = Drawn(by, Who(remembers=remembers, lost=lost), closed=closed)  # type: ignore[arg-type]
    if lost and by.most == by.population:
        return drawn._replace(known=True), None
    secret: tuple[Neighbour, ...] = ("removed", "replaced")
    if not remembers or not by.secret:
        return drawn, None
    if not all(isinstance(by.cases(each, drawn.who), Why) for each in secret):
        return drawn, None
    remedy = (
        "one draw may hold a client several times, and it remembers; say by `cases` what that costs"
    )
    require(by.repeats == 1, "sampling", by, remedy)  # who is known counts once
    return _known_among(drawn)


def _of_own_noise(drawn: Drawn, sums: Sequence[Sum]) -> tuple[Drawn, Sampling | None]:
    """Where the sum tells who takes part, the view is taken to know it.

    A client that is drawn twice sends one message, and the same again.
    """
    return _known_among(drawn) if any(tells_who(drawn.by, s) for s in sums) else (drawn, None)


def tells_who(drawn: Sampling, own: Sum) -> bool:
    """Whether a sum of messages that carry noise of their own tells who takes part.

    The noises of all tell how many they are, where that varies. Messages that are coded after the noise depend on the
    client's public key, so that those of two members differ by more than the noise hides.
    """
    coded = features_of(own.step).codec.lossy and drawn.secret
    return coded or known_by_noise(drawn)


def _known_among(drawn: Drawn) -> tuple[Drawn, Sampling | None]:
    if drawn.who.lost:
        return drawn._replace(known=True), None
    return drawn._replace(by=Everyone(drawn.by.population)), drawn.by


def _kind_of_noise(sums: Sequence[Sum], first: int, shares_are_lost: bool) -> str:
    """Of all sums of a cohort.

    Raises:
      ValueError: they differ in it, or in who adds it; or shares of one are lost, and the server adds that of another.
    """
    noisy = [each for each in sums if each.multiplier(first) > 0]
    adding = {each.step.adder == "server" for each in noisy} if shares_are_lost else set()
    own = {each.step.adder == "own" for each in sums}
    if len(own) > 1 or len(adding) > 1:
        raise ValueError(unlike(sums))
    return kind_of_noise(sums, first)


def _integers(sums: Sequence[Sum]) -> IntegerNoise | None:
    """The law of the noise of all sums of integers of one cohort; None: noise is real, or there is none.

    Raises:
      ValueError: others have real noise.
    """
    each = [features_of(s.step).integer_sum(dimension(s.like)) for s in sums]
    known = [one for one in each if one is not None]
    if not known:
        return None
    if len(known) < len(each):
        raise ValueError(unlike(sums))
    if not all(one.noise_multiplier > 0 for one in known):
        return None
    laws = [one.noise_of_all for one, s in zip(known, sums, strict=True) for _ in range(s.times)]
    return IntegerNoise.together(laws)


def drawable(releases: Sequence[Released], first: int) -> Mechanism | None:
    """The mechanism of a release that audits draw from, where there is one."""
    used = releases[0].step.mechanism.in_round(first) if len(releases) == 1 else None
    return of_unit_norm(used) if isinstance(used, Mechanism) else None


def of_unit_norm(used: Mechanism) -> Mechanism:
    """The mechanism of a release, with a clip norm of 1 where it is computed in the round."""
    return joint(*map(of_unit_norm, used.parts)) if used.parts else of_unit_norm_of_one(used)
