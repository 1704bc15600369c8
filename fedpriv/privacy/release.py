"""What a view sees (`Release`), what is proved of it (`Certificate`), what a paper says (`Claim`).

The three are kept apart on purpose: a `Claim` is printed beside a `Certificate` and never feeds it.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.privacy._checks import require, require_count, require_multiplier
from fedpriv.privacy.sampling import Everyone, FixedSize, Poisson

VIEWS = ("third_party", "server", "server_secagg")
UNITS = ("client", "record")

NOISE = (
    "each of the s members of a cohort adds 1 / s of the noise's variance and keeps it to itself; "
    "if only h of them do, the multiplier is sqrt(h / s) of the one accounted for",
    "the noise is Gaussian in the real numbers; a simulator's seeded float32 noise is not",
    "one model is released, trained once: runs with the same seed share their noise",
    "population, rate, delta and all settings were fixed without looking at the data, and public "
    "and test examples are not the unit's",
)
"""What every certificate of a noisy sum assumes."""

_SEEN_BY = {
    "third_party": "third party (sees every global model)",
    "server": "server (sees every message, knows the cohort)",
    "server_secagg": "server behind secure aggregation (sees only sums, knows the cohort)",
}


@dataclass(frozen=True)
class Release:
    """What one view sees of one unit in `steps` rounds, as a Gaussian mechanism.

    Each round draws its cohort afresh. What is released twice from *the same* cohort is one release
    of both parts together, of multiplier (sum_k multiplier_k^-2)^-1/2: two `Release`s would be
    composed as if their cohorts were drawn independently, which says less than the view learns.

    Attributes:
        view: who looks; one of `VIEWS`.
        unit: what is protected, "client" (all data of one client) or "record" (one example).
        multiplier: 1 / whitened sensitivity of removing (zeroing out) one unit when it takes part,
            that is 1 / sup ||Sigma^-1/2 A u||, without a dimension; 0 where nothing hides the unit,
            infinity where it is not seen.
        sampling: how the units of a round are drawn.
        steps: number of rounds.
        reason: where `multiplier` is 0: why, in words (no noise, no clip, ...).

    Raises:
        ValueError: for an unknown view or unit, a negative multiplier, or a negative number of
            steps.
    """

    view: str
    unit: str
    multiplier: float
    sampling: Everyone | FixedSize | Poisson
    steps: int
    reason: str = ""

    def __post_init__(self) -> None:
        require(self.view in VIEWS, "view", self.view, f"give one of {', '.join(VIEWS)}")
        require(self.unit in UNITS, "unit", self.unit, f"give one of {', '.join(UNITS)}")
        require_multiplier(self.multiplier)
        known = isinstance(self.sampling, Everyone | FixedSize | Poisson)
        require(known, "sampling", self.sampling, "give Everyone, FixedSize or Poisson")
        require_count("steps", self.steps, 0)


@dataclass(frozen=True)
class Certificate:
    """A proved (epsilon, delta), with all that is needed to read it.

    Attributes:
        epsilon: privacy loss, in nats; infinity where nothing is guaranteed.
        delta: probability, in (0, 1).
        view: who looks; one of `VIEWS`.
        unit: "client" or "record".
        relation: neighbouring data sets: "add_or_remove", "replace_one" or "zero_out" one unit.
        accountant: how the rounds were composed: "PLD", "RDP" or "closed form".
        bound: which side of the truth the number lies on, and why.
        assumptions: what must hold for the number to be true.
        event: what was composed: rounds, sampling and multiplier of each release.
    """

    epsilon: float
    delta: float
    view: str
    unit: str
    relation: str
    accountant: str
    bound: str
    assumptions: tuple[str, ...]
    event: str = ""

    def __str__(self) -> str:
        return f"{_headline(self, 'certified')}, {self.accountant}; {self.event}"


@dataclass(frozen=True)
class Claim:
    """A paper's own (epsilon, delta), with its source and whether it holds for the run at hand.

    Attributes:
        epsilon: privacy loss by the paper's formula, in nats.
        delta: probability, in (0, 1).
        unit: "client" or "record".
        view: against whom the formula is read; one of `VIEWS`.
        relation: the neighbouring data sets that the paper states.
        source: citation of the formula.
        sound: whether epsilon is an upper bound for this view, relation and sampling.
        reasons: why, or why not, in words.
    """

    epsilon: float
    delta: float
    unit: str
    view: str
    relation: str
    source: str
    sound: bool
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        verdict = "holds for this run" if self.sound else "not proved for this run"
        return f"{_headline(self, 'claimed')}, {self.source}; {verdict}"


def _headline(number: Certificate | Claim, status: str) -> str:
    """Epsilon, delta, status, unit, view and adjacency, in one line."""
    return (
        f"epsilon {number.epsilon:.4g} at delta {number.delta:.3g} {status}: {number.unit}-level, "
        f"{_SEEN_BY[number.view]}, {number.relation.replace('_', '-')} adjacency"
    )
