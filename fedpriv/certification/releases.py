"""What each view sees of a run, read off its traced rounds.

Views: a third party sees every global model; a server every message; a server behind secure aggregation their sums.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fedpriv.certification.marks import Mean, Sum, is_noisy
from fedpriv.certification.trace import Stage
from fedpriv.core.provenance import constructed
from fedpriv.core.trees import dimension
from fedpriv.mechanisms.correlated import is_correlated
from fedpriv.mechanisms.mechanisms import ALREADY_PRIVATE, Mechanism, joint
from fedpriv.mechanisms.per_example import MedianClipping, RecordGradients, RecordMechanism
from fedpriv.mechanisms.schedules import Dynamic
from fedpriv.privacy import (
    VIEWS,
    Everyone,
    Release,
    Sampling,
)
from fedpriv.privacy.release import NoiseKind, Unit, View
from fedpriv.privacy.sampling import Accounting
from fedpriv.rounds.record_samplers import accounting_of
from fedpriv.rounds.scheduled_samplers import AnySampler


def is_proved(release: Sum | Mean) -> bool:
    """Whether nothing in a release is somebody's word: not its mechanism, gradients or codec."""
    used: Any = release.mechanism
    start = used.start if type(used) is Dynamic else used
    if type(start) is MedianClipping or (
        type(start) is Mechanism and start.certified_multiplier == 0 and not is_correlated(start)
    ):
        return True
    scheduled = type(used) is not Dynamic or constructed(used)
    known = type(start) is Mechanism and constructed(start) and scheduled
    if isinstance(release, Mean):
        return known and type(release.gradients) is RecordGradients
    return known and (release.codec.lossy or constructed(release.codec))


def pieces(stage: Stage, begin: int, end: int) -> list[tuple[int, int]]:
    """(number of rounds, the first of them) of each part of [begin, end) in which no mechanism changes."""
    cuts = {begin, end}
    for release in stage.releases:
        ends = np.cumsum([steps for steps, _ in release.mechanism.multipliers(end)])
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
    power = 1 if releases[0].mechanism.noise == "laplace" else 2

    def of_all(t: int) -> float:
        return _together([(_multiplier(each, t), each.times) for each in releases], power)

    late = begin % window
    of_rounds = np.repeat([of_all(t) for _, t in parts], [steps for steps, _ in parts])
    windows = np.split(of_rounds, range(window - late, end - begin, window))
    most = accounting.rounds_of_a_unit(late + end - begin)
    harmful = Counter(sorted(float(each.min()) for each in windows)[:most])
    begins = {of_all(t): t for _, t in parts}
    return [(times * window, begins[multiplier]) for multiplier, times in harmful.items()]


def _of_messages(stage: Stage) -> list[Sum]:
    """The sums whose mechanism protects clients."""
    return [release for release in stage.sums if release.mechanism is not ALREADY_PRIVATE]


def bits_of_shares(stage: Stage) -> int:
    """What a client sends in a round, if the noise travels in shares: 32 bits for each value that is perturbed."""
    sums = [each for each in stage.sums if is_noisy(each) and not _server_adds(each)]
    means = [each for each in stage.means if is_noisy(each) and each.among_all]
    sums = [each for each in sums if each.mechanism is not ALREADY_PRIVATE]
    shared: list[Sum | Mean] = [*sums, *means]
    return 32 * sum(each.times * dimension(each.like) for each in shared)


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


def _multiplier(release: Sum | Mean, t: int) -> float:
    """Of a single release in round t."""
    try:
        return float(release.mechanism.multipliers(t + 1)[-1][1])
    except jax.errors.ConcretizationTypeError:
        raise ValueError(
            f"mechanism: its multiplier is computed in the round ({release.line}), so nothing can be certified; give "
            "a number, or `fp.dynamic` for one that changes"
        ) from None


