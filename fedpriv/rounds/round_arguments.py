"""What a round knows of a federation, and of how members answer."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from fedpriv.core.types import PyTree
from fedpriv.data.cohort_federation import CohortFederation
from fedpriv.rounds.samplers import Answer
from fedpriv.rounds.scheduled_samplers import AnySampler, answers_drawn


class FederationShape(NamedTuple):
    """What a round knows of a federation.

    Attributes:
      num_clients: how many there are.
      capacity: the largest number of records that a client has room for.
      like: a client's records, `jax.ShapeDtypeStruct`s [capacity, ...].
      public: number of public examples.
    """

    num_clients: int
    capacity: int
    like: PyTree
    public: int


def shape_of(federation: Any) -> FederationShape:
    """What a round knows of a federation."""
    by_cohort = isinstance(federation, CohortFederation)
    records = federation.holder_records if by_cohort else federation.examples
    like = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((federation.capacity, *leaf.shape[1:]), leaf.dtype),
        records,
    )
    return FederationShape(
        federation.num_clients, federation.capacity, like, federation.public.shape[-1]
    )


def answer_like(sampler: AnySampler) -> Answer:
    """A member's answer, in shapes."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), answers_drawn(sampler)
    )
