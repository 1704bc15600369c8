"""Draws of the exact pair of neighbours that dominates a run: the limit of an audit by as many runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.attacks.audit.mechanisms import affordable, drawable
from fedpriv.attacks.mechanism_audit import Scores, draw_scores
from fedpriv.certification.certificate import TracedRound

LIMITS = 20
"""Times that as many draws as runs are drawn for the limit."""


def of_limits(least: float, limits: Sequence[float]) -> dict[str, Any]:
    """What is recorded of the bounds that the exact pair gives: their mean, all of them, the share that was reached."""
    limit = float(np.mean(limits)) if limits else None
    return {"limit": limit, "limits": limits, "share": least / limit if limit else None}


def parts_of(exact: Scores | None) -> list[Scores]:
    """As many draws as runs, `LIMITS` times; nothing where there are none."""
    if exact is None:
        return []
    parts = (np.split(side, LIMITS) for side in (exact.present, exact.absent))
    return [exact._replace(present=p, absent=a) for p, a in zip(*parts, strict=True)]


def exact_pair(traced: TracedRound, view: str, rounds: int, draws: int, seed: int) -> Scores | None:
    """Scores of as many draws of each neighbour; None where there is nothing to draw, or more than is affordable."""
    releases = traced.releases(rounds)
    seen = [release for release in releases if release.view == view]
    if not seen or len(drawable(seen)) < len(seen):
        return None
    if affordable(traced, view, rounds, draws) != (draws, rounds):
        return None
    return draw_scores(releases, view, draws=draws, seed=seed)  # type: ignore[arg-type]
