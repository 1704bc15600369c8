"""Thousands of whole trainings by one compiled program, for what an audit keeps of each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from fedpriv.certification.checks import check_launch
from fedpriv.certification.initial_state import unreadable
from fedpriv.core.types import Key, PyTree
from fedpriv.data.federation import Federation
from fedpriv.devices.layout import Strategy, use
from fedpriv.engine.compiled_rounds import numbered_round
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.one_round import Carried
from fedpriv.rounds.scheduled_samplers import first_memories

CPU_RUNS, OTHER_RUNS = 8, 64
"""Trainings of a device in one call: on a CPU one after the other, elsewhere side by side."""


class Outcome(NamedTuple):
    """What is kept of n trainings with a canary each.

    Attributes:
      present: bool[n], whether the canary took part.
      scores: f32[3, n], for each of `fedpriv.attacks.canaries.SCORED_VIEWS`.
      finite: bool[n], whether every model was.
    """

    present: np.ndarray
    scores: np.ndarray
    finite: np.ndarray


Trainer: TypeAlias = Callable[[np.ndarray], Outcome]
"""Seeds, i64[runs of one call] -> their outcome."""


def compiled_trainer(
    algorithm: Algorithm,
    params: PyTree,
    federation: Federation,
    rounds: int,
    strategy: Strategy,
) -> tuple[Trainer, int]:
    """What trains, and with how many seeds a call: each as `simulate` does, without evaluation.

    All train on the same clients, from the same initial model, which an adversary knows. Every run has one device to
    itself, so that its numbers depend on no other.

    Args:
      algorithm: of `with_canaries`, with one canary.
      params: the initial model.

    Raises:
      ValueError, LeakError: what `simulate` refuses before its first round.
    """
    traced = check_launch(algorithm, params, federation)
    memory = traced.first_memory(rounds)
    begin, private = unreadable(algorithm, federation)
    devices = jax.local_devices()
    on_cpu = devices[0].platform == "cpu"
    runs = len(devices) * (CPU_RUNS if on_cpu else OTHER_RUNS)

    def many(roots: Key, params: PyTree, federation: Federation, private: PyTree) -> Any:
        def one(root: Key) -> tuple[jax.Array, ...]:
            state = begin(params, private)
            first = Carried(state, memory, first_memories(algorithm.sampler))
            numbered = partial(numbered_round, algorithm, traced.programs, root)
            state, finite = _trained(numbered, first, federation, rounds)
            return state.present[0], state.scores[:, 0], finite

        return lax.map(one, roots, batch_size=None if on_cpu else OTHER_RUNS)

    whole, each = PartitionSpec(), PartitionSpec("runs")
    over: Any = {"in_specs": (each, whole, whole, whole), "out_specs": each, "check_vma": False}
    with use(Strategy(strategy.clients, 1)):
        program = jax.jit(jax.shard_map(many, mesh=Mesh(np.array(devices), ("runs",)), **over))
        compiled = program.lower(_roots(np.arange(runs)), params, federation, private).compile()

    def train(seeds: np.ndarray) -> Outcome:
        present, scores, finite = jax.device_get(
            compiled(_roots(seeds), params, federation, private)
        )
        return Outcome(present, scores.T, finite)

    return train, runs


def _trained(
    numbered: Callable[..., Any], first: Carried, federation: Federation, rounds: int
) -> tuple[Any, jax.Array]:
    """The last state, and whether all models were finite, bool[]."""

    def step(carried: Carried, t: jax.Array) -> tuple[Carried, jax.Array]:
        after, (_, finite) = numbered(t, carried, federation.for_training)
        return after, finite

    carried, finite = lax.scan(step, first, jnp.arange(rounds))
    return carried.state, finite.all()


def _roots(seeds: np.ndarray) -> Key:
    with jax.enable_x64(True):  # the higher 32 bits of a seed
        return jax.vmap(jax.random.key)(np.asarray(seeds, np.int64))
