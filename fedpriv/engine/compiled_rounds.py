"""The compiled part of a run: some rounds and an evaluation, for a leading axis of seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpriv.core.array_arguments import check_leaves
from fedpriv.core.complaints import require
from fedpriv.core.types import Example, Key, Metrics, Params, PyTree, State
from fedpriv.core.user_code import names_user_code
from fedpriv.core.user_functions import asked
from fedpriv.data.federation import Federation
from fedpriv.devices.layout import sum_over
from fedpriv.engine.history import ClientValues
from fedpriv.models.score import Score, diverged, is_finite, summed
from fedpriv.proof.program import RoundProgram
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.one_round import Carried, round_in_run
from fedpriv.rounds.sent import check_diagnostics

if TYPE_CHECKING:
    from fedpriv.data.streaming import StreamedFederation

ScoreFn = Callable[[Params, Example], dict[str, jax.Array]]
Measured = Mapping[str, jax.Array | ClientValues]
Measure = Callable[[State, Any], Measured]
"""(state, federation) -> numbers by name, and values of single clients by kind; within the compiled run, or on the host
for a `StreamedFederation`."""


class Training(NamedTuple):
    """What trains: the arguments of `simulate` that its chunks depend on, checked and one per seed.

    Attributes:
      federations: with a leading axis of seeds, or a list of streamed ones.
      roots: key[seeds].
      programs: of the round, as they were certified.
      algorithm, test, score, measure, rounds, every: as `simulate`.
    """

    algorithm: Algorithm
    programs: tuple[RoundProgram, ...]
    federations: Federation | list[StreamedFederation]
    roots: Key
    test: Example
    score: ScoreFn
    measure: Measure | None
    rounds: int
    every: int


@names_user_code
def numbered_round(
    algorithm: Algorithm,
    programs: Sequence[RoundProgram],
    root: Key,
    t: jax.Array,
    carried: Carried,
    federation: Any,
) -> tuple[Carried, tuple[Metrics, jax.Array]]:
    """Round t + 1 (t: i32[]): what is carried on, its metrics and whether the model is finite, bool[].

    Args:
      programs: as `round_in_run`.
    """
    carried, metrics = round_in_run(algorithm, programs)(root, carried, federation, t)
    return carried, (metrics, _finite(carried.state))


def next_evaluation(done: int, rounds: int, every: int) -> int:
    """The round of the next evaluation: a multiple of `every`, wherever an earlier call ended, or the last round."""
    return min(done + every - done % every, rounds)


def rounds_of_seeds(
    algorithm: Algorithm,
    programs: Sequence[RoundProgram],
    score: ScoreFn,
    measure: Measure,
    every: int,
) -> Callable[..., Any]:
    """Rounds `start` to `end`, `every` at most, and an evaluation, for each seed.

    The program does not know how many rounds a run has: so those of a shorter run have the same bits.
    """

    def one_seed(
        args: tuple, examples: PyTree, test: Example, start: jax.Array, end: jax.Array
    ) -> tuple:
        carried, tables, root = args
        federation = replace(tables, examples=examples)

        @jax.jit  # so that it is traced once
        def run(carried: Carried, t: jax.Array) -> tuple:
            return numbered_round(algorithm, programs, root, t, carried, federation.for_training)

        def step(t: jax.Array, so_far: tuple) -> tuple:
            carried, seen = so_far
            carried, of_round = run(carried, t)
            return carried, jax.tree.map(lambda all, x: all.at[t - start].set(x), seen, of_round)

        _, (like, _) = jax.eval_shape(run, carried, start)
        unseen = jax.tree.map(lambda x: jnp.zeros((every, *x.shape), x.dtype), like)
        so_far = carried, (unseen, jnp.ones(every, bool))
        metrics: Metrics
        finite: jax.Array
        carried, (metrics, finite) = lax.fori_loop(start, end, step, so_far)
        state = carried.state
        scores = evaluate(score, state.params, test)
        return carried, (metrics, finite, scores, measured(measure, state, federation))

    def chunk(
        carried: Carried,
        federation: Federation,
        roots: Key,
        test: Example,
        start: jax.Array,
        end: jax.Array,
    ) -> tuple:
        tables = replace(federation, examples=())
        return lax.map(
            lambda args: one_seed(args, federation.examples, test, start, end),
            (carried, tables, roots),
        )

    return chunk


def of_seed(federations: Federation | list[StreamedFederation], s: int) -> Any:
    """The federation of one seed, as a round sees it."""
    if not isinstance(federations, Federation):
        return federations[s].empty()
    # Slices on the host: on the device, every shape would be a program to compile.
    tables = jax.tree.map(
        lambda x: jnp.asarray(np.asarray(x)[s]), replace(federations, examples=())
    )
    return replace(tables, examples=federations.examples)


def measured(measure: Measure, state: State, federation: Any) -> Measured:
    """What a measure gives back, within the compiled run.

    Raises:
      ValueError: it is no function of these arguments, or gives back other than numbers by name and values of clients
        by kind.
    """
    given = asked("measure", measure, "(state, federation)", state, federation)
    if not isinstance(given, Mapping):
        check_diagnostics("measure", given)  # raises
    check_diagnostics("measure", {k: v for k, v in given.items() if not _of_clients(v)})
    for kind, values in given.items():
        if _of_clients(values):
            _check_clients(f"measure[{kind!r}]", values)
    return dict(given)


def _of_clients(value: Any) -> bool:
    return isinstance(value, ClientValues)


def _check_clients(name: str, values: ClientValues) -> None:
    """Raises ValueError: not one number for each of the clients."""
    check_leaves(name, values)
    each = {"clients": values.clients, "records": values.records, **values.metrics}
    for field, leaf in each.items():
        fits = jnp.ndim(leaf) == 1 and len(leaf) == len(values.clients)
        require(fits, f"{name}: {field}", leaf, "give an array with one number for each client")


class Scores(NamedTuple):
    """What a score says of a model, within the compiled run.

    Attributes:
      metrics: name -> f32[].
      diverged: bool[], see `fedpriv.models.score.diverged`.
    """

    metrics: dict[str, jax.Array]
    diverged: jax.Array


def evaluate(score: ScoreFn, params: Params, examples: Example, batch_size: int = 250) -> Scores:
    """The metrics of `score` over all examples (leaves [n, ...]), in batches laid out like clients."""
    scored, n = Score.of(score), jax.tree.leaves(examples)[0].shape[0]
    batches = -(-n // batch_size)

    def batched(leaf: jax.Array) -> jax.Array:
        padding = [(0, batches * batch_size - n)] + [(0, 0)] * (leaf.ndim - 1)
        return jnp.pad(leaf, padding).reshape(batches, batch_size, *leaf.shape[1:])

    def batch_sum(batch: Example, mask: jax.Array) -> tuple[PyTree, tuple]:
        sums = jax.vmap(scored, in_axes=(None, 0))(params, batch)
        return summed(sums, mask), ()

    mask = (jnp.arange(batches * batch_size) < n).reshape(batches, batch_size)
    batches_of = jax.tree.map(batched, examples)
    sums, _ = sum_over(batch_sum, jnp.ones(batches, bool), batches_of, mask)
    metrics = scored.metrics(sums)
    return Scores(metrics, diverged(metrics, is_finite(sums)))


def _finite(state: State) -> jax.Array:
    leaves = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(state.params)]
    return jnp.all(jnp.stack(leaves))
