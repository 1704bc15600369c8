"""The cohort of a round that is traced: one client stands for all, and marks say what is private and released."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedpriv.certification.marks import (
    ChangedRecords,
    ClientNumber,
    Collected,
    Diagnostics,
    Marks,
    Mean,
    OwnState,
    Source,
    Stored,
    Sum,
    mark_tree,
)
from fedpriv.certification.privacy_labels import TAKING_PART, Private
from fedpriv.core.code_places import is_jax_file, place
from fedpriv.core.types import Key, Metrics, Params, PyTree
from fedpriv.core.user_functions import asked
from fedpriv.mechanisms.correlated import is_correlated
from fedpriv.mechanisms.mechanisms import Mechanism, unprotected
from fedpriv.rounds import client_shard, cohort, noise_stream
from fedpriv.rounds.client_shard import Shard, shard_of
from fedpriv.rounds.cohort import Cohort, Protocol, agreed
from fedpriv.rounds.noise_stream import NoiseStream
from fedpriv.rounds.private_step import PrivateStep
from fedpriv.rounds.samplers import Answer, Draw
from fedpriv.rounds.scheduled_samplers import AnySampler
from fedpriv.rounds.weighting import ByPublicSizes, Weighting


class FederationShape(NamedTuple):
    """What a marked cohort has to know of a federation.

    Attributes:
      num_clients, capacity: as `Federation`.
      like: a client's records, `jax.ShapeDtypeStruct`s [capacity, ...].
      public: number of public examples.
    """

    num_clients: int
    capacity: int
    like: PyTree
    public: int


def _of_one() -> Draw:
    answer = Answer(jnp.ones(1), jnp.ones(1), jnp.zeros(1, jnp.int32))
    return Draw(jnp.zeros(1, jnp.int32), jnp.ones(1, bool), answer)


class MarkedCohort(Cohort):
    """The cohort of a round that is traced, after `round` (i32[]) others; its `marks` are added to a list."""

    def __init__(
        self,
        round: jax.Array,
        shape: FederationShape,
        sampler: AnySampler,
        stream: NoiseStream,
        marks: Marks,
    ):
        super().__init__(round, shape, _of_one(), sampler, stream)
        self._marks = marks
        self._call = -1
        self._unperturbed: list[tuple[Mean, jax.Array]] = []

    @property
    def _drawn(self) -> Draw:
        """A cohort of one, marked: it says who takes part."""
        source = Source(Private(TAKING_PART, -1, user_line()))
        return mark_tree(self._marks, source, _of_one())

    @_drawn.setter
    def _drawn(self, drawn: Draw) -> None:
        """Nothing: it is marked anew where it is read."""

    def _draw_for_audits(self) -> None:
        return None

    @property
    def size(self) -> jax.Array:
        """i32[], marked where it says who takes part."""
        drawn = self._sampler.accounting
        if not drawn.secret or (drawn.full and drawn.of_a_round.vanish == 0):
            return jnp.int32(self._sampler.slots)
        source = Source(Private(TAKING_PART, -1, user_line()))
        return mark_tree(self._marks, source, jnp.int32(0))

    def _noise_left(self) -> jax.Array:
        """Not marked: the release's sampling says it."""
        return jnp.float32(1)

    def _staying(self) -> jax.Array:
        return jnp.int32(self._sampler.slots)

    @property
    def public(self) -> Shard:
        """Stand-ins for the public examples."""
        count, like = self._federation.public, self._federation.like
        examples = jax.tree.map(lambda s: jnp.zeros((count, *s.shape[1:]), s.dtype), like)
        return Shard(examples, jnp.int32(count), self.round)

    def _of_all(
        self, fn: Callable[..., tuple], hidden: Key, key: Key, own: PyTree
    ) -> tuple[PyTree, PyTree]:
        marks, line = self._marks, user_line()
        call = self._call = len(marks)
        label = Private("a client's data", call, line)
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), self._federation.like)
        of_client = zeros, jnp.int32(1), jnp.int32(0)
        examples, size, delay = mark_tree(marks, Source(label), of_client)
        number = mark_tree(marks, ClientNumber(label), jnp.int32(0))
        kept_before = mark_tree(marks, OwnState(line, label), own)
        rows = jax.tree.map(lambda leaf: leaf[0], kept_before)
        branch = jax.random.fold_in(hidden, 0)
        answer = Answer(delay=delay)
        shard = shard_of(branch, examples, size, self.round, number, answer)
        shard = marked_shard(marks, call, shard, self._unperturbed)
        given = (rows,) if jax.tree.leaves(own) else ()
        total, kept = fn(jax.random.fold_in(key, 0), shard, *given)
        return total, jax.tree.map(lambda leaf: leaf[None], kept)

    def _size_for(self, weighting: Weighting, shard: Shard) -> jax.Array:
        """Not private, where it is public: `check_data` compares it with the federation's."""
        return jnp.int32(1) if isinstance(weighting, ByPublicSizes) else shard.size

    def _noisy(self, used: Mechanism, key: Key, total: PyTree, step: PrivateStep) -> PyTree:
        """Correlated noise as that of this round alone, which has the same shapes."""
        if is_correlated(used):
            return asked("perturb", used.perturb, "(key, total)", key, total)
        return super()._noisy(used, key, total, step)

    def _noisy_integers(
        self, keys: tuple[Key, Key], total: jax.Array, step: PrivateStep, like: PyTree
    ) -> tuple[PyTree, Metrics]:
        noisy, wrapped = super()._noisy_integers(keys, total, step, like)
        if step.gradients is not None:
            release, bound = self._unperturbed.pop()
            noisy = mark_tree(self._marks, release, (noisy, bound))[0]
        return noisy, wrapped

    def _perturbed_by_client(
        self, used: Mechanism, shard: Shard, message: PyTree, step: PrivateStep
    ) -> PyTree:
        noisy = super()._perturbed_by_client(used, shard, message, step)
        return self._released(noisy, step)

    def _observe(self, total: PyTree, hidden: Key, step: PrivateStep) -> PyTree:
        if step.adder == "own":  # marked where each client adds its noise
            return mark_tree(self._marks, Collected(user_line()), total)
        return self._released(total, step)

    def _released(self, noisy: PyTree, step: PrivateStep) -> PyTree:
        release = Sum(user_line(), self._call, step, _shapes(noisy))
        happens = jnp.bool_(True)  # also where nothing comes of it that the round gets
        return mark_tree(self._marks, release, (noisy, happens))[0]

    def _metrics(self, wire: Any, seen: Any, of_sum: Any = None) -> Metrics:
        of_all = Diagnostics(Private(TAKING_PART, -1, user_line()))
        marked = mark_tree(self._marks, of_all, (dict(seen), dict(of_sum or {})))
        return super()._metrics(wire, *marked)

    def _count(self, lost: jax.Array, records: jax.Array) -> None:
        """Nothing: what is counted never leaves the engine."""

    @property
    def not_finite(self) -> dict[str, jax.Array]:
        """The shares, marked: they tell of messages and records past all clipping and noise."""
        source = Source(Private("how many messages or gradients are not finite", -1, user_line()))
        return mark_tree(self._marks, source, super().not_finite)

    def _agreed(self, protocol: Protocol, key: Key, messages: PyTree, reason: str) -> PyTree:
        slots = self._sampler.slots
        everyones = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf[0], (slots, *leaf.shape[1:])), messages
        )
        outcome = agreed(protocol, key, everyones)[0]
        step = PrivateStep(unprotected(reason), self._sampler, "shares")
        return self._released(outcome, step)

    def _stored(self, own: PyTree, new: PyTree) -> PyTree:
        if not jax.tree.leaves(own):
            return own
        stored = jax.tree.map(lambda leaf, rows: jnp.broadcast_to(rows[0], leaf.shape), own, new)
        meaning = Stored(user_line(), self._call)
        return mark_tree(self._marks, meaning, (own, stored))[1]  # the rows of all others stay


