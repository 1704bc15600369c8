"""Runs whose clients write down when they take part, and what draws alone say of that."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from correlated_runs import CLIP, FEDERATION, ROUNDS, SIGMA, N, gradient_of

import fedpriv as fp
from fedpriv.proof.stream import participation_key, root_of, schedule_key
from fedpriv.rounds.samplers import parts_of
from fedpriv.rounds.scheduled_samplers import cohort_drawn

GAUSSIAN = fp.gaussian(CLIP, SIGMA)
STREAMED = fp.StreamedFederation.from_arrays(
    jax.tree.map(np.asarray, FEDERATION.examples), list(np.asarray(FEDERATION.rows))
)


class Recorded(NamedTuple):
    """With a table of who took part when, which the clients keep."""

    params: dict
    round: jax.Array
    table: jax.Array


def recording(sampler, mechanism=GAUSSIAN):
    """Descent whose clients each write down the rounds in which they take part."""

    def init(params, federation):
        return Recorded(params, jnp.int32(0), jnp.zeros((N, ROUNDS), bool))

    def round(key, state, cohort):
        def client(key, shard, mine):
            message = gradient_of(state.params, key, shard)
            return fp.Sent(message, own=mine.at[shard.round].set(True))

        total, metrics, table = cohort.sum(client, key, mechanism=mechanism, own=state.table)
        params = jax.tree.map(lambda p, s: p - s / cohort.expected_size, state.params, total)
        return Recorded(params, state.round + 1, table), metrics

    return fp.Algorithm(init, round, sampler)


def drawn_for(sampler, seeds):
    """bool[seeds, N, ROUNDS], by the draws alone, with the keys of the engine."""
    tables = np.zeros((len(seeds), N + 1, ROUNDS), bool)
    first = 0
    for place, (count, part) in enumerate(parts_of(sampler, ROUNDS)):

        @jax.jit
        def draw(root, t, memory, part=part, place=place):
            keys = participation_key(root, t), schedule_key(root, place)
            return cohort_drawn(part, *keys, t, memory)

        for table, seed in zip(tables, seeds, strict=True):
            memory = part.first_memory()
            for t in range(first, first + count):
                drawn, memory = draw(root_of(jax.random.key(seed)), jnp.int32(t), memory)
                table[np.asarray(drawn.ids)[np.asarray(drawn.mask)], t] = True
        first += count
    return tables[:, :N]
