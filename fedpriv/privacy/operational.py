"""What a certificate means to a person: how well an attacker can do who knows all but one unit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedpriv.core.complaints import require
from fedpriv.privacy.profile import PrivacyProfile
from fedpriv.proof.seen import SEES

FALSE_POSITIVES = (0.01, 0.001)
PRIORS = (0.5, 0.01)
BASELINE = 0.1
PEOPLE = 1000  # of the sentence
_RATES = np.unique(np.concatenate([np.geomspace(1e-5, 0.1, 41), np.linspace(0.1, 1.0, 37)]))


@dataclass(frozen=True)
class OperationalNumbers:
    """The most that an attacker with a certificate's view achieves, in expectation over the noise and the cohorts.

    It decides which of two neighbouring data sets was trained on: whether the unit took part, sent its contribution, or
    was another. F. Gomez, B. Kulynych, G. Kaissis et al. 2025; B. Balle, G. Cherubin, J. Hayes, "Reconstructing
    training data with informed adversaries", 2022.

    Attributes:
        advantage: true-positive less false-positive rate, at most.
        true_positive_rates: at false-positive rates of 1 % and 0.1 %.
        precisions: share of its positive answers that are right, by false-positive rate, where a half and where 1 % of
            the units are true ones.
        success: probability of the right answer, where a half and where 1 % of the units are true ones.
        reconstruction: probability of the right one of ten values of the unit that were equally likely beforehand, of
            which blind guessing finds 1 in 10.
        mu: of the tightest Gaussian bound, see `GaussianBound`; None where there is none.
        regret: of that bound.
        false_positive_rates, false_negative_rates: f64[k], points of the trade-off curve.
    """

    advantage: float
    true_positive_rates: tuple[float, float]
    precisions: tuple[tuple[float, float], tuple[float, float]]
    success: tuple[float, float]
    reconstruction: float
    mu: float | None
    regret: float | None
    false_positive_rates: tuple[float, ...]
    false_negative_rates: tuple[float, ...]

    def __post_init__(self) -> None:
        """Raises ValueError: a rate that is none, as a file may have it, or curves of two lengths."""
        rates = (
            *(self.advantage, *self.true_positive_rates, *self.success),
            *(precision for each in self.precisions for precision in each),
            *(self.reconstruction, *self.false_positive_rates, *self.false_negative_rates),
        )
        for rate in rates:
            require(0 <= rate <= 1, "operational", rate, "give rates in [0, 1]")
        points = len(self.false_positive_rates)
        alike = points == len(self.false_negative_rates) > 0
        require(alike, "false_negative_rates", points, "give one for each false-positive rate")

    def in_words(self, unit: str, view: str, relation: str) -> str:
        """One sentence, of an attacker who is wrong about 10 of 1,000, with a certificate's unit, view and relation."""
        found = min(math.ceil(PEOPLE * self.true_positive_rates[0] - 1e-9), PEOPLE)
        wrong = round(PEOPLE * FALSE_POSITIVES[0])
        units = f"{unit}s"
        attacker = f"an attacker that {SEES[view]}"
        if relation == "add_or_remove":
            without, present = f"{units} that did not take part", "that did"
        elif relation == "zero_out":
            without, present = f"{units} whose contributions were set to zero", "that contributed"
        else:
            return (
                f"{attacker}, and takes {wrong} of 1,000 trainings with one {unit} for trainings with another in its "
                f"place, recognises at most {found} of 1,000 with the other, in expectation"
            )
        return (
            f"{attacker}, and wrongly accuses {wrong} of 1,000 {without}, recognises at most {found} of 1,000 "
            f"{present}, in expectation"
        )


def _precisions(true_positives: float, false_positives: float) -> tuple[float, float]:
    """By Bayes' rule, for each of `PRIORS`."""
    half, rare = (
        prior * true_positives / (prior * true_positives + (1 - prior) * false_positives)
        for prior in PRIORS
    )
    return half, rare


def operational_numbers(profile: PrivacyProfile) -> OperationalNumbers:
    """Of all that a profile bounds."""
    few, fewer = FALSE_POSITIVES
    first, second = (1 - float(profile.false_negative_rate(rate)) for rate in (few, fewer))
    ahead = float(profile.delta(0.0))
    rare = PRIORS[1]
    odds = math.log((1 - rare) / rare)
    gaussian = profile.gaussian
    return OperationalNumbers(
        advantage=ahead,
        true_positive_rates=(first, second),
        precisions=(_precisions(first, few), _precisions(second, fewer)),
        success=((1 + ahead) / 2, 1 - rare + rare * float(profile.delta(odds))),
        reconstruction=1 - float(profile.false_negative_rate(BASELINE)),
        mu=gaussian.mu if gaussian else None,
        regret=gaussian.regret if gaussian else None,
        false_positive_rates=tuple(_RATES.tolist()),
        false_negative_rates=tuple(profile.false_negative_rate(_RATES).tolist()),
    )
