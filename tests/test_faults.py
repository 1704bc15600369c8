"""Faults planted in a user's own algorithms are refused by name; rounds that look alike and are sound pass.

Of the statistical tests behind them each refuses a sound algorithm with probability 1e-6.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from own_algorithms import (
    CLIENTS,
    CLIP,
    FEDERATION,
    GAUSSIAN,
    GRAD,
    PARAMS,
    POISSON,
    RECORDS,
    SIGMA,
    D,
    State,
    after_sum,
    at_random,
    fed_avg,
    fed_smp,
    of_clients,
    scaffold,
    starting,
    stepped,
    update,
    with_update,
)

import fedpriv as fp
from fedpriv.compression.sparsification import top_k
from fedpriv.core.trees import flatten, unflatten
from fedpriv.privacy import Poisson

pytestmark = pytest.mark.usefixtures("quick_to_compile")

HOST = {"calls": 0}


def moved(state, by):
    """The model moved by f32[D]."""
    return state._replace(params=jax.tree.map(jnp.add, state.params, unflatten(by, state.params)))


def raw(summed):
    return summed.metrics["diagnostics"]["raw"]


def declaring(multiplier=SIGMA, sampling=POISSON.accounting, mechanism=None):
    """Releases by hand, as every view sees the sum."""

    def releases(rounds):
        seen = {"steps": rounds, "mechanism": mechanism}
        return tuple(fp.Release(v, "client", multiplier, sampling, **seen) for v in fp.VIEWS)

    return releases


def by_hand(scale=SIGMA, clip=CLIP, noise_key=lambda key: key, times=1.0, **more):
    """DP-FedAvg that clips and perturbs itself, and declares what it releases."""

    def round(key, state, cohort):
        sum_key, own_key = jax.random.split(key)
        bound = fp.gaussian(clip, 0).clip if clip else lambda u: (u, 0.0)

        def client(key, shard):
            mine = jax.tree.map(lambda u: times * u, update(state, key, shard))
            return bound(mine)[0]

        total, metrics, _ = cohort.sum(client, sum_key, mechanism=fp.UNPROTECTED)
        noise = CLIP * scale * jax.random.normal(noise_key(own_key), (D,))
        total = jax.tree.map(jnp.add, total, unflatten(noise, total))
        params = stepped(state, total, cohort.expected_size)
        return state._replace(params=params, round=state.round + 1), metrics

    return of_clients(round, **({"releases": declaring()} | more))


def alike(key, total):
    """Noise of one key for every tensor, so that differences between tensors are in clear."""
    noise = jax.tree.map(lambda x: CLIP * SIGMA * jax.random.normal(key, x.shape), total)
    return jax.tree.map(jnp.add, total, noise)


def sparing(key, total):
    noise = CLIP * SIGMA * jax.random.normal(key, (D,)).at[5].set(0.0)
    return jax.tree.map(jnp.add, total, unflatten(noise, total))


class Quieter:
    """A tenth of the noise that it tells the ledger of."""

    noise, reason, clip_norm = "gaussian", "", CLIP

    def in_round(self, t):
        return GAUSSIAN.at(CLIP, SIGMA / 10)

    def stages(self, rounds):
        return ((rounds, SIGMA),)


def twice(loop):
    """Two sums a round, in a loop."""

    def round(key, state, cohort):
        def once(key, params):
            now = state._replace(params=params)
            total, _, _ = cohort.sum(
                lambda key, shard: update(now, key, shard), key, mechanism=GAUSSIAN
            )
            return stepped(now, total, cohort.expected_size)

        params = loop(once, key, state.params)
        return state._replace(params=params, round=state.round + 1), {"uplink": fp.Wire(D)}

    return of_clients(round)


def scanned(same_key):
    def loop(once, key, params):
        keys = jax.random.split(key, 2)

        def turn(params, k):
            return once(key if same_key else k, params), None

        return lax.scan(turn, params, keys)[0]

    return twice(loop)


def while_loop(once, key, params):
    def turn(carry):
        k, params = carry
        return k + 1, once(jax.random.fold_in(key, k), params)

    return lax.while_loop(lambda c: c[0] < 2 + c[1]["b"], turn, (0, params))[1]


def scan_leak(key, state, cohort, summed, metrics):
    """What a scan carries."""
    carry, _ = lax.scan(lambda c, x: (c + x, None), jnp.zeros(D), raw(summed)[None])
    return moved(state, 1e-6 * carry), metrics


def cond_leak(key, state, cohort, summed, metrics):
    """Which branch is taken."""
    few = lambda: jnp.zeros(D)  # noqa: E731
    many = lambda: jnp.ones(D)  # noqa: E731
    return moved(state, lax.cond(cohort.size > 3, many, few)), metrics


def while_leak(key, state, cohort, summed, metrics):
    """How often a loop turns."""
    turns = lax.while_loop(lambda i: i < raw(summed)[0], lambda i: i + 1.0, 0.0)
    return moved(state, turns * jnp.ones(D)), metrics


def remembering(kept):
    """A client's own state, private, and what `kept(own)` makes of it in the model."""

    def round(key, state, cohort):
        def client(key, shard, own):
            mine = update(state, key, shard)
            return fp.Sent(mine, own=own + flatten(mine))

        total, metrics, own = cohort.sum(client, key, mechanism=GAUSSIAN, own=state.extra)
        params = stepped(state, total, cohort.expected_size)
        after = State(params, state.round + 1, own)
        return kept(after), metrics

    return of_clients(round, jnp.zeros((CLIENTS, D)))


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


