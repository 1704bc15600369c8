"""The cohort of a round that is looked at: one client stands for all, and marks say what is private and released."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedpriv.certification.privacy_labels import (
    TAKING_PART,
    Holding,
    Note,
    Notes,
    Private,
    tree_mark,
)
from fedpriv.core.code_places import place
from fedpriv.core.generators import generator_of
from fedpriv.core.types import Key, Metrics, Params, PyTree
from fedpriv.mechanisms.mechanisms import Mechanism, unprotected
from fedpriv.mechanisms.per_example import RecordMechanism
from fedpriv.mechanisms.schedules import Dynamic
from fedpriv.privacy.sampling import Poisson
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.cohort import Cohort, Given, Protocol, agreed
from fedpriv.rounds.samplers import Draw, Sampler


class Watched(Cohort):
    """The cohort of a round that is looked at, after `round` (i32[]) others."""

    def __init__(self, round: jax.Array, holding: Holding, sampler: Sampler, notes: Notes):
        super().__init__(round, holding, Draw(jnp.zeros(1, jnp.int32), jnp.ones(1, bool)), sampler)
        self._notes = notes
        self._call = -1

    @property
    def _drawn(self) -> Draw:
        """A cohort of one, marked: it says who takes part."""
        line = user_line()
        note = Note("source", line, label=Private(TAKING_PART, -1, line))
        return tree_mark(self._notes, note, Draw(jnp.zeros(1, jnp.int32), jnp.ones(1, bool)))

    @_drawn.setter
    def _drawn(self, drawn: Draw) -> None:
        self._unmarked = drawn

    def _draw_for_audits(self) -> Draw:
        return self._unmarked

    @property
    def size(self) -> jax.Array:
        """i32[], marked where it says who takes part."""
        if not isinstance(self._sampler.accounting, Poisson):
            return jnp.int32(self._sampler.slots)
        line = user_line()
        note = Note("source", line, label=Private(TAKING_PART, -1, line))
        return tree_mark(self._notes, note, jnp.int32(0))

    @property
    def public(self) -> Shard:
        """Stand-ins for the public examples."""
        count, like = self._federation.public, self._federation.like
        examples = jax.tree.map(lambda s: jnp.zeros((count, *s.shape[1:]), s.dtype), like)
        return Shard(examples, jnp.int32(count), self.round)

    def _over(self, fn: Callable[..., tuple], key: Key, own: PyTree) -> tuple[PyTree, PyTree]:
        notes, line = self._notes, user_line()
        call = self._call = len(notes)
        source = Note("source", line, label=Private("a client's data", call, line))
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), self._federation.like)
        examples, size = tree_mark(notes, source, (zeros, jnp.int32(1)))
        number = tree_mark(notes, Note("number", line, label=source.label), jnp.int32(0))
        key = tree_mark(notes, Note("client", line), jax.random.fold_in(key, 0))
        given = tree_mark(notes, Note("own", line, call, source.label), own)
        rows = jax.tree.map(lambda leaf: leaf[0], given)
        shard = watched_shard(notes, call, examples)(examples, size, self.round, client_id=number)
        total, kept = fn(key, shard, *((rows,) if jax.tree.leaves(own) else ()))
        return total, jax.tree.map(lambda leaf: leaf[None], kept)

    def _noise_key(self, key: Key, mechanism: Mechanism | Dynamic) -> Key:
        note = Note("noise", user_line(), self._call, mechanism=mechanism)
        return tree_mark(self._notes, note, key)

    def _shown(self, total: PyTree, key: Key, given: Given) -> PyTree:
        how: dict[str, Any] = given._asdict()
        how |= {"like": _shapes(total), "generator": generator_of(key)}
        note = Note("sum", user_line(), self._call, **how)
        return tree_mark(self._notes, note, (total, key))[0]

    def _metrics(self, wire: Any, seen: Any) -> Metrics:
        line = user_line()
        label = Private(TAKING_PART, -1, line)
        marked = tree_mark(self._notes, Note("seen", line, label=label), dict(seen))
        return super()._metrics(wire, marked)

    def _count(self, lost: jax.Array, records: jax.Array) -> None:
        """Nothing: what is counted never leaves the engine."""

    def _agreed(self, protocol: Protocol, key: Key, messages: PyTree, reason: str) -> PyTree:
        slots = self._sampler.slots
        everyones = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf[0], (slots, *leaf.shape[1:])), messages
        )
        outcome = agreed(protocol, key, everyones)[0]
        return self._shown(outcome, key, Given(unprotected(reason)))

    def _stored(self, own: PyTree, new: PyTree) -> PyTree:
        stored = jax.tree.map(lambda leaf, rows: jnp.broadcast_to(rows[0], leaf.shape), own, new)
        note = Note("store", user_line(), self._call)
        return tree_mark(self._notes, note, (own, stored))[1]  # the rows of all others stay


def _shapes(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def watched_shard(notes: Notes, call: int, held: PyTree) -> type[Shard]:
    """The shard of the client of a cohort's call, which holds these records."""
    own_records = {id(leaf) for leaf in jax.tree.leaves(held)}

    class WatchedShard(Shard):
        def private_mean(
            self,
            key: Key,
            gradients: Any,
            params: Params,
            *,
            records: Sampler,
            mechanism: RecordMechanism,
        ) -> Params:
            line = user_line()
            others = [x for x in jax.tree.leaves(self.examples) if id(x) not in own_records]
            tree_mark(notes, Note("changed", line), others)
            batch = Note("source", line, label=Private("records of a batch", len(notes), line))
            own = tree_mark(notes, batch, jax.tree.map(jnp.zeros_like, self.examples))
            mean = Shard(own, jnp.int32(0), self.round).private_mean(
                key, gradients, params, records=records, mechanism=mechanism
            )
            like = _shapes(params)
            note = Note("mean", line, call, batch.label, mechanism, records=records, like=like)
            note.gradients, note.generator = gradients, generator_of(key)
            bounds = jax.tree.leaves(getattr(mechanism.in_round(self.round), "clip_norm", ()))
            bound = jnp.stack([jnp.float32(c) for c in bounds] or [jnp.float32(0)])
            return tree_mark(notes, note, (mean, bound, self._of_call(key)))[0]

    return WatchedShard


_HERE = os.path.dirname(os.path.dirname(__file__))
_OURS = (
    "rounds/cohort",
    "rounds/client_shard",
    "rounds/one_round",
    "certification/marked_cohort",
    "certification/trace",
)
_ENGINE = {os.path.join(_HERE, *f"{name}.py".split("/")) for name in _OURS}
JAX = os.path.dirname(jax.__file__)


def user_line() -> str:
    """File and line of what called the cohort."""
    frame: Any = sys._getframe(1)
    while frame and (
        frame.f_code.co_filename in _ENGINE or frame.f_code.co_filename.startswith(JAX)
    ):
        frame = frame.f_back
    return place(frame.f_code.co_filename, frame.f_lineno) if frame else "?"
