"""What a client gives back: a message, or more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from fedpriv.core.arguments import is_name
from fedpriv.core.array_arguments import check_leaves
from fedpriv.core.complaints import require
from fedpriv.core.trees import same_structure
from fedpriv.core.types import Key, PyTree
from fedpriv.core.user_functions import asked, gives
from fedpriv.rounds.client_shard import Shard


class Sent(NamedTuple):
    """What a client returns, if that is more than its message.

    Attributes:
      message: a tree, which travels.
      diagnostics: name -> f32[], numbers about the client; they are not private, and never released.
      own: what the client keeps until it takes part again, a tree like its row of the store.
    """

    message: PyTree
    diagnostics: Mapping[str, jax.Array] = {}
    own: PyTree = ()


Client: TypeAlias = (
    Callable[[Key, Shard], PyTree | Sent] | Callable[[Key, Shard, PyTree], PyTree | Sent]
)
"""(key, shard), or (key, shard, own) where clients keep something -> a message, or a `Sent`."""


def sent_by(client: Client, key: Key, shard: Shard, *mine: PyTree) -> Sent:
    """What `client` gives back, for what it keeps for itself (`mine`, or nothing where clients keep nothing).

    Raises:
      ValueError: it is no function of these arguments, or what it gives back is no message, or no `Sent` of the kind
        that `Sent` describes.
    """
    wants = "(key, shard, own)" if mine else "(key, shard)"
    returned = asked("client", client, wants, key, shard, *mine)
    gives(returned is not None, "client", client, returned, "return the message")
    sent = returned if isinstance(returned, Sent) else Sent(returned)
    check_leaves("message", sent.message)
    check_diagnostics("diagnostics", sent.diagnostics)
    check_leaves("own", sent.own)
    if not mine:
        remedy = "pass the store to the cohort as own=, leaves [clients, ...]"
        gives(not jax.tree.leaves(sent.own), "own", client, sent.own, remedy)
    else:
        row = jax.tree.map(lambda leaf: list(leaf.shape), mine[0])
        remedy = f"return fp.Sent(message, own=...) with a tree like its row {row}"
        gives(_alike(sent.own, mine[0]), "own", client, sent.own, remedy)
    return sent


def check_diagnostics(name: str, given: Any) -> None:
    """Raises ValueError: the diagnostics that a client sends are no dict of numbers by name."""
    known = isinstance(given, Mapping) and all(map(is_name, given))
    require(known, name, given, "give a dict of numbers by name, {'loss': ...}")
    for key, value in given.items():
        require(same_structure(value, 0), f"{name}[{key!r}]", value, "give a number")
    check_leaves(name, dict(given))


def _alike(one: PyTree, other: PyTree) -> bool:
    return same_structure(one, other) and all(
        jax.tree.leaves(jax.tree.map(lambda a, b: jnp.shape(a) == b.shape, one, other))
    )
