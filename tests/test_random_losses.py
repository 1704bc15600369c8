"""Losses that draw, such as dropout's: fresh for client, step and record, in gradients as plain JAX takes them."""

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import (
    assert_close,
    assert_identical,
    assert_uniform,
    filled,
    keys_of,
    one_round,
    refused,
    with_stream,
)

import fedpriv as fp
from fedpriv.attacks.canary_messages import Canaries
from fedpriv.attacks.canary_records import RecordsOfClient
from fedpriv.attacks.injected import Injected
from fedpriv.core import random_streams
from fedpriv.core.jaxprs import evaluate
from fedpriv.core.places import tap
from fedpriv.devices.layout import use
from fedpriv.mechanisms.per_example import private_mean
from fedpriv.rounds import low_rank
from fedpriv.rounds.low_rank import low_rank_steps

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS, EACH, D, KEPT = 6, 4, 40, 0.75
RNG = np.random.default_rng(0)
EXAMPLES = {
    "x": RNG.normal(size=(CLIENTS * EACH, D)).astype(np.float32),
    "label": RNG.integers(0, 3, CLIENTS * EACH, np.int32),
}
FEDERATION = fp.Federation.from_arrays(EXAMPLES, np.arange(CLIENTS * EACH).reshape(CLIENTS, EACH))


class Net(nn.Module):
    width: int = 30

    @nn.compact
    def __call__(self, x, train: bool):
        x = nn.Dropout(0.25, deterministic=not train)(x)
        x = nn.relu(nn.Dense(self.width)(x))
        return nn.Dense(3)(nn.Dropout(0.5, deterministic=not train)(x))


MODEL = fp.models.classifier(Net(), EXAMPLES["x"][0], inputs="x")
PARAMS = filled(MODEL.init)


def masked(params, example, key):
    """Its gradient is the mask that it draws."""
    return params["w"] @ jax.random.bernoulli(key, KEPT, (D,)).astype(jnp.float32)


ZERO = {"w": jnp.zeros(D)}


PLAIN = jax.jit(jax.grad(MODEL.loss))


def plain(params, examples, keys):
    """The gradient of each record, one by one."""
    each = [
        PLAIN(params, jax.tree.map(lambda leaf, i=i: leaf[i], examples), keys[i])
        for i in range(len(keys))
    ]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *each)


def test_gradients_of_records_have_masks_of_their_own_and_the_right_mean():
    """2000 records: no two masks are the same, and each entry is kept as often as it should."""
    batch = fp.with_keys(jax.random.key(3), {"x": jnp.zeros((2000, 1))})
    masks = np.asarray(fp.per_example(masked)(ZERO, batch).each()["w"])
    assert len(np.unique(masks, axis=0)) == 2000
    assert_uniform(masks.sum(0), 2000, KEPT)
    assert_uniform((masks[:, ::2] * masks[:, 1::2]).sum(0), 2000, KEPT**2)  # of each other, too
    assert_uniform((masks[::2] * masks[1::2]).sum(0), 1000, KEPT**2)  # and of other records'


def test_clients_and_steps_draw_anew():
    """What a client sends after steps of rate 1 is the sum of the masks of its steps; from the round's key alone."""
    algorithm = fp.fed_avg(
        masked,
        sampler=fp.everyone(CLIENTS),
        optimizer=lambda t: optax.sgd(1.0),
        batches=fp.random_batches(3, 1),
    )
    key = jax.random.key(5)
    state, _ = one_round(algorithm)(key, algorithm.init(ZERO, FEDERATION), FEDERATION)

    def mask(client, step):
        own = jax.random.fold_in(keys_of(key).clients, client)
        drawing = jax.random.fold_in(own, random_streams.DROPOUT)
        (of_record,) = jax.random.split(jax.random.fold_in(drawing, step), 1)
        return jax.random.bernoulli(of_record, KEPT, (D,))

    every = np.divmod(np.arange(3 * CLIENTS), 3)
    masks = np.asarray(jax.jit(jax.vmap(mask))(*every), np.float64)
    assert len(np.unique(masks, axis=0)) == 3 * CLIENTS
    np.testing.assert_allclose(state.params["w"], -np.sum(masks, 0) / CLIENTS, rtol=1e-5)


