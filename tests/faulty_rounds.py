"""Rounds with a fault each, of operations that a certificate has to see through."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from own_algorithms import (
    CLIENTS,
    CLIP,
    FEDERATION,
    GAUSSIAN,
    GRAD,
    SIGMA,
    D,
    State,
    after_sum,
    fed_avg,
    moved,
    of_clients,
    scaffold,
    stepped,
    twice,
    update,
    with_update,
)

import fedpriv as fp
from fedpriv.compression.sparsification import top_k
from fedpriv.core.trees import flatten
from fedpriv.mechanisms.integers import integer_sum

HOST = {"calls": 0}
BUFFER = np.zeros(D, np.float32)
PLACE = np.zeros(D + 16, np.float32)
SHARED = PLACE[(first := -PLACE.ctypes.data % 64 // 4) : first + D]  # JAX copies others
OF_SHARED = jax.dlpack.from_dlpack(SHARED)


def raw(summed):
    return summed.metrics["diagnostics"]["raw"]


def while_loop(once, key, params):
    def turn(carry):
        k, params = carry
        return k + 1, once(jax.random.fold_in(key, k), params)

    return lax.while_loop(lambda c: c[0] < 2 + c[1]["b"], turn, (0, params))[1]


def in_two_loops(once, key, params):
    def outer(params, i):
        def inner(params, j):
            return once(jax.random.fold_in(key, i + j), params), None

        return lax.scan(inner, params, jnp.arange(2))

    return lax.scan(outer, params, jnp.arange(2))[0]


def scan_leak(key, state, cohort, summed, metrics):
    """What a scan carries."""
    carry, _ = lax.scan(lambda c, x: (c + x, None), jnp.zeros(D), raw(summed)[None])
    return moved(state, 1e-6 * carry), metrics


def not_finite(kind):
    """Smaller steps where some were not finite: one client decides, past its clip and all noise."""

    def change(key, state, cohort, summed, metrics):
        return moved(state, cohort.not_finite[kind] * jnp.ones(D)), metrics

    return change


def reduction_leak(key, state, cohort, summed, metrics):
    """The last of what a reduction of one's own runs through."""
    last = lax.reduce(raw(summed)[None], np.float32(0), lambda a, b: b, (0,))
    return moved(state, last), metrics


def window_leak(key, state, cohort, summed, metrics):
    """The last of each window; and of two arrays, one that changes places with the other."""
    start = np.float32(0), np.float32(0)
    both = raw(summed)[None], jnp.zeros((1, D))
    last, _ = lax.reduce_window(both, start, lambda a, b: (b[1], b[0]), (1, 1), (1, 1), "VALID")
    return moved(state, last[0]), metrics


def cond_leak(key, state, cohort, summed, metrics):
    """Which branch is taken."""
    few = lambda: jnp.zeros(D)  # noqa: E731
    many = lambda: jnp.ones(D)  # noqa: E731
    return moved(state, lax.cond(cohort.size > 3, many, few)), metrics


def while_leak(key, state, cohort, summed, metrics):
    """How often a loop turns."""
    turns = lax.while_loop(lambda i: i < raw(summed)[0], lambda i: i + 1.0, 0.0)
    return moved(state, turns * jnp.ones(D)), metrics


def replaced_rows(key, state, cohort, summed, metrics):
    """Clients keep a constant, so that the rows that change tell who took part."""
    kept = cohort.sum(
        lambda key, shard, own: fp.Sent(update(state, key, shard), own=jnp.ones(())),
        jax.random.fold_in(key, 1),
        mechanism=GAUSSIAN,
        own=jnp.zeros(CLIENTS),
    ).own
    return moved(state, kept.sum() * jnp.ones(D)), metrics


def old_rows(key, state, cohort, summed, metrics):
    """What clients kept in earlier rounds stays where a second call keeps zeros."""

    def keeping(own):
        return lambda key, shard, row: fp.Sent(update(state, key, shard), own=own(shard))

    kept, cleared = (
        cohort.sum(client, jax.random.fold_in(key, i), mechanism=GAUSSIAN, own=state.extra).own
        for i, client in enumerate(
            (keeping(lambda shard: 1.0 * shard.size), keeping(lambda shard: jnp.zeros(())))
        )
    )
    return moved(state._replace(extra=kept), cleared.sum() * jnp.ones(D)), metrics


def derivative(key, state, cohort, summed, metrics):
    """By the model, of a noisy sum: its noise falls out."""

    def total(params):
        now = state._replace(params=params)
        client = lambda key, shard: update(now, key, shard)  # noqa: E731
        return flatten(cohort.sum(client, key, mechanism=GAUSSIAN).total).sum()

    along = jax.tree.map(jnp.ones_like, state.params)
    _, slope = jax.jvp(total, (state.params,), (along,))
    return moved(state, slope * jnp.ones(D)), metrics


def by_records(key, state, cohort):
    """The mask of top_k, chosen from clients' records."""
    client = lambda key, shard: with_update(key, shard, state)  # noqa: E731
    seen = cohort.sum(client, key, mechanism=GAUSSIAN).metrics["diagnostics"]["raw"]
    return top_k(jnp.abs(seen), 6)


