"""Clients that hold unequal numbers of records, and what trains on them."""

import jax
import jax.numpy as jnp
import optax
from small import one_round, squared, start

import fedpriv as fp

SIZES = (1, 2, 7, 40)


GRADIENTS = fp.per_example(squared)


CLIP, RATE, STEPS, ROUNDS = 0.8, 0.3, 3, 2


def steps(records, mechanism=None, count=STEPS, rate=RATE):
    used = mechanism or fp.gaussian(CLIP, 0.0)
    return fp.LocalSteps(GRADIENTS, records, count, lambda t: optax.sgd(rate), used)


def trained(algorithm, federation, rounds=ROUNDS):
    state = algorithm.init(start(), federation)
    for t in range(rounds):
        state, _ = one_round(algorithm)(jax.random.key(t), state, federation)
    return state


WALL = (25, 60, 90, 231, 100, 31, 177, 48)


LEAF = (5, 662, 40, 23, 100, 9, 77, 310)


def three_ways(sizes):
    rate = 0.1
    return {
        "secret": fp.poisson(max(sizes), rate),
        "public, Poisson": fp.PublicSizes(sizes, rate=rate),
        "public, batches": fp.PublicSizes(sizes, batch=10),
    }


def algorithm_of(make, records, multiplier, rounds=4):
    return make(steps(records, fp.gaussian(CLIP, multiplier), 2), sampler=fp.fixed_size(8, 4))


def sending(of_client, unit="record", **how):
    """An algorithm whose clients send what `of_client` makes of (key, params, shard)."""

    def one(key, state, cohort):
        total, metrics, _ = cohort.sum(
            lambda key, shard: of_client(key, state.params, shard),
            key,
            mechanism=fp.ALREADY_PRIVATE,
            **how,
        )
        params = jax.tree.map(jnp.add, state.params, total)
        return state._replace(params=params, round=state.round + 1), metrics

    return fp.Algorithm(fp.start, one, fp.everyone(8), unit)


def mean_of(key, params, shard, records=None):
    records = records or fp.poisson(231, 0.1)
    return shard.private_mean(GRADIENTS, params, records=records, mechanism=fp.gaussian(1.0, 4.0))