def stage_releases(
    stage: Stage, sampler: AnySampler, unit: Unit, steps: int, first: int, size: int | None = None
) -> list[Release]:
    """What each view sees of rounds that are alike.

    Args:
      size: number of records of the client, as `TracedRound.releases`.

    Raises:
      ValueError: units, samplings or kinds of noise that do not go together, or a multiplier computed in the round.
    """
    cohorts = Cohorts.of(sampler.accounting, steps)
    sums = _of_messages(stage)
    if sums and stage.means and any(_multiplier(release, first) > 0 for release in sums):
        raise ValueError(
            f"round: it protects clients ({sums[0].line}) and their records ({stage.means[0].line}); protect one unit"
        )
    if sums:
        return _of_clients(sums, cohorts, unit, first, stage.remembers, too_narrow(stage))
    if stage.means:
        return _of_records(stage, cohorts, unit, first, size)
    return [Release(view, unit, math.inf, cohorts.drawn, cohorts.steps) for view in VIEWS]


class Cohorts(NamedTuple):
    """The cohorts of rounds that are alike.

    Attributes:
      drawn: how each is drawn; where a schedule decides who takes part, among those whose turn it is; or a block.
      steps: how many rounds there are, or how many are a client's turn, or blocks.
      most: clients of the largest.
      schedule: which rounds are a client's, in words, where a schedule decides.
    """

    drawn: Sampling
    steps: int
    most: int
    schedule: str = ""

    @classmethod
    def of(cls, accounting: Accounting, rounds: int) -> Cohorts:
        """Those of so many rounds."""
        turns, words = accounting.rounds_of_a_unit(rounds), accounting.in_words(rounds)
        return cls(accounting.of_a_round, turns, accounting.most, words)

    @property
    def are_of_one_size(self) -> bool:
        """Whether all cohorts have so many different clients, `most`, before some may vanish."""
        return self.drawn.has_one_size and self.drawn.most_often == 1 and not self.schedule


