"""The calls of a round as equations of its program, with the marks that say what they mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp

from fedpriv.core import random_streams
from fedpriv.core.code_places import user_line
from fedpriv.core.complaints import require
from fedpriv.core.types import Key, PyTree
from fedpriv.proof.given import CallKeys, Given, Member, OfClient
from fedpriv.proof.labels import TAKING_PART, Private
from fedpriv.proof.marks import Clients, Counted, Diagnostics, Marks, Source, Sum, mark_tree
from fedpriv.proof.primitives import CLIENTS, in_shapes, program_of_one
from fedpriv.proof.stream import NoiseStream

_MAKES: ContextVar[bool] = ContextVar("makes", default=False)


@contextmanager
def may_make() -> Iterator[None]:
    """Inside, the engine makes the calls of a round; others would draw the same noise again."""
    token = _MAKES.set(True)
    try:
        yield
    finally:
        _MAKES.reset(token)


class Calls:
    """Those of one round, each with noise of its own; they are made while the round is traced.

    Args:
      given: to the round.
      like: what a client is given, in shapes.
      slots: how many clients a cohort has room for.
      marks: gets the marks, by their numbers.
    """

    def __init__(self, given: Given, like: OfClient, slots: int, marks: Marks) -> None:
        require(_MAKES.get(), "cohort", "another one", "use the one that a round is given")
        self.given, self.marks = given, marks
        self._like, self._slots = like, slots
        self._stream = NoiseStream(given.hidden)
        self._begun: Key | None = None  # the hidden key of a call that was not made yet
        self._last = -1  # the last call's mark

    def end(self) -> None:
        """The round is over."""
        self._stream.end()

    def begin(self, what: str, key: Key) -> CallKeys:
        """The keys of the next call.

        Raises:
          ValueError: it is where its noise could be repeated.
        """
        number = self._stream.calls
        hidden = self._begun = self._stream.begin(what)
        of_call = jax.random.fold_in(key, random_streams.COHORT + number)
        return CallKeys(hidden, *jax.random.split(of_call))

    def over_all(
        self, fn: Callable[..., tuple], keys: CallKeys, own: PyTree = ()
    ) -> tuple[PyTree, PyTree]:
        """(The sum of what `fn` returns first, what it returns second, stacked [slots, ...]), over the cohort.

        `fn(member, *own)` is traced once, of a client without data. `own` is its row of leaves [clients, ...].
        """
        require(keys.hidden is self._begun, "keys", keys, "give those of a call that just begins")
        self._begun = None
        call = self.mark_of_clients(user_line(), own)
        self.marks.append(call)
        self._last = call.number
        rows = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), own)

        def client(hidden: Key, key: Key, given: OfClient, *mine: PyTree) -> tuple:
            return fn(Member(hidden, key, given, call.number), *mine)

        like = *in_shapes((keys.hidden, keys.clients)), self._like
        with self._stream.closed():
            of_one = program_of_one(client, *like, *((rows,) if jax.tree.leaves(own) else ()))
        found = CLIENTS.bind(
            keys.hidden,
            keys.clients,
            *jax.tree.leaves(own),
            *of_one.held,
            program=of_one.program,
            given=self._like.names,
            summed=len(jax.tree.leaves(of_one.out[0])),
            slots=self._slots,
            own=len(jax.tree.leaves(own)),
            number=call.number,
        )
        return jax.tree.unflatten(jax.tree.structure(of_one.out), found)

    def mark_of_clients(self, line: str, own: PyTree) -> Clients:
        """Of the next call, which clients have rows of `own` in."""
        return Clients(line, len(self.marks))

    def released(self, noisy: PyTree, step: Any) -> PyTree:
        """What comes of the last call, marked; also where nothing of it reaches the round."""
        require(self._last >= 0, "released", noisy, "call the cohort before")
        release = Sum(user_line(), self._last, step, in_shapes(noisy))
        return mark_tree(self.marks, release, (noisy, jnp.bool_(True)))[0]

    def counted(self, tree: PyTree) -> PyTree:
        """What is public, or counted by the release that comes of it, marked."""
        return mark_tree(self.marks, Counted(), tree)

    def private(self, what: str, tree: PyTree) -> PyTree:
        """What is private, marked."""
        return mark_tree(self.marks, Source(Private(what, -1, user_line())), tree)

    def of_all(self, tree: PyTree) -> PyTree:
        """Diagnostics of clients, from here on of all together, marked."""
        return mark_tree(self.marks, Diagnostics(Private(TAKING_PART, -1, user_line())), tree)
