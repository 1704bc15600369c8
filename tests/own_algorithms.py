"""A DP-FedAvg, a Fed-SMP and a DP-SCAFFOLD of a user's own, each with places where a fault can be planted."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from small import regression, squared, start

import fedpriv as fp
from fedpriv.compression.sparsification import rand_k
from fedpriv.core.coordinates import gather, scatter
from fedpriv.core.trees import dimension, flatten, unflatten
from fedpriv.rounds.server_step import MEAN, server_init, server_update
from fedpriv.testing.check_algorithm import measure_parts

CLIENTS, RECORDS = 6, 3
FEDERATION = regression([RECORDS] * CLIENTS, features=14, public=4)
PARAMS = start(14)
D = dimension(PARAMS)
POISSON = fp.poisson(CLIENTS, 0.4, 5)
CLIP, SIGMA = 0.5, 1.4
GAUSSIAN = fp.gaussian(CLIP, SIGMA)
TOP_K = fp.top_k(2)
GRAD = fp.mean_grad(squared)


class State(NamedTuple):
    """Model, and whatever else a round wants to remember."""

    params: Any
    round: jax.Array
    extra: Any = ()


def starting(extra: Any = ()):
    return lambda params, federation: State(params, jnp.int32(0), extra)


def update(state, key, shard):
    """theta - theta_i, after a step of gradient descent on all of the client's records."""
    return jax.tree.map(lambda g: 0.1 * g, GRAD(state.params, shard.examples, shard.mask))


def with_update(key, shard, state):
    """A client that also reports its update, as a diagnostic."""
    mine = update(state, key, shard)
    return fp.Sent(mine, {"raw": flatten(mine)})


def stepped(state, total, size):
    return jax.tree.map(lambda p, s: p - s / size, state.params, total)


def of_clients(round, extra=(), sampler=POISSON, **more):
    return fp.Algorithm(starting(extra), round, sampler, **more)


def fed_avg(mechanism=GAUSSIAN, sampler=POISSON, sum_key=lambda key, state: key, **more):
    """DP-FedAvg."""

    def round(key, state, cohort):
        def client(key, shard):
            return update(state, key, shard)

        total, metrics, _ = cohort.sum(client, sum_key(key, state), mechanism=mechanism)
        params = stepped(state, total, cohort.expected_size)
        return state._replace(params=params, round=state.round + 1), metrics

    return of_clients(round, sampler=sampler, **more)


def after_sum(change, extra=(), sampler=POISSON, mechanism=GAUSSIAN, **more):
    """DP-FedAvg whose new state and metrics are `change(key, state, cohort, summed)` of the sum and its metrics."""

    def round(key, state, cohort):
        summed = cohort.sum(
            lambda key, shard: with_update(key, shard, state), key, mechanism=mechanism
        )
        diagnostics = {k: v for k, v in summed.metrics["diagnostics"].items() if k != "raw"}
        metrics = summed.metrics | {"diagnostics": diagnostics}
        params = stepped(state, summed.total, cohort.expected_size)
        after = state._replace(params=params, round=state.round + 1)
        return change(key, after, cohort, summed, metrics)

    return of_clients(round, extra, sampler, **more)


def fed_smp(select, sampler=POISSON):
    """Fed-SMP; `select(key, state, cohort)` chooses the coordinates."""

    def round(key, state, cohort):
        select_key, sum_key = jax.random.split(key)
        kept = select(select_key, state, cohort)

        def client(key, shard):
            return gather(update(state, key, shard), kept)

        total, metrics, _ = cohort.sum(client, sum_key, mechanism=GAUSSIAN)
        step = scatter(total / cohort.expected_size, kept, state.params)
        params = jax.tree.map(jnp.subtract, state.params, step)
        return state._replace(params=params, round=state.round + 1), metrics

    return of_clients(round, sampler=sampler)


def at_random(key, state, cohort):
    return rand_k(key, D, 6)


STEPS = 2
RECORD_SAMPLER = fp.fixed_size(RECORDS, 2)