@pytest.mark.slow
def test_a_loss_that_ignores_its_key_trains_as_one_without():
    """The keys of batches are the same with and without; to the bit."""
    shard = fp.Shard(jax.tree.map(lambda x: jnp.asarray(x[:EACH]), EXAMPLES), jnp.int32(EACH))

    def ignoring(params, example, key):
        return without(params, example)

    def without(params, example):
        return params["w"] @ example["x"] + jnp.sum(params["w"] ** 2)

    steps = {"optimizer": optax.sgd(0.1, momentum=0.5), "batches": fp.epochs(2, 3)}
    found = [
        jax.jit(
            lambda key, loss=loss: fp.train_locally(
                key, ZERO, shard, grad=fp.mean_grad(loss), **steps
            )
        )
        for loss in (ignoring, without)
    ]
    assert_identical(*(trained(jax.random.key(1)) for trained in found))


AVERAGING: dict[str, Any] = {
    "sampler": fp.fixed_size(CLIENTS, 3),
    "optimizer": lambda t: optax.sgd(0.1, momentum=0.5),
    "batches": fp.epochs(2, 3),
}


def test_sums_of_gradients_that_stay_factors_are_those_of_plain_jax():
    """The first layer's are products of masked inputs and errors: they are never formed."""
    batch = fp.with_keys(jax.random.key(2), EXAMPLES)
    weights = np.linspace(-1, 1, CLIENTS * EACH)
    expected = plain(PARAMS, EXAMPLES, batch.key)

    @jax.jit
    def found(params, batch):
        norms, weighted, each = fp.per_example(MODEL.loss)(params, batch)
        return norms, weighted(jax.tree.map(lambda n: jnp.asarray(weights), norms)), each()

    norms, total, each = found(PARAMS, batch)
    assert_close(each, expected, 1e-4)
    lengths = jax.tree.map(lambda g: np.linalg.norm(g.reshape(len(g), -1), axis=1), expected)
    assert_close(norms, lengths, 1e-4)
    assert_close(total, jax.tree.map(lambda g: np.tensordot(weights, g, 1), expected), 1e-4)


@pytest.mark.slow
def test_the_mean_gradient_is_that_of_plain_jax():
    batch, mask = fp.with_keys(jax.random.key(2), EXAMPLES), np.arange(CLIENTS * EACH) < 20
    found = jax.jit(fp.mean_grad(MODEL.loss))(PARAMS, batch, mask)
    each = plain(PARAMS, EXAMPLES, batch.key)
    assert_close(found, jax.tree.map(lambda g: g[:20].mean(0), each), 1e-4)


@pytest.mark.slow
def test_the_private_mean_of_records_is_that_of_plain_jax():
    """Without noise, and with nothing to clip."""
    shard = fp.Shard(jax.tree.map(lambda x: jnp.asarray(x[:EACH]), EXAMPLES), jnp.int32(EACH))
    key, gradients = jax.random.key(4), fp.per_example(MODEL.loss)
    how = {"records": fp.everyone(EACH), "mechanism": fp.gaussian(1e3, 0.0)}
    mean = jax.jit(lambda: with_stream(shard, key).private_mean(gradients, PARAMS, **how))()
    of_first = jax.random.fold_in(key, 0)
    keys = fp.with_keys(jax.random.fold_in(of_first, random_streams.DROPOUT), shard.examples).key
    each = plain(PARAMS, shard.examples, keys)
    assert_close(mean, jax.tree.map(lambda g: g.mean(0), each), 1e-4)


LARGE = fp.models.classifier(Net(7000), EXAMPLES["x"][0], inputs="x")


