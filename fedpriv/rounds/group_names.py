"""Public groups by name: of clients, or of records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.complaints import require, shown


def labels_of(what: str, groups: Any) -> np.ndarray:
    """The name of the group of each client, or record, texts, [n].

    Raises:
      ValueError: there are none; one is neither a text nor a whole number.
    """
    several = isinstance(groups, Sequence) or getattr(groups, "ndim", 0) == 1
    fits = several and not isinstance(groups, str | bytes | jax.core.Tracer) and len(groups) > 0
    require(fits, what, groups, "give the name of the group of each, in a list")
    given = groups.tolist() if hasattr(groups, "tolist") else list(groups)
    for i, name in enumerate(given):
        known = isinstance(name, str | int) and not isinstance(name, bool) and name != ""
        remedy = "each is in a group; give its name, a text or a whole number"
        require(known, f"{what}[{i}]", name, remedy)
    return np.array([str(name) for name in given])


class OtherGroupsError(ValueError):
    """Something is given for other groups than there are.

    Attributes:
      given: the names that it is given for.
      members: the groups that there are, by name.
    """

    def __init__(self, text: str, given: Sequence[str], members: Mapping[str, Any]):
        super().__init__(text)
        self.given, self.members = given, members


def named(what: str, given: Any, members: Mapping[str, Any], wanted: str) -> dict[str, Any]:
    """What is given for each group.

    Raises:
      OtherGroupsError: there is a group without it, or none of that name.
      ValueError: it is no mapping.
    """
    require(isinstance(given, Mapping), what, given, f"give name of a group -> {wanted}")
    named = {str(name): value for name, value in given.items()}
    names = ", ".join(map(repr, members))
    for name in members:
        if name not in named:
            remedy = f"group {name!r} has none; give {wanted} for each of {names}"
            raise OtherGroupsError(f"{what}: {shown([*named])}; {remedy}", [*named], members)
    for name in named:
        if name not in members:
            remedy = f"nobody is in this group; there are {names}"
            raise OtherGroupsError(f"{what}: {shown(name)}; {remedy}", [*named], members)
    return named


def digest_of(labels: Sequence[np.ndarray]) -> str:
    """By which one assignment to groups is told from another."""
    texts = json.dumps([own.tolist() for own in labels])  # quoted: no names run into one another
    return hashlib.sha256(texts.encode()).hexdigest()[:16]


def table(numbers: np.ndarray) -> jax.Array:
    """No part of a round that is traced, in which a sampler may be made."""
    with jax.ensure_compile_time_eval():
        return jnp.asarray(numbers)
