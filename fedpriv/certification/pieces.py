"""Parts of a run in which no mechanism changes, and what of their noise travels with messages."""

from __future__ import annotations

from collections import Counter

import numpy as np

from fedpriv.certification.stages import Stage
from fedpriv.core.trees import dimension
from fedpriv.privacy.sampling import Accounting
from fedpriv.proof.marks import Released, Sum
from fedpriv.proof.views import together
from fedpriv.rounds.private_step import PrivateStep, features_of


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
    releases = of_messages(stage) or stage.means
    turns = accounting.turns
    if turns is None or not releases or begin == end:
        return parts
    window = turns.window
    if len(parts) == 1 or (stage.means and len(releases) > 1):  # means are releases of their own
        return [(first % window + steps, first) for steps, first in parts]
    power = 1 if releases[0].step.mechanism.noise == "laplace" else 2

    def of_all(t: int) -> float:
        return together([(each.multiplier(t), each.times) for each in releases], power)

    late = begin % window
    of_rounds = np.repeat([of_all(t) for _, t in parts], [steps for steps, _ in parts])
    windows = np.split(of_rounds, range(window - late, end - begin, window))
    most = turns.of(late + end - begin)
    harmful = Counter(sorted(float(each.min()) for each in windows)[:most])
    begins = {of_all(t): t for _, t in parts}
    return [(times * window, begins[multiplier]) for multiplier, times in harmful.items()]


def of_messages(stage: Stage) -> list[Sum]:
    """The sums whose mechanism protects clients."""
    return [release for release in stage.sums if not release.step.passes_on]


def bits_of_shares(stage: Stage) -> int:
    """What a client sends in a round, if the noise travels in shares: 32 bits for each real value that is perturbed."""
    sums = [
        each
        for each in of_messages(stage)
        if features_of(each.step).fits_noise or each.step.adder == "own"
    ]
    means = (each for each in stage.means if each.step.adder == "own_summed")
    shared: list[Released] = [each for each in (*sums, *means) if each.step.is_noisy]
    return sum(
        each.times * _bits_of(features_of(each.step), dimension(each.like)) for each in shared
    )


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
