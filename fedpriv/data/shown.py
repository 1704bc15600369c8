"""How federations show, in a terminal and in a notebook: by what array shapes tell, and never with a record."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fedpriv.core.cards import Card, in_a_line
from fedpriv.core.leaves import sizes
from fedpriv.core.terminal_text import counted


def line_of(federation: Any) -> str:
    """Of a federation: its clients, what they may hold, and the shapes of the examples."""
    whose = "" if federation.persons is None else f", {federation.persons.shown(federation)}"
    said = f"{_counts(federation)}{whose}, {sizes(federation.examples)}"
    return in_a_line(f"{type(federation).__name__}({said})")


def card_of(federation: Any) -> Card:
    """Likewise, with a row for each array."""
    rows = []
    if federation.persons is not None:
        rows.append(("persons", federation.persons.shown(federation)))
    if federation.held_out_rows is not None:
        rows.append(("held out", "some records of clients, who do not train on them"))
    if public := federation.public.shape[-1]:
        rows.append(("public", f"{public} records, which only the server holds"))
    if federation.normalised:
        rows.append(("normalised", ", ".join(federation.normalised)))
    leaves, _ = jax.tree_util.tree_flatten_with_path(federation.examples)
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "examples"
        rows.append((name, f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}"))
    return Card(type(federation).__name__, _counts(federation), rows)


def _counts(federation: Any) -> str:
    clients, records = (
        counted(federation.num_clients, "client"),
        counted(federation.capacity, "record"),
    )
    return f"{clients}, up to {records} each"
