"""Whole training runs: a compiled scan over rounds, evaluation every n of them, a leading axis of seeds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from fedpriv import distributed
from fedpriv.codecs import Wire
from fedpriv.compilation import compiled, on_its_own
from fedpriv.federation import Federation, stack
from fedpriv.fitting import fitted
from fedpriv.history import DivergedError, Evaluation, History, add_traffic, divergence, means
from fedpriv.strategy import Strategy, default, spmd, sum_over, use
from fedpriv.streamed_run import one_per_seed, streamed_chunk
from fedpriv.streaming import StreamedFederation
from fedpriv.types import Algorithm, Example, Key, Metrics, Params, PyTree, State
from fedpriv.vectors import dimension

Score = Callable[[Params, Example], dict[str, jax.Array]]
Measure = Callable[[State, Federation], dict[str, jax.Array]]


def simulate(
    algorithm: Algorithm,
    params: Callable[[Key], Params] | Params,
    federation: Federation | StreamedFederation | Sequence[Federation | StreamedFederation],
    test: Example,
    *,
    score: Score,
    rounds: int,
    every: int = 1,
    seeds: Sequence[int] = (0,),
    strategy: Strategy | None = None,
    measure: Measure | None = None,
    on_evaluation: Callable[[Evaluation], object] | None = None,
) -> History:
    """Trains `algorithm` for `rounds` rounds with every seed, evaluating every `every` rounds and at the end.

    Seed s has the root key `jax.random.key(s)`: `fold_in(root, t)` is the key of round t (from 1), `fold_in(root, 0)`
    that of the initial parameters. The partition is not drawn here: pass one federation per seed to vary it.

    With several processes (`fedpriv.distributed`) all call it with the same arguments, and all get the results.

    Args:
      algorithm: what to train.
      params: key -> initial parameters, or the parameters.
      federation: for all seeds, or one per seed (over the same examples, unless they are streamed).
      test: test examples, leaves [n, ...].
      score: (params, example) -> {"correct", "loss", "weight"} for ONE example, as `Model.score`.
      strategy: how clients are laid out; by default `fedpriv.strategy.default()`.
      measure: (state, federation) -> {name: f32[]}, further numbers of every evaluation, such as
        `measures.heterogeneity`; runs on the device.
      on_evaluation: called with each `Evaluation` as soon as it is there.

    Raises:
      ValueError: rounds, every or the number of seeds below 1, what the algorithm's `init` finds wrong, arguments that
        are not the same in every process, or what `one_per_seed` and `streamed_chunk` find wrong with a streamed
        federation.
      DivergedError: a model or its test loss became NaN or infinite; says in which round, with the likely cause.
    """
    for name, value in {"rounds": rounds, "every": every, "number of seeds": len(seeds)}.items():
        if value < 1:
            raise ValueError(f"{name}: {value} is not at least 1")
    with use(strategy or default()) as strategy, ExitStack() as cleanup:
        federations = _per_seed(federation, len(seeds))
        roots = jnp.stack([jax.random.key(s) for s in seeds])
        state = _initial(algorithm, params, federations, roots)
        if strategy.mesh.is_multi_process:
            settings = (rounds, every, list(seeds))
            distributed.check_equal(
                settings=settings, federation=federations, test=test, initial_state=state
            )
        history, began = History(tuple(seeds)), time.perf_counter()
        state, roots, test = distributed.replicate((state, roots, test), strategy.mesh)
        if isinstance(federations, Federation):
            federations = distributed.replicate(federations, strategy.mesh)
            fn = partial(_chunk, algorithm, score, measure or _nothing, rounds, every)
            chunk = _compiled(fn, (state, federations, roots, test, 0), strategy)
            history.compile_seconds = time.perf_counter() - began
            population = federations.num_clients
        else:
            if measure:
                raise ValueError("measure: it would need all records; use a Federation in memory")
            state = [jax.tree.map(lambda leaf, s=s: leaf[s], state) for s in range(len(seeds))]
            step, scores = partial(_one_round, algorithm), partial(evaluate, score)
            where = NamedSharding(strategy.mesh, PartitionSpec())
            chunk = cleanup.enter_context(
                streamed_chunk(step, scores, federations, state, roots, rounds, every, where)
            )
            population = federations[0].num_clients
        sent, received = [0] * len(seeds), [0] * len(seeds)
        for start in range(0, rounds, every):
            began = time.perf_counter()
            state, seen = chunk(state, federations, roots, test, start)
            metrics, finite, scores, measures = jax.device_get(seen)
            finite = np.array(finite)
            end = min(start + every, rounds)
            finite[:, end - start - 1] &= np.isfinite(scores["loss"])
            if not finite.all():
                raise DivergedError(divergence(finite, start, seeds), history)
            add_traffic(sent, "uplink", metrics, end - start)
            add_traffic(received, "downlink", metrics, end - start)
            per_client = 8e6 * population
            evaluation = Evaluation(
                end,
                scores["correct"] / scores["weight"],
                scores["loss"] / scores["weight"],
                np.array(sent) / per_client,
                np.array(received) / per_client,
                means(metrics.get("diagnostics", {}), end - start),
                time.perf_counter() - began,
                measures,
            )
            history.evaluations.append(evaluation)
            if on_evaluation:
                on_evaluation(evaluation)
        history.state = distributed.local(_stacked(state) if isinstance(state, list) else state)
    return history


def _compiled(
    make: Callable[[], Callable[..., tuple]], args: tuple, strategy: Strategy
) -> Callable[..., tuple]:
    """The chunk that `make` makes, compiled for `args`, with as many clients side by side as fit.

    It is made anew for every layout: JAX keeps the trace of a function that it has seen.
    """
    fitting = fitted(strategy, lambda: on_its_own(spmd(make()), args, [0]))
    with use(fitting):
        return compiled(spmd(make()), args, donate_argnums=[0])


def _nothing(state: State, federation: Federation) -> dict[str, jax.Array]:
    return {}


def _per_seed(federation: Any, seeds: int) -> Federation | list[StreamedFederation]:
    if isinstance(federation, Federation | StreamedFederation):
        federation = [federation] * seeds
    if len(federation) != seeds:
        raise ValueError(
            f"federation: {len(federation)} given for {seeds} seeds; give one, or one per seed"
        )
    if any(isinstance(f, StreamedFederation) for f in federation):
        return one_per_seed(federation)
    return stack(federation)


def _initial(
    algorithm: Algorithm,
    params: Any,
    federation: Federation | list[StreamedFederation],
    roots: Key,
) -> State:
    init = params if callable(params) else lambda _: params
    if isinstance(federation, Federation):
        one = (federation.rows, federation.size, federation.public)
        # Slices on the host, and one program that stacks: on the device, every shape would be a program to compile.
        one = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[0]), one)
        first: Any = Federation(federation.examples, *one)
    else:
        first = federation[0].empty()
    return _stacked([algorithm.init(init(jax.random.fold_in(root, 0)), first) for root in roots])


def _stacked(states: list[State]) -> State:
    return jax.jit(lambda states: jax.tree.map(lambda *leaves: jnp.stack(leaves), *states))(states)


def _one_round(
    algorithm: Algorithm, root: Key, t: jax.Array, state: State, federation: Any
) -> tuple[State, tuple[Metrics, jax.Array]]:
    """Round t + 1: the state, its metrics and whether the model is finite."""
    state, metrics = algorithm.round(jax.random.fold_in(root, t + 1), state, federation)
    model = jax.tree.map(jnp.int32, Wire(dimension(state.params)))
    return state, ({"downlink": model} | metrics, _finite(state))


def _chunk(
    algorithm: Algorithm, score: Score, measure: Measure, rounds: int, every: int
) -> Callable[..., Any]:
    """`every` rounds and an evaluation for each seed; one trace serves the whole run, its last chunk included."""

    def one_seed(args: tuple, examples: PyTree, test: Example, start: jax.Array) -> tuple:
        state, (rows, size, public), root = args
        federation = Federation(examples, rows, size, public)

        def step(state: State, t: jax.Array) -> tuple:
            def run(state: State) -> tuple:
                return _one_round(algorithm, root, t, state, federation)

            if rounds % every == 0:
                return run(state)
            _, (metrics, _) = jax.eval_shape(run, state)
            idle = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), metrics)
            done = t >= rounds
            return lax.cond(done, lambda s: (s, (idle, jnp.bool_(True))), run, state)

        metrics: Metrics
        finite: jax.Array
        state, (metrics, finite) = lax.scan(step, state, start + jnp.arange(every))
        scores = evaluate(score, state.params, test)
        return state, (metrics, finite, scores, measure(state, federation))

    def chunk(
        state: State, federation: Federation, roots: Key, test: Example, start: jax.Array
    ) -> tuple:
        per_seed = (federation.rows, federation.size, federation.public)
        return lax.map(
            lambda args: one_seed(args, federation.examples, test, start), (state, per_seed, roots)
        )

    return chunk


def evaluate(
    score: Score, params: Params, examples: Example, batch_size: int = 250
) -> dict[str, jax.Array]:
    """The sums of `score` over all examples (leaves [n, ...]), in batches laid out like clients."""
    n = jax.tree.leaves(examples)[0].shape[0]
    batches = -(-n // batch_size)

    def batched(leaf: jax.Array) -> jax.Array:
        padding = [(0, batches * batch_size - n)] + [(0, 0)] * (leaf.ndim - 1)
        return jnp.pad(leaf, padding).reshape(batches, batch_size, *leaf.shape[1:])

    def batch_sum(batch: Example, mask: jax.Array) -> tuple[PyTree, tuple]:
        sums = jax.vmap(score, in_axes=(None, 0))(params, batch)
        return jax.tree.map(lambda s: jnp.sum(jnp.where(mask, s, 0.0)), sums), ()

    mask = (jnp.arange(batches * batch_size) < n).reshape(batches, batch_size)
    batches_of = jax.tree.map(batched, examples)
    return sum_over(batch_sum, jnp.ones(batches, bool), batches_of, mask)[0]


def _finite(state: State) -> jax.Array:
    leaves = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(state.params)]
    return jnp.all(jnp.stack(leaves))
