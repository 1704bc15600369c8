"""What must hold for a certificate to be true, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.privacy.row import Row
from fedpriv.privacy.sampling import Neighbour
from fedpriv.privacy.seen import ALWAYS_ASSUMED, REAL_NOISE, Seen

_DRAWN = (
    "members rotate, round and add their shares of the noise as the plan of the sum says; numbers of the noise are "
    "within 2^-145 of their law in total variation, which delta counts"
)


def assumptions(seen: Iterable[Seen], neighbour: Neighbour) -> tuple[str, ...]:
    """Of all that is seen."""
    own = (text for each in seen for text in each.words[neighbour])
    return tuple(dict.fromkeys((*own, *ALWAYS_ASSUMED)))


def words(row: Row, neighbour: Neighbour, honest: float) -> tuple[str, ...]:
    """What has to hold of these rounds, for such neighbours."""
    told = neighbour == "zeroed"
    texts = [*(_of_shown(row) if told else _of_secret(row)), *_of_draws(row, neighbour)]
    texts += _of_vanishing(row)
    if row.view == "server_secagg" and row.counts_others:
        texts.append("secure aggregation shows nothing but the sum")
    texts += _of_shares(row, honest)
    if row.counts_others and not told:
        texts += _of_secret_shares(row, honest)
    texts.append(_DRAWN if isinstance(row.noisy.noise, IntegerNoise) else REAL_NOISE)
    return tuple(dict.fromkeys(texts))


def _of_draws(row: Row, neighbour: Neighbour) -> Iterator[str]:
    yield from row.drawn.by.words("zeroed" if row.drawn.is_told else neighbour)
    if row.repeated.among is not None:
        yield from row.repeated.among.words("zeroed")


def _of_secret(row: Row) -> list[str]:
    """For the sampling to amplify."""
    drawn, (_, _, among, schedule) = row.drawn, row.repeated
    sizes = "their sizes, too, where noise is whole" if drawn.by.lossy else "their sizes, too"
    when = "round" if drawn.by.block is None else "block"
    texts = [f"cohorts ({sizes}) and noise are drawn afresh in every {when} and stay secret"]
    if row.of_records:
        texts = ["the records of every local step, and its noise, are drawn afresh and stay secret"]
    if drawn.by.everyone and not drawn.by.secret and not schedule:
        texts = ["a release without sampling involves every unit in every round"]
    if schedule and drawn.by.block is None:
        texts.append(
            "whose turn it is may be known; if a client comes or goes, the turns of all others stay the same: "
            + schedule
        )
    if among is not None or (drawn.known and not drawn.by.everyone):
        texts.append(
            "which clients take part may be known, and is drawn without looking at the data; delta is an average "
            "over that draw"
        )
    return texts


def _of_shown(row: Row) -> list[str]:
    """Where the view knows who takes part."""
    schedule = row.repeated.schedule
    unknown = "and what hides the unit is unknown to the view"
    if schedule:
        pattern = (
            f"who takes part is visible, and is decided without looking at the data: {schedule}"
        )
        return [pattern, f"noise is drawn afresh in every round, {unknown}"]
    fresh = f"the noise is fresh in every round, {unknown}"
    clients = row.repeated.among or row.drawn.by
    if clients.everyone:
        return ["a release without sampling involves every unit in every round", fresh]
    pattern = "who takes part is visible, and is drawn without looking at the data"
    average = "delta is an average over the draw of the cohorts, independent from round to round"
    return [pattern, average, fresh]


def _of_vanishing(row: Row) -> list[str]:
    """Of members that are drawn and then vanish, and of their shares of the noise."""
    clients = row.repeated.among or row.drawn.by
    if clients.vanish == 0:
        return []
    p = f"{clients.vanish:.4g}"
    texts = [f"members vanish with probability {p}, independently of one another and of data"]
    adds = "an enclave that sums" if row.view == "server_secagg" else "whoever sums"
    if row.drawn.who.lost:
        texts.append(
            "members who vanish lose their shares of the noise, and this is counted; `honest` is, beside that, the "
            "fraction of the remaining members that adds its share; without dropouts in the sampling, `honest` "
            "bounds what members who vanish together take along"
        )
    elif row.counts_others:
        texts.append(
            f"the noise is whole, whoever vanishes: those who stay make up for lost shares, or {adds} adds them; "
            "`honest` is, beside that, the fraction of the noise that is added and unknown to the view"
        )
    return texts


_ALONE = {
    "enclave": "an enclave, which the server cannot look into, sums the messages, adds all of the noise, and shows "
    "nothing else",
    "server": "the server adds all of the noise to the sum in every round, even if nobody joins, and shows nothing "
    "else",
    "own": "whoever holds the unit adds that noise before sending anything",
}
"""What is assumed of who adds the noise alone."""


def _of_shares(row: Row, honest: float) -> list[str]:
    """What is assumed of those who add the noise."""
    if not row.counts_others:
        return [_ALONE[row.adder]]
    if honest == 1:
        return [
            "each of the s members of a cohort adds 1 / s of the noise's variance and keeps its share secret; if only "
            "a fraction h does so, the multiplier is sqrt(h) times the one accounted for (`honest`)"
        ]
    left = " that is not lost" if row.drawn.who.lost else ""
    return [
        f"{honest:.4g} of the noise's variance{left} is added and unknown to the view; how much more there is depends "
        "neither on the unit nor on who takes part"
    ]


def _of_secret_shares(row: Row, honest: float) -> list[str]:
    texts = []
    if not row.drawn.by.full:
        texts.append("the noise is whole in every round, even if nobody joins")
    if honest < 1:
        texts.append(
            "members who drop out or collude do not reveal whether they took part; with the size of the cohort that "
            "would tell something about the others"
        )
    return texts
