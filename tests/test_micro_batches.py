"""A batch in parts: the same step as of the whole, one noise, one count, and less memory."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from small import assert_close, filled, one_round, regression, squared, start

import fedpriv as fp
from fedpriv.mechanisms.micro_batches import mean_of_parts
from fedpriv.mechanisms.not_finite_counts import counted_records
from fedpriv.mechanisms.per_example import private_mean

pytestmark = pytest.mark.usefixtures("quick_to_compile")

NETWORK = fp.models.classifier(fp.models.MLP((6,), 3), (2, 2, 1))
PARAMS = filled(NETWORK.init)
RNG = np.random.default_rng(0)
BATCH = {
    "image": RNG.normal(size=(7, 2, 2, 1)).astype(np.float32),
    "label": RNG.integers(0, 3, 7, np.int32),
}
MASK = jnp.asarray([1, 0, 1, 1, 0, 0, 1], bool)
NOISELESS = fp.gaussian(0.5, 0.0)
FEDERATION = regression([5, 2, 4])


def dropped(params, example, key):
    """A loss that draws."""
    kept = jax.random.bernoulli(key, 0.5, (3,)).astype(jnp.float32)
    return squared(params, {**example, "x": example["x"] * kept})


BATCHES = {
    "epochs": (dropped, lambda micro: fp.epochs(2, 3, micro)),
    "random": (squared, lambda micro: fp.random_batches(2, 4, micro)),
}


@tiers.every("name", BATCHES)
@pytest.mark.slow
def test_local_training_in_parts_is_that_of_whole_batches(name):
    """Clients hold 5, 2 and 4 records: parts are filled up, and some are empty."""
    loss, made = BATCHES[name]

    def trained(micro):
        algorithm = fp.fed_avg(
            loss,
            sampler=fp.everyone(3),
            optimizer=lambda t: optax.sgd(0.1, momentum=0.5),
            batches=made(micro),
        )
        state = algorithm.init(start(), FEDERATION)
        return one_round(algorithm)(jax.random.key(3), state, FEDERATION)[0].params

    whole = trained(None)
    assert not np.allclose(whole["w"], start()["w"])
    assert_close(trained(2), whole)


def test_a_part_without_records_counts_for_nothing_even_if_its_gradient_is_no_number():
    def grad(params, batch, mask):
        return jnp.sum(jnp.where(mask, batch, 0.0)) / jnp.sum(mask)  # 0 / 0 of none

    def trained(micro):
        shard = fp.Shard(jnp.arange(1.0, 6.0), jnp.int32(2))
        given = {"grad": grad, "optimizer": optax.sgd(1.0), "batches": fp.full_batch(micro)}
        return fp.train_locally(jax.random.key(0), jnp.float32(0), shard, **given)

    assert float(trained(None)) == float(trained(2)) == -1.5


def test_without_records_what_a_gradient_adds_by_itself_stays():
    """As a control variate does."""

    def variate(params, batch, mask):
        return {"w": 2.0 * params["w"]}

    given = {"w": jnp.arange(3.0)}, {"x": jnp.ones((5, 3))}, jnp.zeros(5, bool)
    assert_close(mean_of_parts(variate, 2)(*given), variate(*given))


@tiers.every(
    "how",
    [(2, {"l2": 0.3, "closed_form": True}), (9, {"l2": 0.3})],
)
def test_a_private_sum_in_parts_is_that_of_the_whole_batch(how):
    """Of 7 records."""
    micro, given = how

    def total(**parts):
        gradients = fp.per_example(NETWORK.loss, **given, **parts)
        mean = jax.jit(private_mean(gradients, NOISELESS, 2.0))
        return mean(jax.random.key(1), PARAMS, BATCH, MASK)

    assert_close(total(micro=micro), total())


def test_each_record_keeps_its_key():
    loss = lambda params, example, key: NETWORK.loss(params, example) * jax.random.normal(key)  # noqa: E731
    keyed = fp.with_keys(jax.random.key(5), BATCH)

    def total(micro):
        mean = private_mean(fp.per_example(loss, micro=micro), NOISELESS, 1.0)
        return jax.jit(mean)(jax.random.key(1), PARAMS, keyed, MASK)

    assert_close(total(3), total(None))


MECHANISMS = {
    "scales": fp.gaussian(0.5, 2.0),
    "does more than scale": fp.papers.haar_mechanism(
        d=51, clip_norm=0.5, noise_multiplier=2.0, clip="levels"
    ),
}


@tiers.every("name", MECHANISMS)
def test_the_noise_is_that_of_the_whole_batch_and_added_once(name):
    mechanism = MECHANISMS[name]
    assert fp.dimension(PARAMS) == 51

    def noisy(micro):
        mean = private_mean(fp.per_example(NETWORK.loss, micro=micro), mechanism, 1.0)
        return jax.jit(mean)(jax.random.key(1), PARAMS, BATCH, MASK)

    assert_close(noisy(2), noisy(None))


@pytest.mark.slow
def test_what_is_not_finite_is_counted_among_the_real_records_of_all_parts():
    spoiled = {**BATCH, "image": jnp.asarray(BATCH["image"]).at[jnp.array([0, 1])].set(jnp.nan)}

    def counted(micro):
        mean = private_mean(fp.per_example(NETWORK.loss, micro=micro), NOISELESS, 1.0)
        with counted_records() as seen:
            mean(jax.random.key(0), PARAMS, spoiled, MASK)
            return seen.total()

    assert list(jax.jit(counted, static_argnums=0)(3)) == [1, 4]
    assert list(jax.jit(counted, static_argnums=0)(None)) == [1, 4]


def dp_sgd(micro, mechanism, **given):
    local = fp.LocalSteps(
        fp.per_example(squared, micro=micro),
        fp.poisson(5, 0.5),
        given.pop("steps", 2),
        lambda t: optax.sgd(0.1),
        mechanism,
    )
    return fp.dp_sgd(local, sampler=fp.everyone(3), **given)


@pytest.mark.slow
def test_a_step_in_parts_is_counted_once():
    def certified(micro):
        algorithm = dp_sgd(micro, fp.gaussian(0.5, 2.0))
        return fp.certify(algorithm, start(), FEDERATION, rounds=3, delta=1e-3)

    assert str(certified(2)) == str(certified(None))


@pytest.mark.slow
def test_integers_in_parts_have_the_same_sum():
    def trained(micro):
        mechanism = fp.skellam(0.5, 1.0, bits=20)
        algorithm = dp_sgd(micro, mechanism, together=True, steps=1)
        state = algorithm.init(start(), FEDERATION)
        return one_round(algorithm)(jax.random.key(3), state, FEDERATION)[0].params

    assert_close(trained(2), trained(None))


def temporary(micro, gradient):
    """Bytes that a step needs beside what it is given and gives."""
    wide = fp.models.classifier(fp.models.MLP((64, 64, 64), 3), (2, 2, 1))
    params = jax.eval_shape(wide.init, jax.random.key(0))
    batch = {"image": jnp.zeros((64, 2, 2, 1)), "label": jnp.zeros(64, jnp.int32)}
    program = jax.jit(gradient(wide.loss, micro)).lower(params, batch, jnp.ones(64, bool))
    return program.compile().memory_analysis().temp_size_in_bytes


@pytest.mark.slow
def test_a_clipped_sum_in_parts_takes_less_memory():
    def clipped(loss, micro):
        mean = private_mean(fp.per_example(loss, l2=0.1, micro=micro), NOISELESS, 1.0)
        return lambda params, *batch: mean(jax.random.key(0), params, *batch)

    assert temporary(8, clipped) < temporary(None, clipped) / 4
