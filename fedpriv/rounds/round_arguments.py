"""What a round knows of a federation, and what it is given of the clients who take part."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from fedpriv.core.types import Key, PyTree
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


class Given(NamedTuple):
    """What the engine gives to a round, beside the algorithm's own arguments.

    Attributes:
      hidden: the hidden branch of the round, see `fedpriv.rounds.noise_stream`.
      round: i32[], number of rounds done.
      members: i32[], how many take part.
      public: the server's public examples, leaves [public, ...].
    """

    hidden: Key
    round: jax.Array
    members: jax.Array
    public: PyTree


class OfClient(NamedTuple):
    """What a client's program is given of the client, beside its keys and its own row: leaves, or shapes."""

    records: PyTree
    size: Any
    number: Any
    answer: Answer

    @property
    def names(self) -> tuple[str, ...]:
        """Of each leaf."""
        paths = (path for path, _ in jax.tree.leaves_with_path(self))
        return tuple(p[1].name if p[0].name == "answer" else p[0].name for p in paths)


def answer_like(sampler: AnySampler) -> Answer:
    """A member's answer, in shapes."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), answers_drawn(sampler)
    )
