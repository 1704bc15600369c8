"""Cohorts of persons, of each of whom all clients take part."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from fedpriv.core.complaints import require
from fedpriv.core.provenance import sealed
from fedpriv.core.types import Key
from fedpriv.data.federation import Federation
from fedpriv.data.persons import assignment
from fedpriv.data.streaming import StreamedFederation
from fedpriv.privacy.sampling import ByPersons
from fedpriv.rounds.samplers import Draw, Sampler, check_plain


def by_person(sampler: Sampler, federation: Federation | StreamedFederation) -> Sampler:
    """Draws persons by `sampler`, and takes all clients of each; for a federation whose clients are one person's each.

    A mean divides by the expected number of clients. Formal guarantees: those of `sampler`, with a noise multiplier
    that is divided by the most clients of a person.

    Args:
      sampler: `everyone`, `fixed_size` or `poisson`, of as many as there are persons.
      federation: made by `from_arrays(..., person=...)`.

    Raises:
      ValueError: another sampler, or one of another number; a federation without persons, or one whose clients hold
        records of several.
    """
    known = isinstance(federation, Federation | StreamedFederation)
    whose = assignment(federation) if known else None
    remedy = "give one made by from_arrays(..., person=...)"
    require(whose is not None, "federation", federation, remedy)
    assert whose is not None
    check_plain(sampler)
    persons = len(whose.clients)
    remedy = f"give a sampler of the {persons} persons of the federation"
    require(sampler.accounting.population == persons, "sampler", sampler.accounting, remedy)
    clients = federation.num_clients
    table = _table(whose.clients, clients)
    of_one = table.shape[1]
    sizes = sorted(map(len, whose.clients), reverse=True)
    most = sum(sizes[: sampler.accounting.most])
    accounting = ByPersons(
        sampler.accounting, clients, most, of_one, sizes[0] == sizes[-1], whose.digest
    )

    def draw(key: Key) -> Draw:
        members = sampler.draw(key)
        ids: Any = jnp.asarray(table)[members.ids].reshape(-1)  # of an empty slot, beyond all
        return Draw(ids, ids < clients)

    expected_size = sampler.expected_size * clients / persons
    return sealed(Sampler(draw, sampler.slots * of_one, expected_size, accounting))


def _table(of_persons: tuple[tuple[int, ...], ...], clients: int) -> np.ndarray:
    """i32[persons + 1, most clients of one], filled with the number of clients."""
    table = np.full((len(of_persons) + 1, max(map(len, of_persons))), clients, np.int32)
    for i, own in enumerate(of_persons):
        table[i, : len(own)] = own
    return table
