"""What must hold for a certificate to be true, in words: the sentences of plain rows."""

from __future__ import annotations

from typing import Any

from fedpriv.proof.cases import Neighbour

EVERYBODY = "a release without sampling involves every unit in every round"
SECRET = "cohorts ({sizes}) and noise are drawn afresh in every {round} and stay secret"
MAY_BE_KNOWN = (
    "which clients take part may be known, and is drawn without looking at the data; delta is an "
    "average over that draw"
)
VISIBLE = "who takes part is visible, and is drawn without looking at the data"
AVERAGE = "delta is an average over the draw of the cohorts, independent from round to round"
FRESH = "the noise is fresh in every round, and what hides the unit is unknown to the view"
SUM_ALONE = "secure aggregation shows nothing but the sum"
OWN = "whoever holds the unit adds that noise before sending anything"
SHARES = (
    "each of the s members of a cohort adds 1 / s of the noise's variance and keeps its share secret; if only a "
    "fraction h does so, the multiplier is sqrt(h) times the one accounted for (`honest`)"
)
PART = (
    "{honest:.4g} of the noise's variance{left} is added and unknown to the view; how much more there is depends "
    "neither on the unit nor on who takes part"
)
WHOLE = "the noise is whole in every round, even if nobody joins"
NOT_TOLD = (
    "members who drop out or collude do not reveal whether they took part; with the size of the cohort that would tell "
    "something about the others"
)


def words(row: Any, neighbour: Neighbour, honest: float) -> list[str]:
    """What has to hold of the rounds of a plain row, for such neighbours."""
    shown = neighbour == "zeroed"
    drawn = row.drawn
    texts = _of_shown(drawn) if shown else _of_secret(drawn)
    texts += drawn.by.words("zeroed" if drawn.is_told else neighbour)
    if not row.counts_others:
        return [*texts, OWN, row.noisy.words]
    if row.view == "server_secagg":
        texts.append(SUM_ALONE)
    texts.append(SHARES if honest == 1 else PART.format(honest=honest, left=""))
    return [*texts, *([] if shown else of_secret_shares(drawn.by.full, honest)), row.noisy.words]


def _of_shown(drawn: Any) -> list[str]:
    """Where the view knows who takes part."""
    return [EVERYBODY, FRESH] if drawn.by.everyone else [VISIBLE, AVERAGE, FRESH]


def _of_secret(drawn: Any) -> list[str]:
    """For the sampling to amplify."""
    if drawn.by.everyone and not drawn.by.secret:
        return [EVERYBODY]
    texts = [SECRET.format(sizes="their sizes, too", round="round")]
    return [*texts, MAY_BE_KNOWN] if drawn.known and not drawn.by.everyone else texts


def of_secret_shares(full: bool, honest: float) -> list[str]:
    """What the noise of a secret cohort may not tell."""
    return [WHOLE] * (not full) + [NOT_TOLD] * (honest < 1)