def _of_clients(
    sums: Sequence[Sum], cohorts: Cohorts, unit: Unit, first: int, remembers: bool, narrow: str
) -> list[Release]:
    """Perturbed sums of the messages of one cohort, all together one release.

    The s members of a cohort each add 1 / s of the noise's variance. A server that sees their messages in clear sees
    each with its own share only. Messages of a lossy codec, that a round reports as smaller than shares of noise are
    (`narrow`), or whose sum is divided by the clients' weights, carry no noise, which the server adds: nothing hides
    them from it.

    A client drawn with replacement fills n places of a round: it moves the sum n times as far, and the server sees n
    messages, each with a share of its own: as many releases as the round has draws, each of which may hold the client.
    With all of the noise of its own, it sends one message, and the same again.

    Clients that keep something remember when they were drawn, and their later messages may show it. In a cohort of
    fixed size a client takes the place of another, which remembers that it was left out: so the view is taken to know
    who takes part; also where Poisson cohorts, or allocated ones, are cut so often. Where that is rare, see
    `Sampling.remembered`.

    So it is where everyone is drawn and shares of the noise are lost: how many stay shows, and a unit zeroed out among
    those who are known to stay costs less than one replaced.

    Towards the server a member is hidden by its own share, whether others vanish or not; making up for lost shares only
    adds to it.
    """
    drawn, reason = _who_stays(cohorts.drawn, sums, narrow), _reason(sums, first)
    by_all: dict[str, Any] = {}
    known: Sampling | None = None
    if drawn.loses_noise and drawn.most == drawn.population:
        drawn, known = Everyone(drawn.population), drawn
    elif remembers:
        drawn, known = drawn.remembered()
    if known is not None:
        by_all = {"sampling": drawn, "participation": known}
        drawn = known
    noise = _kind_of_noise(sums, first, cohorts.drawn.loses_noise)
    power = 2 if noise == "gaussian" else 1
    multiplier = _together([(_multiplier(each, first), each.times) for each in sums], power)
    lossy = any(each.codec.lossy for each in sums)
    divided = any(each.weighting.by_server for each in sums)
    common = {"noise": noise, "mechanism": _drawable(sums, first)}

    def release(view: View, m: float, noise_is_split: bool, reason: str, **more: Any) -> Release:
        fields: dict[str, Any] = {"sampling": drawn, "noise_is_split": noise_is_split}
        fields |= {"reason": reason, "schedule": cohorts.schedule} | common | by_all | more
        if view == "server":
            fields |= {name: _whole(fields.get(name)) for name in ("sampling", "participation")}
        return Release(view, unit, m, steps=cohorts.steps, **fields)

    if narrow and multiplier > 0 and drawn.loses_noise and not sums[0].local:
        raise ValueError(
            f"uplink: the server adds the noise, as {narrow}; but members who vanish take theirs along "
            f'({sums[0].line}); leave the uplink as cohort.sum gives it, or give fp.dropping(..., noise="whole")'
        )
    if sums[0].local and multiplier > 0:
        hidden: dict[str, Any] = {}
        if drawn.adjacency in ("add_or_remove", "zero_out"):  # as if the view knew who takes part
            hidden = {"sampling": Everyone(drawn.population), "participation": drawn}
        summed = noise == "gaussian" and cohorts.are_of_one_size and not (lossy or narrow)
        loud = math.sqrt(cohorts.most) if summed else 1.0
        return [
            release(
                view,
                multiplier * (loud if view != "server" else 1),
                summed and view != "server",
                "",
                own_noise=True,
                **hidden,
            )
            for view in VIEWS
        ]
    if (lossy or divided or narrow) and multiplier > 0:
        after = "decoded messages" if lossy else "divided by the clients' weights"
        when = f"after it has {after}" if lossy or divided else f"as {narrow}"
        why = f"the server adds the noise, {when}"
        bare = (0.0, False, why)
        server_adds_noise = release(
            "third_party", multiplier, False, reason, server_adds_noise=True
        )
        return [server_adds_noise, release("server", *bare), release("server_secagg", *bare)]
    share = (multiplier / math.sqrt(cohorts.most), False, reason)
    if noise == "laplace" and multiplier > 0:
        share = (0.0, False, "a client's share of Laplace noise is not Laplace")
    whole = (multiplier, True, reason)
    by_message: dict[str, Any] = {}
    one, times = drawn.one_message()
    if times > 1:
        by_message = {"sampling": one, "local_steps": times}
    return [
        release("third_party", *whole),
        release("server", *share, **by_message),
        release("server_secagg", *whole),
    ]


def _who_stays(drawn: Sampling, sums: Sequence[Sum], narrow: str) -> Sampling:
    """How members vanish, for those who add the noise of these sums.

    What the server adds is whole. With whole noise, each of everyone stays on its own: a Poisson cohort. Noise of their
    own goes with those who vanish; where none but its own is counted for a member, a subset of any size hides no less
    than one that is complete.
    """
    if not sums[0].local:
        if drawn.loses_noise and not any(map(_server_adds, sums)):
            return drawn
        return drawn.with_whole_noise().independent()
    gaussian = all(each.mechanism.noise == "gaussian" for each in sums)
    if gaussian and not (narrow or any(each.codec.lossy for each in sums)):
        return drawn.with_own_noise()
    return drawn.if_all_stay()


def _kind_of_noise(sums: Sequence[Sum], first: int, shares_are_lost: bool) -> NoiseKind:
    """Of all sums of a cohort.

    Raises:
      ValueError: they differ in it, or in who adds it; or shares of one are lost, and the server adds that of another.
    """
    noisy = [each for each in sums if _multiplier(each, first) > 0]
    kinds = {each.mechanism.noise for each in noisy}
    adding = {_server_adds(each) for each in noisy} if shares_are_lost else set()
    if any(len(kind) > 1 for kind in ({each.local for each in sums}, kinds, adding)):
        raise ValueError(
            f"round: sums of one cohort differ in their kind of noise, or in who adds it ({sums[0].line}, "
            f"{sums[-1].line}); make them alike"
        )
    return kinds.pop() if kinds else "gaussian"  # type: ignore[return-value]


