"""Clients, or records, that share a person where nobody said so: no epsilon of a client or a record covers a person."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpriv.core.callers import warn_where_called
from fedpriv.core.types import PyTree
from fedpriv.data.client_ids import are_missing, numbered
from fedpriv.data.held_out import Rows
from fedpriv.data.validation import on_host

_NAMES = {"person", "patient", "user", "subject", "participant", "individual"}
"""Of columns that say whose a record is, alone or before "id", however they are spelt."""


def warn_of_shared_persons(examples: PyTree, training: Rows, held_out: Rows | None) -> None:
    """Warns where a column among the examples says that several clients, or records of one client, are one person's.

    Args:
      examples: leaves [total, ...]; those of ids [total], of integers or strings, are looked at by their names.
      training, held_out: the rows that clients train on, and those that they are evaluated on.

    Warns:
      UserWarning: with how many.
    """
    held = [training] if held_out is None else [training, held_out]
    for name, leaf in examples.items() if isinstance(examples, Mapping) else ():
        if _says_whose(name) and (said := _shared(name, leaf, held)):
            warn_where_called(
                f"examples[{name!r}]: {said}. An epsilon of a client or of a record does not cover all of one person: "
                f"give from_arrays(..., person={name!r}), or leave the column out if it is no person",
                __name__,
            )


def _says_whose(name: Any) -> bool:
    letters = re.sub("[^a-z]", "", str(name).lower())
    return letters.removesuffix("id").removesuffix("s") in _NAMES


def _shared(name: Any, leaf: Any, held: Sequence[Rows]) -> str:
    """How many of the rows that clients hold share a person, in words; empty where none do."""
    ids = on_host(f"examples[{name!r}]", leaf)
    if ids.ndim != 1 or ids.dtype.kind not in "iuOUSTM":
        return ""
    rows, clients = np.concatenate([of.rows for of in held]), len(held[0].size)
    own = ids[rows]
    own = own.astype(object) if own.dtype.kind == "T" else own
    client = np.concatenate([np.repeat(np.arange(clients), of.size) for of in held])
    there = ~are_missing(own)
    if not there.any():
        return ""
    person, _ = numbered(f"examples[{name!r}]", own[there], rows[there])
    pairs, records = np.unique(
        np.stack([person, client[there]], axis=1), axis=0, return_counts=True
    )
    clients_of = np.bincount(pairs[:, 0])
    sharing = np.unique(pairs[clients_of[pairs[:, 0]] > 1, 1])
    if len(sharing):
        return (
            f"{len(sharing)} of {clients} clients share a person with another client, as "
            f"{int((clients_of > 1).sum())} of {len(clients_of)} persons have up to {clients_of.max()} clients each"
        )
    mixed = np.bincount(pairs[:, 1])[pairs[:, 1]] > 1
    several = records[mixed & (records > 1)]
    if len(several):
        return (
            f"{int(several.sum())} of {len(rows)} records share a person with another record, as "
            f"{len(several)} of {len(clients_of)} persons have up to {several.max()} each"
        )
    return ""
