"""What a round, its calls and its clients are given by the engine, arrays or their shapes."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from fedpriv.core.types import Key, PyTree


class Given(NamedTuple):
    """To a round, beside the algorithm's own arguments.

    Attributes:
      hidden: the hidden branch of the round, see `fedpriv.proof.stream`.
      round: i32[], number of rounds done.
      members: i32[], how many take part.
      public: the server's public examples, leaves [public, ...].
    """

    hidden: Key
    round: jax.Array
    members: jax.Array
    public: PyTree


class OfClient(NamedTuple):
    """To a client's program, beside its keys and its own row.

    Attributes:
      records: leaves [capacity, ...].
      size: i32[], how many of them are real.
      number: i32[], which client it is.
      answer: what else a draw says of a member, a tuple with names; in a plain draw it has no leaves.
    """

    records: PyTree
    size: Any
    number: Any
    answer: Any = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Of each leaf."""
        paths = (path for path, _ in jax.tree.leaves_with_path(self))
        return tuple(p[1].name if p[0].name == "answer" else p[0].name for p in paths)


class CallKeys(NamedTuple):
    """Of one call alone.

    Attributes:
      hidden: whose children are drawn from: those by clients' numbers by clients, that by `NOISE` for the noise.
      clients: what clients draw from, which is public.
      common: for what they all have in common; public.
    """

    hidden: Key
    clients: Key
    common: Key


class Member(NamedTuple):
    """A client, as its program is traced: it stands for all.

    Attributes:
      hidden, key: its children of the call's keys.
      given: what it is given.
      call: number of the mark of the call.
    """

    hidden: Key
    key: Key
    given: OfClient
    call: int