def _shapes(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def marked_shard(
    marks: Marks, call: int, given: Shard, unperturbed: list[tuple[Mean, jax.Array]]
) -> Shard:
    """The shard that the cohort gave to the client of its call, whose private means are marked.

    Args:
      unperturbed: gets the mark of a sum of integers, and its clip norm, for after the cohort has added the noise.
    """
    own_records = {id(leaf) for leaf in jax.tree.leaves(given.examples)}

    class MarkedShard(Shard):
        def _noisy_mean(
            self, step: PrivateStep, params: Params, rotation: Key | None = None
        ) -> Params:
            line = user_line()
            for name in ("size", "round", "client_id", "_stream"):
                if getattr(self, name) is not getattr(given, name):
                    what = "noise" if name == "_stream" else name
                    raise ValueError(
                        f"shard: its {what} was changed ({line}); leave it as the cohort gives it"
                    )
            others = [x for x in jax.tree.leaves(self.examples) if id(x) not in own_records]
            mark_tree(marks, ChangedRecords(line), others)
            batch = Private("records of a batch", len(marks), line)
            own = mark_tree(marks, Source(batch), jax.tree.map(jnp.zeros_like, self.examples))
            drawn_among = Shard(own, jnp.int32(0), self.round, _stream=self._stream)
            mean = drawn_among._noisy_mean(step, params, rotation)
            assert self._stream is not None
            used = step.mechanism.in_round(self.round)
            bounds = jax.tree.leaves(getattr(used, "clip_norm", ()))
            bound = jnp.stack([jnp.float32(c) for c in bounds] or [jnp.float32(0)])
            release = Mean(line, call, step, _shapes(params), batch, times=self._stream.times)
            if rotation is not None:
                unperturbed.append((release, bound))
                return mean
            return mark_tree(marks, release, (mean, bound))[0]

    return MarkedShard(**vars(given))


_ENGINE = cohort, client_shard, noise_stream, sys.modules[__name__]
_COHORT = [vars(module) for module in _ENGINE]


def user_line() -> str:
    """File and line of what called the marked cohort."""
    frame: Any = sys._getframe(1)
    while any(frame.f_globals is names for names in _COHORT) or is_jax_file(
        frame.f_code.co_filename
    ):
        frame = frame.f_back
    return place(frame.f_code.co_filename, frame.f_lineno)
