"""Kinds of canaries in an algorithm, what they are scored by, and what is proved and claimed of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np

from fedpriv.attacks.canary_messages import Data
from fedpriv.attacks.canary_places import NoPlaceError
from fedpriv.data.federation import Federation
from fedpriv.experiments.config.ledger import Ledger
from fedpriv.privacy import Certificate, Claim, Seen
from fedpriv.privacy.played import is_drawable

Kind: TypeAlias = Literal["worst_case", "natural", "mislabelled"]
WORST: Kind = "worst_case"

SEEN = ("third_party", "server_secagg")
"""Views that see models, or sums: whose noise hides a canary."""
CERTIFIED = {"last_model": "third_party"}
"""Whose certificate holds for a view of canaries that no certificate names: who sees the last model alone sees less."""


def data_of(kind: Kind, federation: Federation) -> Data | None:
    """On what a canary of this kind trains, as `with_canaries` takes it.

    Raises:
      NoPlaceError: labels to be changed that there are not.
    """
    if kind == WORST:
        return None
    if kind == "natural":
        return lambda examples: examples
    labels: Any = (
        federation.examples.get("label") if isinstance(federation.examples, dict) else None
    )
    classes = labels is not None and jnp.issubdtype(labels.dtype, jnp.integer)
    last = int(np.max(labels)) if classes else 0
    if last < 1:
        raise NoPlaceError(
            "canary: mislabelled needs examples with a class as their `label`, one of several"
        )

    def mislabelled(examples: Any) -> Any:
        label = examples["label"]
        return examples | {"label": jnp.where(label == last, 0, label + 1)}

    return mislabelled


def seen_of(ledger: Ledger, name: str, rounds: int) -> Seen | None:
    """The first noise that those see who look at models or sums; None where there is none."""
    every = ledger.trace(name).seen(rounds)
    noisy = (each for each in every if each.view in SEEN and is_drawable(each))
    return next(noisy, None)


class Bounded(NamedTuple):
    """What is said of an algorithm with canaries towards one view."""

    certificate: Certificate
    claim: Claim | None


def bounded(ledger: Ledger, name: str, rounds: int, view: str, delta: float) -> Bounded:
    """The certificate for a view of canaries at `delta`, and the paper's claim if it is about that view."""
    seen_as: Any = CERTIFIED.get(view, view)
    at_delta = replace(ledger, delta=delta)
    claim = at_delta.claim(name, rounds)
    same = claim is not None and claim.view == seen_as
    return Bounded(at_delta.certify(name, rounds, view=seen_as), claim if same else None)
