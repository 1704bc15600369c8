"""A user's own rounds with holes that were once found from outside, and rounds like them that are sound."""

import functools
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from own_algorithms import (
    CLIENTS,
    CLIP,
    FEDERATION,
    GAUSSIAN,
    PARAMS,
    RECORD_SAMPLER,
    SIGMA,
    D,
    State,
    after_sum,
    fed_avg,
    moved,
    of_clients,
    stepped,
    update,
)
from small import squared

import fedpriv as fp
from fedpriv.core.trees import flatten
from fedpriv.mechanisms.schedules import Dynamic

SIZES = np.asarray(FEDERATION.size)


class Planted(NamedTuple):
    """A round with a hole, the sentence that refuses it and, where several rules say the same, which of them."""

    algorithm: fp.Algorithm
    said: str
    rule: str = ""

    @property
    def kind(self) -> tuple[str, str]:
        return self.said, self.rule


class Sound(NamedTuple):
    """A round that is sound, and what it does that looks like a hole."""

    algorithm: fp.Algorithm
    kind: str


def keeping(make, extra=None):
    """DP-FedAvg that puts `make(key)` into its state, beside a sum with noise from the same key."""
    like = jax.eval_shape(make, jax.random.key(0))
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), like) if extra is None else extra
    return after_sum(lambda key, s, c, summed, m: (s._replace(extra=make(key)), m), zeros)


def split_first(make):
    """The same, of another part of the round's key than the sum's."""

    def round(key, state, cohort):
        own_key, sum_key = jax.random.split(key)
        client = lambda key, shard: update(state, key, shard)  # noqa: E731
        total, metrics, _ = cohort.sum(client, sum_key, mechanism=GAUSSIAN)
        params = stepped(state, total, cohort.expected_size)
        return State(params, state.round + 1, make(own_key, state)), metrics

    zeros = jax.eval_shape(make, jax.random.key(0), State(PARAMS, jnp.int32(0), jnp.zeros(4)))
    return of_clients(round, jnp.zeros(zeros.shape, zeros.dtype))


def sending(message, **how):
    """A sum of whatever clients send."""

    def round(key, state, cohort):
        given = {"mechanism": GAUSSIAN} | how
        _, metrics, _ = cohort.sum(lambda k, shard: message(k, shard, state), key, **given)
        return state._replace(round=state.round + 1), metrics

    return of_clients(round)


class KeyState(NamedTuple):
    """A model beside a key."""

    params: Any
    round: Any
    rng: Any


def key_in_state():
    """A state that keeps half of a split of the round's key, which the sum has whole."""

    def init(params, federation):
        return KeyState(params, jnp.int32(0), jax.random.key(7))

    def round(key, state, cohort):
        client = lambda k, shard: update(state, k, shard)  # noqa: E731
        total, metrics, _ = cohort.sum(client, key, mechanism=GAUSSIAN)
        params = stepped(state, total, cohort.expected_size)
        return KeyState(params, state.round + 1, jax.random.split(key)[0]), metrics

    return fp.Algorithm(init, round, fp.poisson(CLIENTS, 0.4, 5))


def in_metrics(make):
    return after_sum(lambda key, s, c, summed, m: (s, m | {"diagnostics": make(key)}))


def carried(key):
    """A chain of keys, as in many training loops, whose turns are public; noise from its root."""
    _, drawn = lax.scan(chain, key, None, length=3)
    return drawn.sum()


def chain(key, _):
    key, own = jax.random.split(key)
    return key, jax.random.uniform(own)


def in_shard_map():
    """The cohort's sum, made by each of some devices: once, or more often."""

    def round(key, state, cohort):
        def on_each(params):
            now = state._replace(params=params)
            client = lambda k, shard: update(now, k, shard)  # noqa: E731
            total, _, _ = cohort.sum(client, key, mechanism=GAUSSIAN)
            return moved(now, flatten(total)).params

        mesh = jax.sharding.Mesh(jax.devices()[:1], "devices")
        each = jax.shard_map(
            on_each, mesh=mesh, in_specs=nowhere, out_specs=nowhere, check_vma=False
        )
        return state._replace(params=each(state.params), round=state.round + 1), {}

    nowhere = jax.sharding.PartitionSpec()
    return of_clients(round)


