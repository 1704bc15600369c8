"""A third party sees every global model, not who took part: sampling amplifies privacy."""

from __future__ import annotations

from collections.abc import Sequence

from fedpriv.privacy.curves import epsilon_of_mixture
from fedpriv.privacy.known_cohort import participations
from fedpriv.privacy.losses import pld_epsilon
from fedpriv.privacy.reading import is_exact
from fedpriv.privacy.release import Release
from fedpriv.privacy.renyi import rdp_epsilon
from fedpriv.privacy.sampling import Everyone, FixedSize, Poisson

BOUNDS = {
    "PLD": "upper: privacy losses are discretised pessimistically (connect the dots)",
    "RDP": "upper: Rényi orders 1.1 to 1024, conversion of Canonne, Kamath and Steinke",
}


def epsilons(releases: Sequence[Release], relation: str, delta: float) -> dict[str, float]:
    """Accountant -> epsilon against a third party; positive, finite multipliers.

    Formal guarantees: each is an upper bound, see `losses.pld_epsilon` and `renyi.rdp_epsilon`. For Gaussian noise
    and draws that every unit is in, "PLD" is as in `known_cohort.epsilons`, for a unit moved by `relation`'s distance.
    """
    by_rdp = rdp_epsilon(releases, relation, delta)
    if is_exact(releases, relation):
        found = {"PLD": epsilon_of_mixture(*participations(releases, relation), delta)}
    else:
        found = {"PLD": pld_epsilon(releases, relation, delta)}
    return found if by_rdp is None else found | {"RDP": by_rdp}


def assumptions(releases: Sequence[Release]) -> tuple[str, ...]:
    """What must hold for the sampling to amplify, in words."""
    samplings = [release.sampling for release in releases]
    texts = ["cohorts (their sizes, too) and noise are drawn afresh in every round and stay secret"]
    drawn = "cohorts"
    if all(release.unit == "record" for release in releases):
        texts = ["the records of every local step, and its noise, are drawn afresh and stay secret"]
        drawn = "the records of a step"
    if any(isinstance(sampling, FixedSize) for sampling in samplings):
        texts.append(f"{drawn} are uniform without replacement, and sums are divided by their size")
        texts.append("replacing a unit moves a sum by at most twice its clipped norm")
    if any(isinstance(sampling, Poisson) for sampling in samplings):
        texts.append("units join independently, and sums are divided by a number fixed beforehand")
    for sampling in samplings:
        if isinstance(sampling, Poisson) and sampling.can_be_cut:
            texts.append(f"{drawn} above {sampling.capacity} are cut down uniformly at random")
            texts.append(f"the larger of two neighbouring populations has {sampling.population}")
    if any(isinstance(sampling, Everyone) for sampling in samplings):
        texts.append("a release without sampling involves every unit in every round")
    if any(release.participation for release in releases):
        texts.append(
            "which clients take part may be known and is drawn without looking at the data; delta is an average over "
            "that draw"
        )
    return tuple(dict.fromkeys(texts))
