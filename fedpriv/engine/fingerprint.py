"""Fingerprint of a run: what must not change between a checkpoint and the run that continues from it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from fedpriv.data.federation import Federation
from fedpriv.devices import distributed
from fedpriv.devices.layout import Strategy

if TYPE_CHECKING:
    from fedpriv.certification.certificate import TracedRound
    from fedpriv.data.streaming import StreamedFederation
    from fedpriv.engine.compiled_rounds import Training
    from fedpriv.privacy.release import Release


def identity(
    training: Training, traced: TracedRound, seeds: Sequence[int], strategy: Strategy
) -> dict[str, Any]:
    """As JSON, what `simulate` itself knows; of what is trained and how, `Checkpoints.settings` say more."""
    records = records_of(training.federations)
    data = distributed.digest(jax.tree.leaves((records, training.test)))
    return {
        "rounds": training.rounds,
        "every": training.every,
        "seeds": list(seeds),
        "layout": asdict(strategy),
        "data": bytes(data).hex()[:16],
        # A certificate counts every round at the noise and the cohorts of the algorithm that is given here.
        "releases": _told(traced.releases(training.rounds)),
    }


def records_of(federations: Federation | Sequence[StreamedFederation]) -> Any:
    """Arrays by which they are told apart: of streamed ones, larger than one wants to read, two clients' records."""
    if isinstance(federations, Federation):
        return federations
    return [
        (
            f.offsets,
            f.public,
            () if f.order is None else f.order,
            f.held_out_rows or (),
            *f.read(np.array([0, f.num_clients - 1])),
        )
        for f in federations
    ]


def _told(releases: Sequence[Release]) -> dict[str, str]:
    """View -> what it sees, in words, and in digits that another machine computes, too."""
    texts: dict[str, list[str]] = {}
    for r in releases:
        texts.setdefault(r.view, []).append(f"{r.unit}, {r.event}, {r.multiplier:.9g}")
    return {
        view: "; ".join(each)
        if len(each) <= 3
        else f"{len(each)} releases {hashlib.sha256('; '.join(each).encode()).hexdigest()[:16]}"
        for view, each in texts.items()
    }
