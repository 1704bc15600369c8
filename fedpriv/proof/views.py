"""The table of views: what each view sees of a client in rounds in which members add shares of the noise.

Views: a third party sees every global model; a server every message; a server behind secure aggregation their sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fedpriv.core.complaints import require
from fedpriv.proof.cases import Noisy
from fedpriv.proof.drawn import Drawn
from fedpriv.proof.draws import Sampling
from fedpriv.proof.row import Row
from fedpriv.proof.seen import View


class Sent(NamedTuple):
    """What a cohort sends, all together one release: messages whose sums are perturbed.

    Attributes:
        whole: the noise of all members in their sum.
        drawn: the draws of a client, of which a third party knows nothing.
        rounds: in which it is sent.
        reason: why nothing is hidden, where nothing is.
        releases: the marks of the sums.
    """

    whole: Noisy
    drawn: Drawn
    rounds: int
    reason: str = ""
    releases: tuple[Any, ...] = ()

    @property
    def most(self) -> int:
        """Clients of the largest cohort."""
        return self.drawn.by.most

    def row(self, view: View, noisy: Noisy, adder: Any, reason: str = "") -> Row:
        """Of the table."""
        drawn = self.drawn if view == "third_party" else replace(self.drawn, known=True)
        why = reason or self.reason
        return Row(view, "client", noisy, adder, drawn, self.rounds, why, self.releases)


def by_shares(sent: Any) -> list[Any]:
    """The s members of a cohort each add 1 / s of the noise's variance.

    A server that sees their messages in clear sees each with its own share only. Towards it a member is hidden by that
    share, whether others vanish or not; making up for lost shares only adds to it.

    Args:
        sent: a `Sent`, or one like it from outside, which makes rows of its own.
    """
    share, why = sent.whole.share(sent.most), ""
    if share is None:
        bare = math.isinf(sent.whole.far)
        share, why = sent.whole.bare, "" if bare else NO_SHARE
    return [
        sent.row("third_party", sent.whole, "shares"),
        sent.row("server", share, "own", why),
        sent.row("server_secagg", sent.whole, "shares"),
    ]


NO_SHARE = "a client's share of Laplace noise is not Laplace"


def of_sums(sums: Sequence[Any], drawn: Sampling, rounds: int, first: int = 0) -> list[Row]:
    """Perturbed sums of the messages of one cohort, all together one release, in rounds that are alike.

    Args:
        sums: their marks, at least one.
        drawn: how each round's cohort is drawn.
        first: the first of the rounds.

    Raises:
        ValueError: they differ in their kind of noise; a multiplier is somebody's word; members do not add shares, or
            draws are not plain: a member is drawn more than once, or vanishes, or a schedule says whose turn it is, or
            groups count unequally.
    """
    alike = (
        drawn.repeats == 1 and drawn.vanish == 0 and drawn.turns is None and drawn.counts_equally
    )
    require(alike, "sampling", drawn, "its rows of the table of views are others")
    shared = all(each.step.adder == "shares" for each in sums)
    require(shared, "adder", sums[0].step.adder, "its rows of the table of views are others")
    proved = all(each.step.is_proved for each in sums)
    require(
        proved, "mechanism", sums[0].step.mechanism, "its rows of the table of views are others"
    )
    kind = kind_of_noise(sums, first)
    multiplier = together(
        ((each.multiplier(first), each.times) for each in sums), 2 if kind == "gaussian" else 1
    )
    far = 1 / multiplier if multiplier > 0 else math.inf
    return by_shares(
        Sent(Noisy(kind, far), Drawn(drawn), rounds, reason_of(sums, first), tuple(sums))
    )


def kind_of_noise(sums: Sequence[Any], first: int) -> str:
    """Of all sums of a cohort.

    Raises:
        ValueError: they differ in it.
    """
    kinds = {each.step.mechanism.noise for each in sums if each.multiplier(first) > 0}
    if len(kinds) > 1:
        raise ValueError(unlike(sums))
    return kinds.pop() if kinds else "gaussian"


def unlike(sums: Sequence[Any]) -> str:
    """That they differ, in one line."""
    return (
        f"round: sums of one cohort differ in their kind of noise, or in who adds it ({sums[0].line}, "
        f"{sums[-1].line}); make them alike"
    )


def reason_of(sums: Sequence[Any], first: int) -> str:
    """Why nothing is hidden, if nothing is."""
    bare = [each.step.mechanism.reason for each in sums if each.multiplier(first) == 0]
    return "; ".join(dict.fromkeys(bare))


def together(multipliers: Iterable[tuple[float, int]], power: int) -> float:
    """One multiplier of releases of one cohort, each so many times: sensitivities add up in l2 (power 2), or l1.

    They share one draw: composed as if each had its own, a secret one would amplify each of them.
    """
    each = [(m, times) for m, times in multipliers if times]
    if not all(m > 0 for m, _ in each):
        return 0.0
    if len(each) == 1 and each[0][1] == 1:
        return each[0][0]
    return float(sum(times * m**-power for m, times in each) ** (-1 / power))