def drawn_by_hand(declared, rate=0.4):
    """A sampler whose draw and accounting are not of one piece."""
    honest = fp.poisson(CLIENTS, rate, 5)
    return fp.Sampler(
        honest.draw, honest.slots, honest.expected_size, Poisson(CLIENTS, declared, 5)
    )


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
    return moved(state, jnp.asarray(noise)), metrics


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


FAULTS = {
    # by hand, as in other libraries: what is declared is measured
    "no noise": (
        by_hand(scale=0.0),
        "releases: it declares a multiplier of 1.4, but noise of at m",
    ),
    "half of the declared noise": (
        by_hand(scale=SIGMA / 2, releases=declaring(mechanism=GAUSSIAN)),
        "declares a multiplier of 1.4, but",
    ),
    "twice the declared noise": (
        by_hand(scale=2 * SIGMA, releases=declaring(mechanism=GAUSSIAN)),
        "declares a multiplier of 1.4, but",
    ),
    "no clip": (
        by_hand(clip=None, times=100.0),
        "releases: it declares a multiplier of 1.4, but noise of at most",
    ),
    "noise of a constant key": (
        by_hand(noise_key=lambda key: jax.random.key(0)),
        "releases: it declares a multiplier of 1.4, but noise of at most .*e-",
    ),
    "another rate is declared": (
        by_hand(releases=declaring(sampling=Poisson(CLIENTS, 0.1, 5))),
        "they declare a client in Poisson.*0.1.*, but the round protects a client in Poisson.*0.4",
    ),
    "more is declared than there is": (
        fed_avg(releases=declaring(2.8)),
        "they declare a multiplier of 2.8, but the round's own is 1.4; leave out `releases`",
    ),
    "draws that the accounting does not know": (
        fed_avg(sampler=drawn_by_hand(0.1)),
        "sampler: .* is in 0.* of the draws, but the accounting says 0",
    ),
    "a mechanism that does not clip": (
        fed_avg(GAUSSIAN._replace(clip=lambda u: (u, jnp.float32(0)))),
        "mechanism .*: it declares a multiplier of 1.4, but noise of at most .* the largest contr",
    ),
    "a mechanism of half the noise": (
        fed_avg(fp.gaussian(CLIP, SIGMA / 2)._replace(certified_multiplier=SIGMA)),
        "mechanism .*: it declares a multiplier of 1.4, but noise of at most 0.69",
    ),
    "a mechanism of twice the noise": (
        fed_avg(fp.gaussian(CLIP, 2 * SIGMA)._replace(certified_multiplier=SIGMA)),
        "mechanism .*: it declares a multiplier of 1.4, but noise of 2.7",
    ),
    "a mechanism that ignores its key": (
        fed_avg(GAUSSIAN._replace(perturb=lambda key, s: GAUSSIAN.perturb(jax.random.key(0), s))),
        "mechanism .*: it declares a multiplier of 1.4, but",
    ),
    "a mechanism that spares a coordinate": (
        fed_avg(GAUSSIAN._replace(perturb=sparing)),
        "mechanism .*: it declares a multiplier of 1.4, but noise of at most 0 times",
    ),
    "a mechanism with one key for all leaves": (
        fed_avg(GAUSSIAN._replace(perturb=alike)),
        "mechanism .*: it declares a multiplier of 1.4, but noise of at most .* the largest contr",
    ),
    "a schedule of one's own that is quieter": (
        fed_avg(Quieter()),
        "mechanism .*: it declares a multiplier of 1.4, but noise of at most 0.1",
    ),
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
    "the sum before the noise in a metric": (
        after_sum(lambda k, s, c, summed, m: (s, m | {"raw": raw(summed)})),
        r"metrics\['raw'\].* depends on a client's data",
    ),
    "a metric that is not known": (
        after_sum(lambda k, s, c, summed, m: (s, m | {"loss": jnp.float32(0)})),
        r"metrics: \['loss'\] belong under 'diagnostics'",
    ),
    "a leak through scan": (after_sum(scan_leak), r"state\.params.* depends on a client's data"),
    "a leak through cond": (after_sum(cond_leak), r"state\.params.* depends on who takes part"),
    "a leak through while": (after_sum(while_leak), r"state\.params.* depends on a client's data"),
    "clients' own state in the model": (
        remembering(lambda s: moved(s, s.extra.mean(0))),
        r"state\.params.* depends on clients' own state",
    ),
    "a running mean of records": (running_mean(), r"state\.extra.* depends on a client's data"),
    "clients' own state mixed": (
        remembering(lambda s: s._replace(extra=jnp.roll(s.extra, 1, 0))),
        "depends on clients' own state",
    ),
    "top_k's mask from clients' records": (
        fed_smp(by_records),
        "depends on a client's data.* that it",
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
    "the derivative of a noisy sum": (
        after_sum(derivative),
        "state.params.* depends on a client's data",
    ),
    # noise that is not fresh
    "a constant key": (
        fed_avg(sum_key=lambda key, state: jax.random.key(0)),
        "not drawn from the round's key, so that rounds share it",
    ),
    "noise reused between rounds": (
        fed_avg(sum_key=lambda key, state: state.extra)._replace(init=starting(jax.random.key(3))),
        "not drawn from the round's key, so that rounds share it",
    ),
    "noise reused in a loop": (scanned(same_key=True), "the same in every turn of a loop"),
    "releases that cannot be counted": (twice(while_loop), "in a loop of unknown length"),
    "releases under vmap": (under_vmap(), "under jax.vmap, where releases cannot be"),
    "one noise for all clients": (
        scaffold(noise_key=lambda key, k, round_key: jax.random.fold_in(round_key, k)),
        "the noise of private_mean .* is the same for all clients",
    ),
    "one noise for all steps": (
        scaffold(noise_key=lambda key, k, round_key: key),
        "the same in every turn of a loop",
    ),
    "keys that coincide in two loops": (
        scaffold(noise_key=lambda key, k, round_key: jax.random.fold_in(key, k // 2)),
        "two of its noises are drawn from one key",
    ),
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
        "traced again it is another program",
    ),
    "np.random": (after_sum(drawing_on_the_host), "traced again it is another program"),
    "a callback": (after_sum(calling_the_host), "round: it calls the host"),
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
        "records: drawn among 4 of each client, but client 0 holds 3",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_refused(name):
    algorithm, said = FAULTS[name]
    with pytest.raises(ValueError, match=said) as caught:
        fp.check_algorithm(algorithm, PARAMS, FEDERATION)
    assert "\n" not in str(caught.value)


def test_an_error_in_a_round_is_one_line_with_its_place():
    def change(key, state, cohort, summed, metrics):
        return moved(state, jnp.ones(D) + jnp.ones(D + 1)), metrics

    with pytest.raises(
        ValueError, match=r"round: \w+Error: .*\(test_faults\.py:\d+\); set JAX_TRACE"
    ):
        fp.looked_at(after_sum(change), PARAMS, FEDERATION)


def all_that_is_allowed(key, state, cohort, summed, metrics):
    """Of the cohort's size, public data, what was released, and randomness of the server's own."""
    _ = summed.total["b"] / cohort.size
    metrics["diagnostics"]["size"] = cohort.size.astype(jnp.float32)
    momentum = jax.tree.map(lambda m, s: 0.9 * m + s, state.extra, summed.total)
    state = moved(state._replace(extra=momentum), -0.1 * flatten(update(state, key, cohort.public)))

    count = lambda key, shard: jnp.where(shard.size > 2, 0.5, -0.5)  # noqa: E731
    second, _, _ = cohort.sum(count, jax.random.fold_in(key, 1), mechanism=fp.gaussian(0.5, 2.0))
    rows = second * flatten(summed.total)[None]
    decayed, _ = lax.scan(lambda c, x: (c + 0.1 * x, None), jnp.zeros(D), rows)
    warm = lax.cond(state.round > 3, lambda: jnp.ones(D), lambda: jnp.zeros(D))
    own = 0.1 * jax.random.normal(jax.random.fold_in(key, 7), (D,))
    return moved(state, decayed + warm + own), metrics


def clip_from_releases():
    """The clip norm follows what was released."""

    def round(key, state, cohort):
        used = GAUSSIAN.at(state.extra, SIGMA)
        client = lambda key, shard: update(state, key, shard)  # noqa: E731
        total, metrics, _ = cohort.sum(client, key, mechanism=used)
        after = stepped(state, total, cohort.expected_size)
        bound = jnp.clip(jnp.linalg.norm(flatten(total)), 0.1, 1.0)
        return State(after, state.round + 1, bound), metrics

    return of_clients(round, jnp.float32(0.5))


def public_and_released(key, state, cohort):
    """The mask of top_k."""
    return top_k(jnp.abs(flatten(state.params) + flatten(update(state, key, cohort.public))), 6)


HARMLESS = {
    "all that is allowed": after_sum(all_that_is_allowed, jax.tree.map(jnp.zeros_like, PARAMS)),
    "two releases in a scan": scanned(same_key=False),
    "a schedule of noise": fed_avg(fp.dynamic(GAUSSIAN, rounds=4, noise_decay=2.0, parts=2)),
    "a clip norm from releases": clip_from_releases(),
    "Fed-SMP, rand_k": fed_smp(at_random),
    "Fed-SMP, top_k of the last sum and of public data": fed_smp(public_and_released),
    "error feedback in clients' own state": remembering(lambda s: s),
    "DP-SCAFFOLD of everyone with a local decay": scaffold(
        sampler=fp.everyone(CLIENTS),
        direction=lambda h, y, shard: jax.tree.map(lambda h, y: h + 0.01 * y, h, y),
    ),
    "a mechanism by hand that is sound": fed_avg(GAUSSIAN._replace(seal=())),
    "an honest declaration": by_hand(),
    "an honest declaration of a mechanism": by_hand(releases=declaring(mechanism=GAUSSIAN)),
    "nothing hidden, and said": fed_avg(fp.unprotected("a baseline")),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_a_sound_round_passes(name):
    algorithm = HARMLESS[name]
    fp.check_algorithm(algorithm, PARAMS, FEDERATION)
    by_word = "declaration" in name or "by hand" in name
    certificate = fp.certify(algorithm, PARAMS, FEDERATION, 3, 1e-3)
    assert certificate.basis == ("declared" if by_word else "constructed")
    assert np.isfinite(certificate.epsilon) == (name != "nothing hidden, and said")
