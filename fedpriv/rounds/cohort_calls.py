"""The calls of a round whose clients keep something, remember noise, or add it themselves."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fedpriv.core.array_arguments import check_key, check_leaves
from fedpriv.core.code_places import user_line
from fedpriv.core.complaints import require
from fedpriv.core.types import Key, PyTree
from fedpriv.mechanisms.correlated import first_memory, perturbed_in_run
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.proof.calls import Calls
from fedpriv.proof.given import CallKeys, Given, Member, OfClient
from fedpriv.proof.marks import Clients, Marks, mark_tree
from fedpriv.proof.primitives import in_shapes, program_of_one
from fedpriv.rounds.client_shard import InCall, Shard, shard_in_call
from fedpriv.rounds.client_stream import ClientStream
from fedpriv.rounds.own_noise import Collected
from fedpriv.rounds.own_state import STORE, OwnRowsAndWeights, Stored
from fedpriv.rounds.remembered_noise import REMEMBER
from fedpriv.rounds.round_arguments import FederationShape
from fedpriv.rounds.samplers import Answer
from fedpriv.rounds.scheduled_samplers import AnySampler

_NUMBER = jax.ShapeDtypeStruct((), jnp.int32)


class CohortCalls(Calls):
    """Those of a round with the cohorts of a sampler.

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
        like = OfClient(shape.like, _NUMBER, _NUMBER, answer)
        super().__init__(given, like, sampler.slots, marks)
        self.shape, self.sampler, self.answer = shape, sampler, answer

    def begin_with(self, what: str, key: Key, own: PyTree) -> CallKeys:
        """As `begin`, for clients with rows of `own`.

        Raises:
          ValueError: no key; rows that are not the clients'; as `begin`.
        """
        swapped = "give the client first, cohort.sum(client, key, ...)"
        require(not callable(key), "key", key, swapped)
        check_key("key", key, "give a random key")
        check_leaves("own", own)
        for leaf in jax.tree.leaves(own):
            if jnp.shape(leaf)[:1] != (self.shape.num_clients,):
                raise ValueError(
                    f"own: a leaf {list(jnp.shape(leaf))} has no row for each of {self.shape.num_clients} clients"
                )
        return self.begin(what, key)

    def mark_of_clients(self, line: str, own: PyTree) -> Clients:
        """As `Calls`."""
        more = jax.tree.leaves((own, self.answer))
        return (OwnRowsAndWeights if more else Clients)(line, len(self.marks))

    def shard_of(self, member: Member) -> tuple[Shard, ClientStream]:
        """What a client is given, and the stream from which its noise comes."""
        given, stream = member.given, ClientStream(member.hidden)
        of = InCall(stream, member.call, self.marks, [], [])
        shard = shard_in_call(
            of, given.records, given.size, self.given.round, given.number, given.answer
        )
        return shard, stream

    def over_shards(
        self, fn: Callable[..., tuple], keys: CallKeys, own: PyTree
    ) -> tuple[PyTree, PyTree]:
        """As `over_all`, of `fn(key, shard, *own)`."""

        def one(member: Member, *mine: PyTree) -> tuple:
            shard, stream = self.shard_of(member)
            returned = fn(member.key, shard, *mine)
            stream.end()
            return returned

        return self.over_all(one, keys, own)

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

    def collected(self, total: PyTree) -> PyTree:
        """A sum of messages to which each client has added its noise, marked."""
        return mark_tree(self.marks, Collected(user_line()), total)