@pytest.mark.slow
def test_a_large_matrix_as_a_low_rank_sum_sees_the_same_masks(monkeypatch):
    params = filled(LARGE.init, 0.05)
    shard = fp.Shard(jax.tree.map(lambda x: jnp.asarray(x[:EACH]), EXAMPLES), jnp.int32(EACH))

    def trained():
        return jax.jit(
            lambda key: fp.train_locally(
                key,
                params,
                shard,
                grad=fp.mean_grad(LARGE.loss),
                optimizer=optax.sgd(0.1),
                batches=fp.epochs(2, 2),
            )
        )(jax.random.key(0))

    batch = (
        fp.with_keys(jax.random.key(0), jax.tree.map(lambda x: x[:2], EXAMPLES)),
        np.ones(2, bool),
    )
    assert low_rank_steps(fp.mean_grad(LARGE.loss), optax.sgd(0.1), params, batch, 4)
    as_a_sum = trained()
    monkeypatch.setattr(low_rank, "LARGE_MATRIX", math.inf)
    assert_close(as_a_sum, trained(), 1e-4)


@pytest.mark.slow
def test_the_layout_of_clients_changes_no_mask():
    algorithm = fp.fed_avg(MODEL.loss, **AVERAGING)

    def after(clients):
        with use(fp.Strategy(clients=clients)):
            given = jax.random.key(0), algorithm.init(PARAMS, FEDERATION), FEDERATION
            return jax.jit(lambda *given: fp.one_round(algorithm)(*given))(*given)[0].params

    one_by_one = after("map")
    for clients in ("vmap", 2):
        assert_close(after(clients), one_by_one, 1e-5)


def test_evaluation_is_without_dropout():
    example = jax.tree.map(lambda leaf: leaf[0], EXAMPLES)

    @jax.jit
    def found(params, example):
        score, z = MODEL.score(params, example), MODEL.apply(params, example["x"])
        return score["loss"], MODEL.loss(params, example), z

    score, loss, z = found(PARAMS, example)
    np.testing.assert_allclose(score, loss, rtol=1e-6)
    np.testing.assert_allclose(z, Net().apply(PARAMS, example["x"], train=False), rtol=1e-5)
    keys = jax.random.split(jax.random.key(0), 50)
    random = jax.jit(jax.vmap(lambda k: MODEL.loss(PARAMS, example, k)))(keys)
    assert len(np.unique(random)) > 40


@pytest.mark.slow
def test_canaries_find_their_places_among_records():
    """Client 2's first record is one: the others' gradients, and the canary's."""
    canaries = Canaries(jax.random.key(0), jnp.ones(CLIENTS, bool), 1.0, 1)
    mean = private_mean(fp.per_example(MODEL.loss), fp.gaussian(float("inf"), 0), 1.0)

    def summed(batch):
        batch = batch._replace(example=tap("records", batch.example))
        every = jnp.ones(EACH, bool), jnp.arange(EACH)
        return mean(jax.random.key(2), PARAMS, batch, *every)

    examples = jax.tree.map(lambda leaf: jnp.asarray(leaf[:EACH]), EXAMPLES)
    keyed = fp.with_keys(jax.random.key(1), examples)
    zero = jnp.zeros(())
    rule = RecordsOfClient(canaries, jnp.int32(2), Injected(zero, [], zero)).places
    found = evaluate(jax.make_jaxpr(summed)(keyed), jax.tree.leaves(keyed), rule)
    others = jax.tree.map(lambda g: g[1:].sum(0), plain(PARAMS, examples, keyed.key))
    own = canaries.contribution(jnp.int32(2), PARAMS)
    assert_close(found, jax.tree.leaves(jax.tree.map(jnp.add, others, own)), 1e-4)


class Unnamed(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.Dropout(0.5, deterministic=False)(x))


def test_dropout_that_nobody_can_turn_off_is_refused():
    model = fp.models.classifier(Unnamed(), EXAMPLES["x"][0], inputs="x")
    with refused("give its __call__ a parameter `train`"):
        jax.eval_shape(model.apply, filled(model.init), EXAMPLES["x"][0])
