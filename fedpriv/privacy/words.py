"""What must hold for a certificate to be true, in words, beside the sentences of plain rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedpriv.proof import words as plain
from fedpriv.proof.cases import Neighbour
from fedpriv.proof.seen import ALWAYS_ASSUMED, ONE_RUN

BEST_RUN = (
    "one model is released, the best of runs that share no noise; their number follows this distribution and stays "
    "secret, the settings of each run are drawn independently, and the best is chosen by public data or by releases "
    "counted here"
)
SEVERAL_RUNS = (
    "nothing but what these runs release is released; each run has its own seed, so that no two share noise or "
    "cohorts"
)
LATER_RUNS = (
    "of the data, a later run (its settings, preprocessing, initial model and its round's arrays) depends only on what "
    "this view saw of earlier runs; its rounds, sampling and multipliers are those counted here, whatever was seen"
)


def _of_the_first(begin: str, of: str, of_first: str) -> tuple[str, str]:
    """(A sentence that every certificate assumes, the same of the first of several runs alone)."""
    (text,) = (text for text in ALWAYS_ASSUMED if text.startswith(begin) and of in text)
    return text, text.replace(of, of_first)


OF_SEVERAL_RUNS: dict[str, tuple[str, ...]] = {
    ONE_RUN: (SEVERAL_RUNS, LATER_RUNS),
    **{
        text: (changed,)
        for text, changed in (
            _of_the_first(
                "population", "all settings and all", "all settings of the first run and all of its"
            ),
            _of_the_first(
                "preprocessing", "the initial model do", "the initial model of the first run do"
            ),
        )
    },
}
"""What is assumed of one run -> what is in its place assumed of several, of which later ones may use earlier ones."""


def words(row: Any, neighbour: Neighbour, honest: float) -> tuple[str, ...]:
    """What has to hold of these rounds, for such neighbours."""
    told = neighbour == "zeroed"
    texts = [*(_of_shown(row) if told else _of_secret(row)), *_of_draws(row, neighbour)]
    texts += _of_vanishing(row)
    if row.view == "server_secagg" and row.counts_others:
        texts.append(plain.SUM_ALONE)
    texts += _of_shares(row, honest)
    if row.counts_others and not told:
        texts += plain.of_secret_shares(row.drawn.by.full, honest)
    texts.append(row.noisy.words)
    return tuple(dict.fromkeys(texts))


def _of_draws(row: Any, neighbour: Neighbour) -> Iterator[str]:
    yield from row.drawn.by.words("zeroed" if row.drawn.is_told else neighbour)
    if row.repeated.among is not None:
        yield from row.repeated.among.words("zeroed")


def _of_secret(row: Any) -> list[str]:
    """For the sampling to amplify."""
    drawn, (_, _, among, schedule) = row.drawn, row.repeated
    sizes = "their sizes, too, where noise is whole" if drawn.by.lossy else "their sizes, too"
    when = "round" if drawn.by.block is None else "block"
    texts = [plain.SECRET.format(sizes=sizes, round=when)]
    if row.of_records:
        texts = ["the records of every local step, and its noise, are drawn afresh and stay secret"]
    if drawn.by.everyone and not drawn.by.secret and not schedule:
        texts = [plain.EVERYBODY]
    if schedule and drawn.by.block is None:
        texts.append(
            "whose turn it is may be known; if a client comes or goes, the turns of all others stay the same: "
            + schedule
        )
    if among is not None or (drawn.known and not drawn.by.everyone):
        texts.append(plain.MAY_BE_KNOWN)
    return texts


def _of_shown(row: Any) -> list[str]:
    """Where the view knows who takes part."""
    schedule = row.repeated.schedule
    if schedule:
        pattern = (
            f"who takes part is visible, and is decided without looking at the data: {schedule}"
        )
        fresh = (
            "noise is drawn afresh in every round, and what hides the unit is unknown to the view"
        )
        return [pattern, fresh]
    clients = row.repeated.among or row.drawn.by
    if clients.everyone:
        return [plain.EVERYBODY, plain.FRESH]
    return [plain.VISIBLE, plain.AVERAGE, plain.FRESH]


def _of_vanishing(row: Any) -> list[str]:
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
    "own": plain.OWN,
}
"""What is assumed of who adds the noise alone."""


def _of_shares(row: Any, honest: float) -> list[str]:
    """What is assumed of those who add the noise."""
    if not row.counts_others:
        return [_ALONE[row.adder]]
    if honest == 1:
        return [plain.SHARES]
    left = " that is not lost" if row.drawn.who.lost else ""
    return [plain.PART.format(honest=honest, left=left)]