def noise_key(derive):
    return fed_avg(sum_key=lambda key, state: derive(key))


@functools.wraps(fp.per_example(squared))
def mixed(params, batch):
    """Gradients of each record plus the mean of the batch, with the attributes of those of single records."""
    found = fp.per_example(squared)(params, batch)
    shared = jax.tree.map(lambda g: g.mean(0), found.each())
    each = jax.tree.map(lambda g, m: g + m, found.each(), shared)

    def weighted(w):
        return jax.tree.map(lambda g, w: jnp.tensordot(w, g, 1), each, w)

    norms = jax.tree.map(lambda g: jnp.linalg.norm(g.reshape(len(g), -1), axis=1), each)
    return found._replace(norms=norms, weighted=weighted, each=lambda: each)


def private_mean(shard, params, gradients=None, mechanism=GAUSSIAN):
    gradients = gradients or fp.per_example(squared)
    return shard.private_mean(gradients, params, records=RECORD_SAMPLER, mechanism=mechanism)


def changed_before(change):
    """DP-SGD among records that `change` has made of the client's."""

    def client(key, shard, state):
        return private_mean(replace(shard, examples=change(shard.examples)), state.params)

    return record_level(client)


def wrapped(change):
    """`per_example` behind a wrapper that copies its attributes."""
    inner = fp.per_example(squared)

    @functools.wraps(inner)
    def gradients(params, batch):
        return change(inner(params, batch))

    return gradients


def record_level(client):
    """Clients whose messages depend on records through private means alone."""

    def round(key, state, cohort):
        total, metrics, _ = cohort.sum(
            lambda k, shard: client(k, shard, state), key, mechanism=fp.ALREADY_PRIVATE
        )
        params = stepped(state, total, cohort.expected_size)
        return state._replace(params=params, round=state.round + 1), metrics

    return of_clients(round, unit="record")


def of_records(gradients, mechanism=GAUSSIAN):
    """DP-SGD on gradients, or by a mechanism, made by hand."""

    def client(key, shard, state):
        return private_mean(shard, state.params, gradients, mechanism)

    return record_level(client)


class Fading(Dynamic):
    """A schedule whose noise is gone from round 3 on."""

    def in_round(self, t):
        used = super().in_round(t)
        return used.at(used.clip_norm, jnp.where(t < 3, used.noise_multiplier, 1e-6))


class Warm(fp.Sampler):
    """A sampler that says it draws fewer clients after the first round, and draws as before."""

    def stages(self, rounds):
        return ((1, fp.everyone(CLIENTS)), (rounds - 1, fp.poisson(CLIENTS, 0.1, 3)))


class Favouring(fp.Sampler):
    """A sampler that draws everyone twice as often as its accounting says."""

    @property
    def draw(self):
        return fp.poisson(CLIENTS, 0.8, 5).draw


class Peeking:
    """A mechanism whose clip norm is the median of the batch."""

    def __getattr__(self, name):
        return getattr(GAUSSIAN, name)

    def in_round(self, t):
        return self

    def for_batch(self, norms, mask):
        return self.at(jnp.median(jax.tree.leaves(norms)[0]), SIGMA)


def blind(u):
    """Clips what has a norm; NaN and infinity pass."""
    norm = optax.tree.norm(u)
    scale = jnp.where(jnp.isfinite(norm), jnp.minimum(1.0, CLIP / norm), 1.0)
    return jax.tree.map(lambda x: scale * x, u), norm


def to_a_point(u):
    """Clips contributions of up to 1e4 times the bound; longer ones are as they are."""
    bounded, norm = GAUSSIAN.clip(u)
    return jax.tree.map(lambda b, x: jnp.where(norm < 1e4, b, x), bounded, u), norm


