"""The rounds of a run whose records are fetched while the round before them runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

from fedpriv.cohort_federation import CohortFederation
from fedpriv.fitting import fitted
from fedpriv.foresight import asking, foresee
from fedpriv.strategy import Strategy, current, spmd, use
from fedpriv.streaming import StreamedFederation
from fedpriv.types import Key, PyTree, State

Step = Callable[[Key, jax.Array, State, CohortFederation], tuple[State, PyTree]]
"""(root key, rounds done, state, federation) -> (state, what is to be known of the round)."""


def one_per_seed(federations: Sequence[StreamedFederation]) -> list[StreamedFederation]:
    """Federations that can be run side by side: alike, and with room for the largest client of all.

    Raises:
      ValueError: another number of clients or of public rows, or other kinds of examples; federations in memory among
        them; a run of several processes.
    """
    if jax.process_count() > 1:
        raise ValueError(
            f"federation: a streamed one runs in 1 process, not in {jax.process_count()}; use a Federation in memory"
        )
    for i, other in enumerate(federations):
        if not isinstance(other, StreamedFederation):
            raise ValueError(f"federation[{i}] is in memory, others are streamed; give one kind")
        for field, a, b in zip(
            ("num_clients", "public rows", "examples"),
            _alike(federations[0]),
            _alike(other),
            strict=True,
        ):
            if a != b:
                raise ValueError(
                    f"federation[{i}] has {field}={b}, federation[0] has {a}; give every seed the same"
                )
    capacity = max(f.capacity for f in federations)
    return [f if f.capacity == capacity else replace(f, capacity=capacity) for f in federations]


def _alike(federation: StreamedFederation) -> tuple[int, int, PyTree]:
    """What must be the same for all seeds."""
    records = jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape[1:])}", federation.examples)
    return federation.num_clients, len(federation.public), records


@contextmanager
def streamed_chunk(
    step: Step,
    evaluation: Callable[[PyTree, PyTree], dict[str, jax.Array]],
    federations: Sequence[StreamedFederation],
    states: Sequence[State],
    roots: Sequence[Key],
    plan: tuple[int, int, int],
    where: Sharding,
) -> Iterator[tuple[Callable[..., tuple[list[State], tuple]], Callable[[], Strategy]]]:
    """What `simulate` calls for `every` rounds and an evaluation of each seed, and fetches results once from.

    And what tells the layout of clients, once there was a round.

    Args:
      step: a round, (root, rounds done, state, federation) -> (state, (metrics, finite)).
      evaluation: (params, test) -> scores.
      federations, states, roots: of each seed; the states of the first call.
      plan: rounds done before, rounds in all, rounds between evaluations.
      where: the devices.

    Raises:
      ValueError: a cohort that cannot be known in time, see `foresee`; when it is called, a round that asked for other
        clients than were foreseen, or what `StreamedFederation.read` finds wrong.
    """
    done, rounds, every = plan

    def ends(start: int) -> range:
        return range(start, min(start + every, rounds))

    seeds = range(len(roots))
    order = ((s, t) for start in range(done, rounds, every) for s in seeds for t in ends(start))
    scores = jax.jit(spmd(evaluation))

    def chunk(states: list[State], test: PyTree, start: int) -> tuple:
        seen: list[list] = [[] for _ in seeds]
        for s, of_seed in enumerate(seen):
            for _ in ends(start):
                states[s], *out = running.run(states[s])
                of_seed.append(out)
        found = jax.device_get((seen, [scores(state.params, test) for state in states]))
        (metrics, finite), foreseen = _stacked([_stacked(of_seed) for of_seed in found[0]])
        if not foreseen.all():
            t = start + int(np.argmin(foreseen.all(0))) + 1
            raise ValueError(
                f"round {t}: it asked for other clients than its key and state.round had foreseen; state.round must "
                "count the rounds, and who is drawn must not depend on how arithmetic is rounded"
            )
        return states, (metrics, finite, _stacked(found[1]), {})

    with StreamedRounds(step, federations, states[0], roots, order, where) as running:
        yield chunk, lambda: running.layout


def _stacked(trees: list) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


class StreamedRounds:
    """Rounds of several seeds, one after another, in an order that is known from the start.

    A thread reads the records that the next round asks for and sends them to the device. It begins when the round
    before the one that runs is done, so that the device holds the records of two rounds at most. Used in a `with`
    statement, at whose end the thread ends.

    Args:
      step: a round.
      federations: of each seed.
      state: of any seed, for its shapes.
      roots: of each seed.
      order: (seed, rounds done) of the rounds to come.
      where: the devices.

    Raises:
      ValueError: a cohort that cannot be known in time, see `foresee`.
    """

    def __init__(
        self,
        step: Step,
        federations: Sequence[StreamedFederation],
        state: State,
        roots: Sequence[Key],
        order: Iterable[tuple[int, int]],
        where: Sharding,
    ):
        self._federations, self._roots, self._where = federations, roots, where
        each = {
            id(f): jax.device_put(f.empty(), where)
            for f in {id(f): f for f in federations}.values()
        }
        self._empty = [each[id(f)] for f in federations]
        self._who = _foreseen(step, roots[0], state, self._empty[0])
        self._make, self._strategy = partial(_checked, step), current()
        self._step: Callable[..., tuple] | None = None
        self._order = iter(order)
        self._done: jax.Array | None = None
        self._pool = ThreadPoolExecutor(1, "fedpriv-prefetch")
        self._next: tuple[int, np.int32, Future] | None = None

    @property
    def layout(self) -> Strategy:
        """With as many clients side by side as fit, once there was a round."""
        return self._strategy

    def __enter__(self) -> StreamedRounds:
        self._next = self._fetch()
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def run(self, state: State) -> tuple[State, PyTree, jax.Array]:
        """Starts the next round without waiting for it.

        Returns:
          (state, what is to be known of the round, bool[], whether all it asked for had been foreseen).
        """
        assert self._next is not None
        seed, t, fetched = self._next
        federation = fetched.result()
        # Before the round is started: a device that does one thing after another would find its ids after the round.
        self._next = self._fetch()
        given = self._roots[seed], t, state, federation
        if self._step is None:
            self._step = self._jitted(given)
        with use(self._strategy):
            state, seen, self._done = self._step(*given)
        return state, seen, self._done

    def _jitted(self, given: tuple) -> Callable[..., tuple]:
        """The step, with as many clients side by side as fit beside the records of two rounds."""

        def compiled() -> jax.stages.Compiled:
            return jax.jit(spmd(self._make()), donate_argnums=2).lower(*given).compile()

        self._strategy = fitted(self._strategy, compiled)
        with use(self._strategy):
            return jax.jit(spmd(self._make()), donate_argnums=2)

    def _fetch(self) -> tuple[int, np.int32, Future] | None:
        coming = next(self._order, None)
        if coming is None:
            return None
        seed, t = coming
        ids = self._who(self._roots[seed], np.int32(t), self._empty[seed])
        return seed, np.int32(t), self._pool.submit(self._read, seed, ids, self._done)

    def _read(self, seed: int, ids: jax.Array, before: jax.Array | None) -> CohortFederation:
        jax.block_until_ready(before)
        read = self._federations[seed].read(np.asarray(ids))
        holders, held = jax.device_put(read, self._where)
        return replace(self._empty[seed], holders=holders, held=held)


class _Late(NamedTuple):
    """What is not known a round ahead."""

    state: State
    records: PyTree


def _foreseen(
    step: Step, root: Key, state: State, empty: CohortFederation
) -> Callable[..., jax.Array]:
    """(root, rounds done, federation without records) -> ids of those whom the round will ask for."""
    counts = [leaf is getattr(state, "round", None) for leaf in jax.tree.leaves(state)]

    def round(root: Key, t: jax.Array, empty: CohortFederation, late: _Late) -> PyTree:
        leaves, structure = jax.tree.flatten(late.state)
        leaves = [t if counter else leaf for counter, leaf in zip(counts, leaves, strict=True)]
        holders = jnp.zeros(1, jnp.int32)
        federation = replace(empty, holders=holders, held=late.records)
        return step(root, t, jax.tree.unflatten(structure, leaves), federation)

    one = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape[1:]), leaf.dtype), empty.held
    )
    return foresee(round, (root, jnp.int32(0), empty), _Late(state, one))


def _checked(step: Step) -> Callable[..., tuple[State, PyTree, jax.Array]]:
    """A step that also says whether the records of all whom it asked for were there."""

    def checked(root: Key, t: jax.Array, state: State, federation: CohortFederation) -> tuple:
        (state, seen), asked = asking(step)(root, t, state, federation)
        there = jnp.isin(asked, federation.holders) | (asked == federation.num_clients)
        return state, seen, jnp.all(there)

    return checked
