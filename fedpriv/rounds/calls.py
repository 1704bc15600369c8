"""The calls of a round as equations of its program, with the marks that say what they mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax
import jax.numpy as jnp

from fedpriv.core import random_streams
from fedpriv.core.arguments import require
from fedpriv.core.array_arguments import check_key, check_leaves
from fedpriv.core.types import Key, PyTree
from fedpriv.mechanisms.correlated import first_memory, perturbed_in_run
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.rounds.client_shard import InCall, shard_in_call
from fedpriv.rounds.marks import (
    Clients,
    Collected,
    Counted,
    Diagnostics,
    Marks,
    Source,
    Stored,
    Sum,
    mark_tree,
    user_line,
)
from fedpriv.rounds.noise_stream import ROUNDS, NoiseStream
from fedpriv.rounds.primitives import CLIENTS, REMEMBER, STORE, in_shapes, program_of_one
from fedpriv.rounds.privacy_labels import TAKING_PART, Private
from fedpriv.rounds.private_step import PrivateStep
from fedpriv.rounds.round_arguments import FederationShape, Given, OfClient
from fedpriv.rounds.samplers import Answer
from fedpriv.rounds.scheduled_samplers import AnySampler

_MAKES: ContextVar[bool] = ContextVar("makes", default=False)


@contextmanager
def may_make() -> Iterator[None]:
    """Inside, the engine makes the cohort of a round; a second one would draw the same noise again."""
    token = _MAKES.set(True)
    try:
        yield
    finally:
        _MAKES.reset(token)


_NUMBER = jax.ShapeDtypeStruct((), jnp.int32)


class Calls:
    """Those of one round, each with noise of its own; they are made while the round is traced.

    Args:
      given, shape: to the round, and of its federation.
      sampler: draws its cohorts.
      answer: of a member, in shapes.
      marks: gets the marks, by their numbers.
    """

    def __init__(
        self,
        given: Given,
        shape: FederationShape,
        sampler: AnySampler,
        answer: Answer,
        marks: Marks,
    ) -> None:
        require(_MAKES.get(), "cohort", "another one", "use the one that a round is given")
        self.given, self.shape, self.sampler, self.marks = given, shape, sampler, marks
        self._answer = answer
        self._stream = NoiseStream(given.hidden)
        self._last = -1  # the last call's mark

    def end(self) -> None:
        """The round is over."""
        self._stream.end()

    def begin(self, what: str, key: Key, own: PyTree) -> tuple[Key, Key, Key]:
        """(hidden, for the clients, for a protocol), of this call alone."""
        swapped = "give the client first, cohort.sum(client, key, ...)"
        require(not callable(key), "key", key, swapped)
        check_key("key", key, "give a random key")
        check_leaves("own", own)
        for leaf in jax.tree.leaves(own):
            if jnp.shape(leaf)[:1] != (self.shape.num_clients,):
                raise ValueError(
                    f"own: a leaf {list(jnp.shape(leaf))} has no row for each of {self.shape.num_clients} clients"
                )
        number = self._stream.calls
        hidden = self._stream.begin(what, ROUNDS)
        of_call = jax.random.fold_in(key, random_streams.COHORT + number)
        return hidden, *jax.random.split(of_call)

    def over_all(
        self, fn: Callable[..., tuple], hidden: Key, key: Key, own: PyTree
    ) -> tuple[PyTree, PyTree]:
        """(The sum of what `fn` returns first, what it returns second, stacked [slots, ...]), over the cohort.

        `fn(key, shard, *own)` is traced once, of a client without data. `own` is its row of leaves [clients, ...].
        """
        marks, call = self.marks, Clients(user_line(), len(self.marks))
        marks.append(call)
        self._last = call.number
        rows = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), own)
        like = OfClient(self.shape.like, _NUMBER, _NUMBER, self._answer)

        def client(branch: Key, key: Key, given: OfClient, *mine: PyTree) -> tuple:
            stream = NoiseStream(branch)
            of = InCall(stream, call, marks, [], [])
            shard = shard_in_call(
                of, given.records, given.size, self.given.round, given.number, given.answer
            )
            returned = fn(key, shard, *mine)
            stream.end()
            return returned

        keys = in_shapes((hidden, key))
        with self._stream.closed():
            of_one = program_of_one(client, *keys, like, *((rows,) if jax.tree.leaves(own) else ()))
        summed = len(jax.tree.leaves(of_one.out[0]))
        found = CLIENTS.bind(
            hidden,
            key,
            *jax.tree.leaves(own),
            *of_one.held,
            program=of_one.program,
            given=like.names,
            summed=summed,
            slots=self.sampler.slots,
            own=len(jax.tree.leaves(own)),
            number=call.number,
        )
        return jax.tree.unflatten(jax.tree.structure(of_one.out), found)

    def remembered(self, used: Mechanism, key: Key, total: PyTree) -> PyTree:
        """The sum with noise that is correlated with what the engine remembers of earlier rounds."""
        memory = jax.eval_shape(lambda: first_memory(used, in_shapes(total)))

        def perturb(t: jax.Array, key: Key, total: PyTree, memory: PyTree) -> tuple:
            return perturbed_in_run(used, key, total, memory, t)

        given = self.given.round, key, total
        of_one = program_of_one(perturb, *in_shapes(given), memory)
        found = REMEMBER.bind(
            *jax.tree.leaves(given),
            *of_one.held,
            program=of_one.program,
            memory=len(jax.tree.leaves(memory)),
            held=len(of_one.held),
        )
        return jax.tree.unflatten(jax.tree.structure(of_one.out[0]), found)

    def stored(self, own: PyTree, new: PyTree) -> PyTree:
        """What all clients keep, with new rows of the cohort's."""
        leaves, structure = jax.tree.flatten(own)
        if not leaves:
            return own
        for leaf, row in zip(leaves, jax.tree.leaves(new), strict=True):
            remedy = f"return it as {leaf.dtype}, in which all keep theirs ({user_line()})"
            require(row.dtype == leaf.dtype, "own: row", row, remedy)
        self.marks.append(Stored(user_line(), self._last))
        given = *leaves, *jax.tree.leaves(new)
        return jax.tree.unflatten(structure, STORE.bind(*given, number=len(self.marks) - 1))

    def released(self, noisy: PyTree, step: PrivateStep) -> PyTree:
        """Marked; also where nothing comes of it that the round gets."""
        release = Sum(user_line(), self._last, step, in_shapes(noisy))
        return mark_tree(self.marks, release, (noisy, jnp.bool_(True)))[0]

    def collected(self, total: PyTree) -> PyTree:
        """A sum of messages to which each client has added its noise, marked."""
        return mark_tree(self.marks, Collected(user_line()), total)

    def counted(self, tree: PyTree) -> PyTree:
        """What is public, or counted by the release that comes of it, marked."""
        return mark_tree(self.marks, Counted(), tree)

    def private(self, what: str, tree: PyTree) -> PyTree:
        """What is private, marked."""
        return mark_tree(self.marks, Source(Private(what, -1, user_line())), tree)

    def of_all(self, tree: PyTree) -> PyTree:
        """Diagnostics of clients, from here on of all together, marked."""
        return mark_tree(self.marks, Diagnostics(Private(TAKING_PART, -1, user_line())), tree)
