"""Every shipped mechanism and algorithm adds the noise that it declares; one that does not is caught."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from noise import check_noise
from small import classification

from fedpriv import (
    dp_fed_avg,
    epochs,
    everyone,
    fed_smp,
    full_batch,
    gaussian,
    laplace,
    select_rand_k,
    select_top_k,
)
from fedpriv.codecs import dimension, flatten

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIP, MULTIPLIER = 0.5, 1.3
MECHANISMS = {"gaussian": gaussian, "laplace": laplace}
SCALES = {"gaussian": 1.0, "laplace": 2**0.5}  # standard deviation over scale
ZEROS = {"b": jnp.zeros(()), "w": jnp.zeros((3, 2))}


def added(mechanism):
    return lambda key: flatten(mechanism.perturb(key, ZEROS))


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_mechanism_adds_what_it_declares(name):
    mechanism = MECHANISMS[name](CLIP, MULTIPLIER)
    assert mechanism.noise == name
    std = CLIP * mechanism.multiplier * SCALES[name]
    check_noise(added(mechanism), std, name)


def reused(key):
    return jax.random.normal(jax.random.key(0), (7,))


def correlated(key):
    z = jax.random.normal(key, (7,))
    return z.at[0].set((z[0] + 0.2 * z[1]) / math.sqrt(1.04))


def uneven(key):
    """The right total variance: one coordinate has less, another more."""
    return jax.random.normal(key, (7,)) * jnp.sqrt(jnp.array([0.6, 1.4, 1, 1, 1, 1, 1]))


LIARS = {
    "a tenth too little": lambda key: 0.9 * jax.random.normal(key, (7,)),
    "not centred": lambda key: jax.random.normal(key, (7,)) + 0.05,
    "not drawn afresh": reused,
    "correlated": correlated,
    "uneven": uneven,
    "bounded": lambda key: jax.random.uniform(key, (7,), minval=-(3**0.5), maxval=3**0.5),
    "laplace": lambda key: jax.random.laplace(key, (7,)) / math.sqrt(2),
}


@pytest.mark.parametrize("lie", LIARS)
def test_a_mechanism_that_lies_is_caught(lie):
    with pytest.raises(AssertionError):
        check_noise(LIARS[lie], 1.0)


CLIENTS = 6
FEDERATION, _, MODEL = classification(CLIENTS)


def algorithms(learning_rate, noise_multiplier):
    common = {
        "sampler": everyone(CLIENTS),
        "optimizer": lambda t: optax.sgd(learning_rate),
        "batches": epochs(1, 3),
        "clip_norm": CLIP,
        "noise_multiplier": noise_multiplier,
    }
    top_k = select_top_k(0.4, full_batch())
    return {
        "dp_fed_avg": dp_fed_avg(MODEL.loss, **common),
        "fed_smp rand_k": fed_smp(MODEL.loss, **common, sparsifier=select_rand_k(0.4)),
        "fed_smp top_k": fed_smp(MODEL.loss, **common, sparsifier=top_k),
    }


NAMES = tuple(algorithms(0.0, 1.0))
KEPT = {"dp_fed_avg": 1.0, "fed_smp rand_k": 0.4, "fed_smp top_k": 0.4}


def released_sum(algorithm, state, key, federation=FEDERATION):
    """The perturbed sum of the updates that the round's new model shows."""
    after, _ = algorithm.round(key, state, federation)
    return CLIENTS * flatten(jax.tree.map(jnp.subtract, state.params, after.params))


@pytest.mark.parametrize("name", NAMES)
def test_an_algorithm_adds_what_its_release_declares(name):
    """At learning rate 0 the sum is noise alone, on the kept coordinates."""
    algorithm = algorithms(0.0, MULTIPLIER)[name]
    state = algorithm.init(jax.tree.map(jnp.zeros_like, MODEL.init(jax.random.key(0))), FEDERATION)
    (release,) = (r for r in algorithm.releases(1) if r.view == "third_party")
    kept = round(KEPT[name] * dimension(state.params))

    def noise(key):
        vector = released_sum(algorithm, state, key)
        return vector[jnp.nonzero(vector, size=kept)[0]]

    vector = released_sum(algorithm, state, jax.random.key(1))
    assert jnp.count_nonzero(vector) == kept
    check_noise(noise, CLIP * release.multiplier, release.noise, draws=1000)


@pytest.mark.parametrize("name", NAMES)
def test_one_client_moves_the_sum_by_no_more_than_declared(name):
    """Every client saturates the clip; one is replaced. The noise is the same and cancels."""
    algorithm = algorithms(50.0, MULTIPLIER)[name]
    state = algorithm.init(MODEL.init(jax.random.key(0)), FEDERATION)
    moved = FEDERATION.replace(rows=FEDERATION.rows.at[0].set(FEDERATION.rows[1]))
    key = jax.random.key(2)
    shift = released_sum(algorithm, state, key, moved) - released_sum(algorithm, state, key)
    assert 0.2 * CLIP < np.linalg.norm(shift) <= 2 * CLIP * (1 + 1e-4)