def _server_adds(release: Sum) -> bool:
    return not release.local and (release.codec.lossy or release.weighting.by_server)


def _whole(drawn: Any) -> Any:
    """The same cohorts, for whom the noise that others add does not count."""
    return None if drawn is None else drawn.with_whole_noise()


def _together(multipliers: Iterable[tuple[float, int]], power: int) -> float:
    """Of releases of one cohort, each so many times: sensitivities add up in l2 (power 2), or l1."""
    each = [(m, times) for m, times in multipliers if times]
    if any(m == 0 for m, _ in each):
        return 0.0
    if len(each) == 1 and each[0][1] == 1:
        return each[0][0]
    return float(sum(times * m**-power for m, times in each) ** (-1 / power))


def _of_records(
    stage: Stage, cohorts: Cohorts, unit: Unit, first: int, size: int | None
) -> list[Release]:
    """The K noisy means of each round that a client takes part in, of which every view is taken to see each.

    The noise of others hides nothing of the steps before the last, which are seen through later ones, and what clients
    keep carries it over rounds. Only where a single noisy mean shows in the cohort's sum `alone` has it the noise of
    all its members towards a third party, or a server that sees sums, if all divide by the same number and none
    vanishes. No sampling of records hides a whole client.
    """
    groups: dict[Any, list[Mean]] = {}
    for mean in stage.means:
        public = mean.records.public_sizes is not None
        drawn = mean.records if public else mean.records.accounting
        alike = drawn, id(mean.mechanism), mean.among_all
        groups.setdefault(alike, []).append(mean)
    if len(groups) > 1 and cohorts.drawn.rate < 1:
        raise ValueError(
            f"round: private means of two kinds in one round ({stage.means[0].line}, {stage.means[-1].line}); with "
            "sampled clients give one sampler of records and one mechanism"
        )
    releases = []
    clients, narrow = _whole(cohorts.drawn), too_narrow(stage)
    for means in groups.values():
        records = accounting_of(means[0].records, size)
        used: RecordMechanism = means[0].mechanism
        whole = unit == "client"
        most = max(mean.records.most for mean in means)
        own = _multiplier(means[0], first) / (most if whole else 1)
        equal_divisors = all(mean.records.public_sizes is None for mean in means)
        for view in VIEWS:
            shared = (
                means[0].among_all
                and not narrow
                and cohorts.are_of_one_size
                and clients.dropout == 0
                and equal_divisors
                and not whole
                and view != "server"
                and used.noise == "gaussian"
            )
            releases.append(
                Release(
                    view,
                    unit,
                    own * math.sqrt(cohorts.most) if shared else own,
                    Everyone(records.population) if whole else records,
                    cohorts.steps,
                    noise=used.noise,  # type: ignore[arg-type]
                    noise_is_split=shared,
                    local_steps=sum(mean.times for mean in means),
                    participation=clients,
                    schedule=cohorts.schedule,
                    reason="" if own > 0 else used.reason,
                    mechanism=_drawable(means[:1], first),
                )
            )
    return releases


def _reason(sums: Sequence[Sum], first: int) -> str:
    """Why nothing is hidden, if nothing is."""
    bare = [each.mechanism.reason for each in sums if _multiplier(each, first) == 0]
    return "; ".join(dict.fromkeys(bare))


def _drawable(releases: Sequence[Sum | Mean], first: int) -> Mechanism | None:
    """The mechanism for audits, where there is one."""
    used = releases[0].mechanism.in_round(first) if len(releases) == 1 else None
    return static(used) if isinstance(used, Mechanism) else None


def static(used: Mechanism) -> Mechanism:
    """With a clip norm of 1 where it is computed in the round."""
    if used.parts:
        return joint(*map(static, used.parts))
    traced = any(isinstance(c, jax.core.Tracer) for c in jax.tree.leaves(used.clip_norm))
    return used.at(1.0, used.noise_multiplier) if traced and used.at else used