def scaffold(
    direction=lambda h, y, shard: h,
    kept=lambda c_i, mean, shard: mean,
    at=lambda y, shard: y,
    mechanism=GAUSSIAN,
    sampler=POISSON,
    records=RECORD_SAMPLER,
):
    """DP-SCAFFOLD with record-level privacy."""
    gradients = fp.per_example(squared)

    def init(params, federation):
        return State(params, jnp.int32(0), (jnp.zeros(D), jnp.zeros((federation.num_clients, D))))

    def round(key, state, cohort):
        c, controls = state.extra

        def client(key, shard, c_i):
            def step(k, carry):
                y, total = carry
                h = shard.private_mean(
                    gradients, at(y, shard), records=records, mechanism=mechanism
                )
                h = direction(h, y, shard)
                corrected = jax.tree.map(jnp.add, h, unflatten(c - c_i, y))
                return jax.tree.map(lambda y, g: y - 0.1 * g, y, corrected), total + flatten(h)

            begin = state.params, jnp.zeros(D)
            y, total = shard.private_steps(step, begin, steps=STEPS)
            mean = kept(c_i, total / STEPS, shard)
            dy = jax.tree.map(jnp.subtract, y, state.params)
            return fp.Sent((dy, mean - c_i), own=mean)

        total, metrics, controls = cohort.sum(
            client, key, mechanism=fp.ALREADY_PRIVATE, own=controls
        )
        dy, dc = jax.tree.map(lambda s: s / cohort.expected_size, total)
        params = jax.tree.map(jnp.add, state.params, dy)
        c = c + cohort.expected_size / cohort.num_clients * dc
        return State(params, state.round + 1, (c, controls)), metrics

    return fp.Algorithm(init, round, sampler, unit="record")


def moved(state, by):
    """The model moved by f32[D]."""
    return state._replace(params=jax.tree.map(jnp.add, state.params, unflatten(by, state.params)))


class Remembered(NamedTuple):
    """Model, and what each client's messages left out so far: f32[clients, d]."""

    params: Any
    round: jax.Array
    server: Any
    memory: jax.Array


def error_feedback(
    loss=squared, sampler=POISSON, mechanism=GAUSSIAN, codec=TOP_K, server=MEAN, after=lambda s: s
):
    """DP-FedSGD whose clients remember what the codec leaves out, and what `after(state)` makes of the state."""
    grad = fp.mean_grad(loss)

    def init(params, federation):
        memory = jnp.zeros((federation.num_clients, dimension(params)))
        return Remembered(*server_init(server, params, federation), memory)

    def round(key, state, cohort):
        def client(key, shard, memory):
            gradient = flatten(grad(state.params, shard.examples, shard.mask))
            update = memory - 0.1 * gradient
            return fp.Sent(update, own=update - codec.code(key, update).message)

        total, metrics, memory = cohort.sum(
            client, key, mechanism=mechanism, codec=codec, own=state.memory
        )
        mean = unflatten(total / cohort.expected_size, state.params)
        return after(server_update(server, state._replace(memory=memory), mean)), metrics

    return fp.Algorithm(init, round, sampler)


def two_sums(keys):
    """The model moves by half the difference of two noisy sums of the same messages, of `keys(key)`."""

    def round(key, state, cohort):
        client = lambda key, shard: update(state, key, shard)  # noqa: E731
        one, other = (cohort.sum(client, k, mechanism=GAUSSIAN).total for k in keys(key))
        difference = (flatten(one) - flatten(other)) / 2
        return moved(state, difference)._replace(round=state.round + 1), {
            "uplink": fp.types.Wire(D)
        }

    return of_clients(round, sampler=fp.everyone(CLIENTS))


def twice(loop):
    """Sums in a loop, `once(key, params)` each."""

    def round(key, state, cohort):
        def once(key, params):
            now = state._replace(params=params)
            total, _, _ = cohort.sum(
                lambda key, shard: update(now, key, shard), key, mechanism=GAUSSIAN
            )
            return stepped(now, total, cohort.expected_size)

        params = loop(once, key, state.params)
        return state._replace(params=params, round=state.round + 1), {"uplink": fp.types.Wire(D)}

    return of_clients(round)


def measured(algorithm):
    """The measurements of `check_algorithm` alone, without the rounds that it runs before."""
    traced = fp.trace_round(algorithm, PARAMS, FEDERATION)
    measure_parts(traced, algorithm.init(PARAMS, FEDERATION), FEDERATION, rounds=100)
