"""What must hold for a certificate to be true, in words."""

from __future__ import annotations

from collections.abc import Sequence

from fedpriv.privacy.integer_accounting import of_integers
from fedpriv.privacy.release import ALWAYS_ASSUMED, REAL_NOISE, Release

DRAWN = (
    "members rotate, round and add their shares of the noise as the plan of the sum says; numbers of the noise are "
    "within 2^-145 of their law in total variation, which delta counts"
)


def assumptions(
    active: Sequence[Release], view: str, relation: str, honest: float
) -> tuple[str, ...]:
    """Of a certificate of `active` releases, all of `view`."""
    texts = _of_shown(active) if relation == "zero_out" else _of_secret(active)
    if any((r.participation or r.sampling).is_weighted for r in active):
        secret = any(release.sampling.hides_size for release in active)
        which = "which clients' sizes are not" if secret else "such as clients' sizes"
        texts.append(f"the weights by which cohorts are drawn, {which}, are public")
    if any(r.sampling.adjacency == "zero_out" for r in active):
        texts.append("a unit drawn n times moves a sum by n clip norms, and n is visible")
    texts += _of_vanishing(active, view)
    if view == "server_secagg" and any(r.counts_others for r in active):
        texts.append("secure aggregation shows nothing but the sum")
    exact = all(release.integers is not None for release in active)
    return (
        *texts,
        *_shares(active, relation, honest),
        *([] if exact else [REAL_NOISE]),
        *([DRAWN] if of_integers(active) else []),
        *ALWAYS_ASSUMED,
    )


def _of_vanishing(active: Sequence[Release], view: str) -> list[str]:
    """Of members that are drawn and then vanish, and of their shares of the noise."""
    drawn = [r.participation or r.sampling for r in active]
    vanishing = [sampling for sampling in drawn if sampling.dropout > 0]
    if not vanishing:
        return []
    rates = " or ".join(sorted({f"{sampling.dropout:.4g}" for sampling in vanishing}))
    texts = [f"members vanish with probability {rates}, independently of one another and of data"]
    adds = "an enclave that sums" if view == "server_secagg" else "whoever sums"
    if any(sampling.loses_noise for sampling in vanishing):
        texts.append(
            "members who vanish lose their shares of the noise, and this is counted; `honest` is, beside that, the "
            "fraction of the remaining members that adds its share; without dropouts in the sampling, `honest` "
            "bounds what members who vanish together take along"
        )
    elif any(release.counts_others for release in active):
        texts.append(
            f"the noise is whole, whoever vanishes: those who stay make up for lost shares, or {adds} adds them; "
            "`honest` is, beside that, the fraction of the noise that is added and unknown to the view"
        )
    return texts


def _of_secret(releases: Sequence[Release]) -> list[str]:
    """For the sampling to amplify."""
    samplings = [release.sampling for release in releases]
    lost = any(sampling.loses_noise for sampling in samplings)
    sizes = "their sizes, too, where noise is whole" if lost else "their sizes, too"
    blocks = any(sampling.block_rounds is not None for sampling in samplings)
    when = "block" if blocks else "round"
    texts = [f"cohorts ({sizes}) and noise are drawn afresh in every {when} and stay secret"]
    drawn = "cohorts"
    if all(release.of_records for release in releases):
        texts = ["the records of every local step, and its noise, are drawn afresh and stay secret"]
        drawn = "the records of a step"
    vanish = any(sampling.dropout > 0 for sampling in samplings)
    for sampling in samplings:
        texts += sampling.how_drawn(drawn, vanish)
    for sampling in samplings:
        texts += sampling.limits(drawn)
    if any(r.sampling.adjacency is None and not r.schedule for r in releases):
        texts.append("a release without sampling involves every unit in every round")
    turns = [r.schedule for r in releases if r.sampling.block_rounds is None]
    if schedules := list(dict.fromkeys(filter(None, turns))):
        texts.append(
            "whose turn it is may be known; if a client comes or goes, the turns of all others stay the same: "
            + "; ".join(schedules)
        )
    if any(release.participation for release in releases):
        texts.append(
            "which clients take part may be known, and is drawn without looking at the data; delta is an average "
            "over that draw"
        )
    return list(dict.fromkeys(texts))


def _of_shown(releases: Sequence[Release]) -> list[str]:
    """Where the view knows who takes part."""
    unknown = "and what hides the unit is unknown to the view"
    fresh = f"the noise is fresh in every round, {unknown}"
    if schedules := list(dict.fromkeys(r.schedule for r in releases if r.schedule)):
        pattern = "who takes part is visible, and is decided without looking at the data: "
        return [pattern + "; ".join(schedules), f"noise is drawn afresh in every round, {unknown}"]
    if all((r.participation or r.sampling).takes_all for r in releases):
        return ["every unit takes part in every round", fresh]
    pattern = "who takes part is visible, and is drawn without looking at the data"
    average = "delta is an average over the draw of the cohorts, independent from round to round"
    return [pattern, average, fresh]


def _shares(active: Sequence[Release], relation: str, honest: float) -> tuple[str, ...]:
    """What is assumed of those who add the noise."""
    texts = []
    if any(release.adder == "enclave" for release in active):
        texts.append(
            "an enclave, which the server cannot look into, sums the messages, adds all of the noise, and shows "
            "nothing else"
        )
    if any(release.adder == "server" for release in active):
        texts.append(
            "the server adds all of the noise to the sum in every round, even if nobody joins, and shows nothing else"
        )
    if any(release.adder == "own" for release in active):
        texts.append("whoever holds the unit adds that noise before sending anything")
    if not any(release.counts_others for release in active):
        return tuple(texts)
    if honest == 1:
        texts.append(
            "each of the s members of a cohort adds 1 / s of the noise's variance and keeps its share secret; if "
            "only a fraction h does so, the multiplier is sqrt(h) times the one accounted for (`honest`)"
        )
    else:
        left = (
            " that is not lost"
            if any((r.participation or r.sampling).loses_noise for r in active)
            else ""
        )
        texts.append(
            f"{honest:.4g} of the noise's variance{left} is added and unknown to the view; how much more there is "
            "depends neither on the unit nor on who takes part"
        )
    if relation != "zero_out":
        if not all(release.sampling.has_one_size for release in active):
            texts.append("the noise is whole in every round, even if nobody joins")
        if honest < 1:
            texts.append(
                "members who drop out or collude do not reveal whether they took part; with the size of the cohort "
                "that would tell something about the others"
            )
    return tuple(texts)
