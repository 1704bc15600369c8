"""The rounds of a run whose records are fetched while the round before them runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from fedpriv.core.types import Key, PyTree
from fedpriv.data.cohort_federation import CohortFederation
from fedpriv.data.streaming import StreamedFederation
from fedpriv.devices import distributed
from fedpriv.devices.closed_arrays import Jitted, of_shapes
from fedpriv.devices.fitting import compiled_to_fit
from fedpriv.devices.layout import Strategy, current, spmd, use
from fedpriv.engine.compiled_rounds import next_evaluation
from fedpriv.rounds.one_round import Carried, who_takes_part
from fedpriv.rounds.samplers import Opening
from fedpriv.rounds.scheduled_samplers import AnySampler

Step = Callable[[Key, jax.Array, Carried, CohortFederation], tuple[Carried, PyTree]]
"""(root key, rounds done, carried, federation) -> (carried, what is to be known of the round)."""


def one_per_seed(federations: Sequence[StreamedFederation]) -> list[StreamedFederation]:
    """Federations that can be run side by side: alike, and with room for the largest client of all.

    Raises:
      ValueError: another number of clients or of public rows, or other kinds of examples; federations in memory among
        them.
    """
    for i, other in enumerate(federations):
        if not isinstance(other, StreamedFederation):
            raise ValueError(f"federation[{i}] is in memory, others are streamed; give one kind")
        for field, a, b in zip(
            ("num_clients", "public rows", "records held out", "examples"),
            _alike(federations[0]),
            _alike(other),
            strict=True,
        ):
            if a != b:
                raise ValueError(
                    f"federation[{i}] has {field}={b}, federation[0] has {a}; give every seed the same"
                )
    same = {id(f): f for f in federations}
    if len(same) == 1:
        return [*federations]
    capacity = max(f.capacity for f in federations)
    most = np.max([f.most_records for f in same.values()], axis=0)
    wide = {key: replace(f, capacity=capacity, most=most) for key, f in same.items()}
    return [wide[id(f)] for f in federations]


def _alike(federation: StreamedFederation) -> tuple[int, int, bool, PyTree]:
    """What must be the same for all seeds."""
    records = jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape[1:])}", federation.examples)
    some = federation.held_out_rows is not None
    return federation.num_clients, len(federation.public), some, records


@contextmanager
def streamed_chunk(
    make: Callable[[], Step],
    sampler: AnySampler | Opening,
    evaluation: tuple[Callable[..., Any], Callable[..., Mapping[str, Any]]],
    federations: Sequence[StreamedFederation],
    roots: Sequence[Key],
    participation: Sequence[tuple[PyTree, ...]],
    plan: tuple[int, int, int],
    mesh: Mesh,
) -> Iterator[tuple[Callable[..., tuple[list[Carried], tuple]], Callable[[], Strategy]]]:
    """What `simulate` calls for `every` rounds and an evaluation of each seed, and fetches results once from.

    And what tells the layout of clients, once there was a round.

    Args:
      make: makes a round, (root, rounds done, carried, federation) -> (carried, (metrics, finite)).
      sampler: draws the cohorts.
      evaluation: (params, test) -> scores, and (state, federation) -> what is measured beside them.
      federations, roots: of each seed.
      participation: of each seed, what its sampler remembers before the first of these rounds.
      plan: rounds done before, rounds in all, rounds between evaluations.
      mesh: the devices.

    Raises:
      ValueError: when it is called, what `StreamedFederation.read` finds wrong.
    """
    done, rounds, every = plan

    def order() -> Iterator[tuple[int, int]]:
        start = done
        while start < rounds:
            end = next_evaluation(start, rounds, every)
            yield from ((s, t) for s in seeds for t in range(start, end))
            start = end

    seeds = range(len(roots))
    evaluate, measure = evaluation
    scores = Jitted(spmd(evaluate))

    def chunk(carried: list[Carried], test: PyTree, start: int, end: int) -> tuple:
        seen: list[list] = [[] for _ in seeds]
        for s, of_seed in enumerate(seen):
            for _ in range(start, end):
                carried[s], out = running.run(carried[s])
                of_seed.append(out)
        states = [each.state for each in carried]
        scored = [scores(state.params, test) for state in states]
        measured = [measure(*each) for each in zip(states, federations, strict=True)]
        seen, scored, measured = jax.device_get((seen, scored, measured))
        metrics, finite = _stacked([_stacked(of_seed) for of_seed in seen])
        return carried, (metrics, finite, _stacked(scored), _stacked(measured))

    given = sampler, federations, roots, participation
    with StreamedRounds(make, *given, order(), mesh) as running:
        yield chunk, lambda: running.layout


def _stacked(trees: list) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


class StreamedRounds:
    """Rounds of several seeds, one after another, in an order that is known from the start.

    A thread reads the records that the next round asks for and sends them to the device. It begins when the round
    before the one that runs is done, so that the device holds the records of two rounds at most. Used in a `with`
    statement, at whose end the thread ends.

    Args:
      make: makes a round, anew for every layout of clients.
      sampler: draws the cohorts.
      federations, roots, participation: of each seed, as `streamed_chunk`.
      order: (seed, rounds done) of the rounds to come.
      mesh: the devices.
    """

    def __init__(
        self,
        make: Callable[[], Step],
        sampler: AnySampler | Opening,
        federations: Sequence[StreamedFederation],
        roots: Sequence[Key],
        participation: Sequence[tuple[PyTree, ...]],
        order: Iterable[tuple[int, int]],
        mesh: Mesh,
    ):
        self._federations, self._roots, self._mesh = federations, roots, mesh
        each = {
            id(f): distributed.replicate(f.empty(), mesh)
            for f in {id(f): f for f in federations}.values()
        }
        self._empty = [each[id(f)] for f in federations]
        self._who, self._local = _draws(sampler), [distributed.local(root) for root in roots]
        # Copies: a round gives up what it is given.
        self._participation = [jax.tree.map(jnp.copy, distributed.local(p)) for p in participation]
        self._make, self._strategy = make, current()
        self._steps: dict[Any, Callable[..., tuple]] = {}
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

    def run(self, carried: Carried) -> tuple[Carried, PyTree]:
        """Starts the next round without waiting for it: (what is carried on, what is to be known of the round)."""
        assert self._next is not None
        seed, t, fetched = self._next
        federation = fetched.result()
        # Before the round is started: a device that does one thing after another would find its ids after the round.
        self._next = self._fetch()
        arguments = self._roots[seed], t, carried, federation
        with use(self._strategy):
            carried, seen = self._step(arguments)(*arguments)
        self._done = jax.tree.leaves(seen)[0]
        return carried, seen

    def _step(self, arguments: tuple) -> Callable[..., tuple]:
        """The round for cohorts of this shape.

        The first decides how many clients are side by side: as many as fit beside the records of two rounds.
        """
        shapes = of_shapes(arguments)
        if shapes not in self._steps:
            step, self._strategy = compiled_to_fit(self._make, arguments, [2], self._strategy)
            self._steps[shapes] = step
        return self._steps[shapes]

    def _fetch(self) -> tuple[int, np.int32, Future] | None:
        coming = next(self._order, None)
        if coming is None:
            return None
        seed, t = coming
        ids, self._participation[seed] = self._who(
            self._local[seed], np.int32(t), self._participation[seed]
        )
        return seed, np.int32(t), self._pool.submit(self._read, seed, ids, self._done)

    def _read(self, seed: int, ids: jax.Array, before: jax.Array | None) -> CohortFederation:
        jax.block_until_ready(before)
        read = self._federations[seed].read(np.asarray(ids))
        holders, holder_records = distributed.replicate(read, self._mesh)
        return replace(self._empty[seed], holders=holders, holder_records=holder_records)


Draws = Callable[[Key, Any, tuple[PyTree, ...]], tuple[jax.Array, tuple[PyTree, ...]]]
"""(root, rounds done, what the sampler remembers) -> (ids i32[slots], what it remembers then)."""


def _draws(sampler: AnySampler | Opening) -> Draws:
    """Of those who will take part; the number of clients where nobody does."""

    def drawing(part: int, sampler: AnySampler) -> Draws:
        def ids(root: Key, t: jax.Array, participation: tuple[PyTree, ...]) -> tuple:
            after = list(participation)
            drawn, after[part] = who_takes_part(sampler, part, root, t, after[part])
            return jnp.where(drawn.mask, drawn.ids, sampler.accounting.population), tuple(after)

        return jax.jit(ids)

    if not isinstance(sampler, Opening):
        return drawing(0, sampler)
    first, then, opened = drawing(0, sampler.first), drawing(1, sampler.then), sampler.rounds
    return lambda root, t, participation: (first if t < opened else then)(root, t, participation)
