"""What a certificate composes, as an event of dp-accounting, for its accountants, which are independent of ours."""

from __future__ import annotations

from typing import Any

from fedpriv.privacy.profile import Composition
from fedpriv.privacy.relations import multiplier_for
from fedpriv.privacy.release import Release

RELATIONS = {
    "add_or_remove": "ADD_OR_REMOVE_ONE",
    "replace_one": "REPLACE_ONE",
    "zero_out": "REPLACE_SPECIAL",
}
"""Adjacency -> its name in dp-accounting."""


def dp_event(composition: Composition) -> tuple[Any, Any]:
    """(the `DpEvent`, the `NeighboringRelation`) of dp-accounting.

    Noise multipliers are relative to what the relation can move: where a unit is replaced, by twice its clip norm, they
    are half of the mechanism's, as dp-accounting's RDP accountant does not double the distance. Its PLD accountant
    does, and so gives a larger epsilon than there is.

    Raises:
        ValueError: dp-accounting has no event for a release.
    """
    import dp_accounting as dp

    relation = dp.NeighboringRelation[RELATIONS[composition.relation]]
    if not composition.hidden:
        return dp.NonPrivateDpEvent(), relation
    if composition.others:
        raise ValueError(
            "certificate: dp-accounting has no event for the best of runs with random settings; give that of one "
            "setting"
        )
    rounds = [
        dp.SelfComposedDpEvent(_of_a_round(release, composition.relation), release.rounds)
        for release in composition.releases
    ]
    event = dp.ComposedDpEvent(rounds) if rounds else dp.NoOpDpEvent()
    if composition.best_of > 1:
        event = dp.dp_event.RepeatAndSelectDpEvent(event, composition.best_of, 1)
    return event, relation


def _of_a_round(release: Release, relation: str) -> Any:
    """Of a release as `release_normal_form.normal_form` gives it.

    Raises:
        ValueError: there is none.
    """
    import dp_accounting as dp

    if release.integers is not None:
        raise ValueError(
            f"certificate: dp-accounting has no event for {release.event}, whose noise is of integers; compare a run "
            f"with fp.gaussian of noise_multiplier={release.multiplier:.4g}"
        )
    make = dp.GaussianDpEvent if release.noise == "gaussian" else dp.LaplaceDpEvent
    noisy, drawn = make(multiplier_for(release, relation)), release.sampling
    event = None
    if release.participation is None and drawn.adjacency in (None, relation):
        event = drawn.dp_event(noisy)
    if event is not None:
        return event
    raise ValueError(
        f"certificate: dp-accounting has no event for {release.event}, under {relation.replace('_', '-')} adjacency; "
        "compare a run whose draws are secret, by Poisson or of fixed size, or in which everyone takes part"
    )