def running_mean():
    """Statistics of the records as they are, kept beside the model, as batch normalisation does."""

    def round(key, state, cohort):
        def client(key, shard):
            pixels = jnp.mean(shard.examples["x"])
            return fp.Sent(update(state, key, shard), {"pixels": pixels})

        total, metrics, _ = cohort.sum(client, key, mechanism=GAUSSIAN)
        mean = 0.9 * state.extra + 0.1 * metrics["diagnostics"]["pixels"]
        return State(stepped(state, total, cohort.expected_size), state.round + 1, mean), metrics

    return of_clients(round, jnp.float32(0))


def choosing(bound):
    """The clip norm of a second sum is `bound` of what the first one's clients report."""

    def change(key, state, cohort, summed, metrics):
        used = fp.gaussian(1.0, SIGMA).at(bound(summed), SIGMA)
        client = lambda key, shard: update(state, key, shard)  # noqa: E731
        total, _, _ = cohort.sum(client, jax.random.fold_in(key, 1), mechanism=used)
        return state._replace(params=stepped(state, total, cohort.expected_size)), metrics

    return after_sum(change)


def by_size():
    """A client's step scaled by how many records it has: private where records are."""
    return scaffold(direction=lambda h, y, shard: jax.tree.map(lambda g: g * shard.size / 100.0, h))


def raw_mean(y, shard):
    return GRAD(y, shard.examples, shard.mask)


def added(h, y, shard):
    return jax.tree.map(lambda h, g: h + 1e-6 * g, h, raw_mean(y, shard))


def counting_on_the_host(key, state, cohort, summed, metrics):
    HOST["calls"] += 1
    return moved(state, HOST["calls"] * jnp.ones(D)), metrics


def drawing_on_the_host(key, state, cohort, summed, metrics):
    noise = np.random.default_rng().normal(size=D).astype(np.float32)
    return moved(state, noise * jnp.ones(D)), metrics


def branching_on_the_host(key, state, cohort, summed, metrics):
    HOST["calls"] += 1
    step = jnp.ones(D) * 2 if HOST["calls"] % 2 else jnp.ones(D)
    return moved(state, step), metrics


def filling_a_buffer_of_the_host(key, state, cohort, summed, metrics):
    BUFFER[:] = np.random.default_rng().normal(size=D)
    return moved(state, BUFFER * jnp.ones(D)), metrics


def filling_shared_memory(key, state, cohort, summed, metrics):
    """Of an array of JAX's."""
    SHARED[:] = np.random.default_rng().normal(size=D)
    return moved(state, OF_SHARED * jnp.ones(D)), metrics


def calling_a_library(key, state, cohort, summed, metrics):
    step = jax.ffi.ffi_call("a library's", jax.ShapeDtypeStruct((D,), jnp.float32))
    return moved(state, step(jnp.zeros(D))), metrics


def calling_the_host(key, state, cohort, summed, metrics):
    shape = jax.ShapeDtypeStruct((D,), jnp.float32)
    return moved(state, jax.pure_callback(lambda: np.ones(D, np.float32), shape)), metrics


def holding_the_data():
    """The records, past the cohort."""

    def change(key, state, cohort, summed, metrics):
        pixels = FEDERATION.examples["x"]
        return moved(state, jnp.full(D, pixels.mean())), metrics

    return after_sum(change)


def starting_from_the_data():
    made = fed_avg()

    def init(params, federation):
        shift = federation.examples["x"].mean()
        return State(jax.tree.map(lambda p: p + shift, params), jnp.int32(0))

    return made._replace(init=init)


def under_vmap():
    def round(key, state, cohort):
        client = lambda key, shard: update(state, key, shard)  # noqa: E731
        once = lambda k: cohort.sum(client, k, mechanism=GAUSSIAN).total  # noqa: E731
        total = jax.tree.map(lambda s: s.mean(0), jax.vmap(once)(jax.random.split(key, 2)))
        params = stepped(state, total, cohort.expected_size)
        return State(params, state.round + 1), {"uplink": fp.types.Wire(D)}

    return of_clients(round)


def scanned():
    def loop(once, key, params):
        turn = lambda params, k: (once(k, params), None)  # noqa: E731
        return lax.scan(turn, params, jax.random.split(key, 2))[0]

    return twice(loop)


SKELLAM = fp.skellam(CLIP, SIGMA, bits=8)


def summed_again(first, second=lambda norm: SKELLAM, folded=lambda norm: 1):
    """Two sums; the mechanism of the second, and what is folded into its key, by what clients report of the first."""

    def change(key, state, cohort, summed, metrics):
        norm = summed.metrics["diagnostics"]["mean_update_norm"]
        client = lambda key, shard: update(state, key, shard)  # noqa: E731
        again = jax.random.fold_in(key, folded(norm))
        total, _, _ = cohort.sum(client, again, mechanism=second(norm))
        return moved(state, flatten(total)), metrics

    return after_sum(change, mechanism=first)


def encoding_by_hand():
    """Clients send the integers of a sum as messages of their own; the round decodes what they add up to."""
    used = integer_sum(SKELLAM.integers, CLIP, SIGMA, CLIENTS, D)

    def round(key, state, cohort):
        def client(own, shard):
            return used.encode(key, own, update(state, own, shard))

        total, metrics, _ = cohort.sum(client, key, mechanism=fp.ALREADY_PRIVATE)
        noisy, _ = used.perturb(key, total.astype(jnp.int32), None)
        step = used.decode(key, noisy, state.params)
        params = stepped(state, step, cohort.expected_size)
        return state._replace(params=params, round=state.round + 1), metrics

    return of_clients(round)