def enlarging(u):
    """Small contributions are blown up to three times the bound."""
    bounded, norm = GAUSSIAN.clip(u)
    return jax.tree.map(lambda b: jnp.where(norm < CLIP, 3 * CLIP * b / norm, b), bounded), norm


def in_init(read):
    """A state whose further field is `read(federation)`."""
    made = fed_avg()

    def init(params, federation):
        return State(params, jnp.int32(0), read(federation))

    return made._replace(init=init)


@jax.tree_util.register_static
class Scale(float):
    """A number that a state holds beside its arrays."""


def looking_at_the_cohort(read):
    return after_sum(lambda key, s, c, summed, m: (moved(s, read(c) * jnp.ones(D)), m))


def misnamed(key, state, cohort, summed, metrics):
    own = summed.metrics["diagnostics"]["mean_update_norm"]
    return state, metrics | {"my diagnostics": own}


def a_callback(key, state, cohort, summed, metrics):
    shape = jax.ShapeDtypeStruct((), jnp.float32)
    own = jax.pure_callback(lambda x: x, shape, state.params["b"])
    return moved(state, own * jnp.ones(D)), metrics


def complex_update(key, shard, state):
    return jnp.full(3, 1.0 + 2.0j) * shard.size


def key_words(key):
    return jax.random.key_data(key)


HOST = {"calls": 1}


def counted_on_the_host(once, key, params):
    """A loop that is one turn longer every time it is traced."""
    HOST["calls"] += 1
    for _ in range(HOST["calls"]):
        params = once(key, params)
    return params


def less_the_last(found):
    """Half of the last record's gradient taken off every other's."""
    each = jax.tree.map(lambda g: g - 0.5 * g[-1:], found.each())
    norms = jax.tree.map(lambda g: jnp.linalg.norm(g.reshape(len(g), -1), axis=1), each)
    total = lambda w: jax.tree.map(lambda g, w: jnp.tensordot(w, g, 1), each, w)  # noqa: E731
    return found._replace(norms=norms, weighted=total, each=lambda: each)


def keeping_noise():
    """Clients keep random numbers of the key that their next noise comes from."""

    def round(key, state, cohort):
        def client(key, shard, own):
            mean = private_mean(shard, state.params)
            return fp.Sent(mean, own=own + jax.random.normal(key, (4,)))

        total, metrics, own = cohort.sum(client, key, mechanism=fp.ALREADY_PRIVATE, own=state.extra)
        return State(stepped(state, total, 1.0), state.round + 1, own), metrics

    return of_clients(round, jnp.zeros((CLIENTS, 4)), unit="record")


def randomly_placed(key, shard, state):
    """Gradients at a point that is random by the key that their noise comes from."""
    moved_by = jax.tree.map(lambda p: p + 0.1 * jax.random.normal(key, p.shape), state.params)
    return private_mean(shard, moved_by)


def noise_by_data(key, state, cohort, summed, metrics):
    """The key of a second sum is folded by what the first one's clients report."""
    seen = summed.metrics["diagnostics"]["mean_update_norm"].astype(jnp.int32)
    client = lambda k, shard: update(state, k, shard)  # noqa: E731
    total, _, _ = cohort.sum(client, jax.random.fold_in(key, seen), mechanism=GAUSSIAN)
    return moved(state, flatten(total)), metrics


def numbered():
    def round(key, state, cohort):
        def client(k, shard):
            return fp.Sent(update(state, k, shard), {"who": shard.client_id * 1.0})

        total, metrics, _ = cohort.sum(client, key, mechanism=GAUSSIAN)
        params = stepped(state, total, cohort.expected_size)
        return State(params, state.round + 1, metrics["diagnostics"]["who"]), metrics

    return of_clients(round, jnp.float32(0))


def sending_the_rounds_numbers():
    def round(key, state, cohort):
        shared = jax.random.normal(key, (3,))
        _, metrics, _ = cohort.sum(
            lambda k, shard: shared * shard.size, jax.random.fold_in(key, 1), mechanism=GAUSSIAN
        )
        return state._replace(round=state.round + 1), metrics

    return of_clients(round)
