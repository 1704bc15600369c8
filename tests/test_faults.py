"""Leaks, and noise that is not fresh, planted in a user's own algorithms are refused by name, with their place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from own_algorithms import (
    CLIENTS,
    FEDERATION,
    GAUSSIAN,
    GRAD,
    PARAMS,
    RECORDS,
    SIGMA,
    D,
    State,
    after_sum,
    error_feedback,
    fed_avg,
    fed_smp,
    moved,
    of_clients,
    scaffold,
    stepped,
    twice,
    update,
    with_update,
)
from small import refused

import fedpriv as fp
from fedpriv.compression.sparsification import top_k
from fedpriv.core.trees import flatten

pytestmark = pytest.mark.usefixtures("quick_to_compile")

HOST = {"calls": 0}
BUFFER = np.zeros(D, np.float32)


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
        return State(params, state.round + 1), {"uplink": fp.Wire(D)}

    return of_clients(round)


def scanned():
    def loop(once, key, params):
        turn = lambda params, k: (once(k, params), None)  # noqa: E731
        return lax.scan(turn, params, jax.random.split(key, 2))[0]

    return twice(loop)


LOOP = r"round: cohort\.sum is called in a loop, a branch or a transformed function"
FAULTS = {
    # past the releases
    "the raw sum after the noise": (
        after_sum(lambda k, s, c, summed, m: (moved(s, 1e-6 * raw(summed)), m)),
        r"round: state\.params.* depends on a client's data \(own_algorithms\.py:\d+\)",
    ),
    "division by the realised size": (
        after_sum(lambda k, s, c, summed, m: (moved(s, jnp.ones(D) / c.size), m)),
        r"state\.params.* depends on who takes part \(test_faults\.py",
    ),
    "a diagnostic fed back": (
        after_sum(
            lambda k, s, c, summed, m: (
                s._replace(extra=summed.metrics["diagnostics"]["mean_update_norm"]),
                m,
            ),
            jnp.float32(0),
        ),
        r"state\.extra.* depends on a client's data",
    ),
    "how many messages are not finite": (
        after_sum(not_finite("messages")),
        r"state\.params.* depends on how many messages or gradients are not finite",
    ),
    "how many gradients of records are not finite": (
        after_sum(not_finite("records")),
        r"state\.params.* depends on how many messages or gradients are not finite",
    ),
    "the sum before the noise in a metric": (
        after_sum(lambda k, s, c, summed, m: (s, m | {"raw": raw(summed)})),
        r"metrics\['raw'\].* depends on a client's data",
    ),
    "a metric that is not known": (
        after_sum(lambda k, s, c, summed, m: (s, m | {"loss": jnp.float32(0)})),
        r"metrics: \['loss'\] belong under 'diagnostics'",
    ),
    "a leak through scan": (after_sum(scan_leak), r"state\.params.* depends on a client's data"),
    "a leak through reduce": (
        after_sum(reduction_leak),
        r"state\.params.* depends on a client's data",
    ),
    "a leak through windows": (
        after_sum(window_leak),
        r"state\.params.* depends on a client's data",
    ),
    "a leak through cond": (after_sum(cond_leak), r"state\.params.* depends on who takes part"),
    "a leak through while": (after_sum(while_leak), r"state\.params.* depends on a client's data"),
    "clients' own state in the model": (
        error_feedback(after=lambda s: moved(s, s.memory.mean(0))),
        r"state\.params.* depends on clients' own state",
    ),
    "a running mean of records": (running_mean(), r"state\.extra.* depends on a client's data"),
    "clients' own state mixed": (
        error_feedback(after=lambda s: s._replace(memory=jnp.roll(s.memory, 1, 0))),
        "depends on clients' own state",
    ),
    "top_k's mask from clients' records": (
        fed_smp(by_records),
        "depends on a client's data.* that it",
    ),
    "the coordinates that clients sent": (
        error_feedback(after=lambda s: moved(s, jnp.sum(s.memory == 0, 0) * 1e-3)),
        r"state\.params.* depends on clients' own state",
    ),
    "a clip norm from clients' data": (
        choosing(lambda summed: summed.metrics["diagnostics"]["mean_update_norm"]),
        r"the release in test_faults.py:\d+ depends on a client's data .* does not bound",
    ),
    "who took part, by the rows they replace": (
        after_sum(replaced_rows),
        "state.params.* depends on clients' own state",
    ),
    "rows that a second call leaves as they were": (
        after_sum(old_rows, jnp.zeros(CLIENTS), sampler=fp.everyone(CLIENTS)),
        "state.params.* depends on clients' own state",
    ),
    "the derivative of a noisy sum": (after_sum(derivative), LOOP),
    # calls that could be repeated
    "releases in a loop": (scanned(), LOOP),
    "releases in a loop of unknown length": (twice(while_loop), LOOP),
    "releases in two loops": (twice(in_two_loops), LOOP),
    "releases under vmap": (under_vmap(), LOOP),
    # records past their private mean
    "a raw mean in a local step": (
        scaffold(direction=added),
        r"the release in .* depends on a client's data .* that it does not bound",
    ),
    "gradients at a model that saw records": (
        scaffold(at=lambda y, shard: jax.tree.map(jnp.add, y, raw_mean(y, shard))),
        "depends on a client's data .* that it does not bound",
    ),
    "a client's size in its step": (by_size(), "depends on a client's data"),
    "a control variate of raw records": (
        scaffold(kept=lambda c_i, mean, shard: flatten(raw_mean(PARAMS, shard))),
        "depends on a client's data",
    ),
    # the host
    "a counter on the host": (
        after_sum(counting_on_the_host),
        r"traced again it is another program \(test_faults\.py:\d+\)",
    ),
    "np.random": (
        after_sum(drawing_on_the_host),
        r"traced again it is another program \(test_faults\.py:\d+\)",
    ),
    "a branch of the host": (
        after_sum(branching_on_the_host),
        r"traced again it is another program \(test_faults\.py:\d+\)",
    ),
    "a buffer of the host": (
        after_sum(filling_a_buffer_of_the_host),
        r"traced again it is another program \(test_faults\.py:\d+\)",
    ),
    "a program of a library": (
        after_sum(calling_a_library),
        r"round: ffi_call \(test_faults\.py:\d+\) is not among the operations",
    ),
    "a callback": (after_sum(calling_the_host), "round: pure_callback .* calls the host"),
    "records as they are, in the state": (
        after_sum(
            lambda k, s, c, summed, m: (s._replace(extra=FEDERATION.examples["y"]), m),
            jnp.zeros_like(FEDERATION.examples["y"]),
        ),
        r"it closes over federation\['examples'\]\['y'\]",
    ),
    "records that the round closes over": (
        holding_the_data(),
        r"it closes over federation\['examples'\]\['x'\]",
    ),
    "an initial model of the records": (
        starting_from_the_data(),
        "init: state.params.* depends on",
    ),
    "another population": (
        fed_avg(sampler=fp.poisson(9, 0.4, 5)),
        "made for 9 clients, but the fed",
    ),
    "another number of records": (
        scaffold(records=fp.fixed_size(RECORDS + 1, 2)),
        "records: drawn among 4, but client 0 holds 3",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_refused(name):
    algorithm, said = FAULTS[name]
    with refused(said):
        fp.check_algorithm(algorithm, PARAMS, FEDERATION)


@pytest.mark.parametrize("of", [counting_on_the_host, drawing_on_the_host, branching_on_the_host])
def test_the_host_is_noticed_before_a_certificate_and_before_training(of):
    given = after_sum(of), PARAMS, FEDERATION
    loss = fp.models.Score(lambda params, example: {"loss": jnp.zeros(())})
    line = rf"test_faults\.py:{of.__code__.co_firstlineno + 2}"
    if (
        of is branching_on_the_host
    ):  # which of the two programs is the longer one, depends on the tests before
        line = r"\w+\.py:\d+"
    with pytest.raises(ValueError, match=rf"another program \({line}\)"):
        fp.certify(*given, 2, 1e-3)
    with pytest.raises(ValueError, match=rf"another program \({line}\)"):
        fp.simulate(
            *given, jax.tree.map(lambda leaf: leaf[:1], FEDERATION.examples), score=loss, rounds=1
        )
