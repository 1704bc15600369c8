"""Every shipped mechanism and algorithm adds the noise that it declares; one that does not is caught."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from haar import haar
from noise import check_noise
from small import classification, one_round

from fedpriv import (
    LocalSteps,
    adaptive_fed_avg,
    dp_fed_avg,
    dp_scaffold,
    dp_sgd,
    epochs,
    everyone,
    fed_avg,
    fed_avg_sparse,
    fed_smp,
    fixed_size,
    full_batch,
    gaussian,
    laplace,
    looked_at,
    mechanism,
    per_example,
    select_rand_k,
    select_top_k,
)
from fedpriv.algorithms.adaptive_clipping import update_noise
from fedpriv.core.trees import dimension, flatten
from fedpriv.mechanisms.clipping import coefficients, flat, per_level
from fedpriv.mechanisms.haar import padded_length, variance_left, weights
from fedpriv.mechanisms.noise import haar_noise

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
    std = CLIP * mechanism.certified_multiplier * SCALES[name]
    check_noise(added(mechanism), std, name)


def whitening(d):
    """f64[d, d]: makes the paper's noise after the inverse transform, N(0, H^-1 diag(1 / W^2) H^-T), N(0, 1).

    The first d rows and columns of that covariance, where the vector is padded.
    """
    transform, scales = haar(padded_length(d))
    back = np.linalg.inv(transform) / scales
    return np.linalg.inv(np.linalg.cholesky((back @ back.T)[:d, :d]))


def shaped(d, form="averaging", clipping=None, **options):
    given = {"clip_norm": CLIP, "noise_multiplier": MULTIPLIER}
    return mechanism(clipping or flat(), haar_noise(d, form), **given | options)


@pytest.mark.parametrize("d", [7, 8])
def test_haar_noise_has_the_declared_covariance(d):
    """All of it, in the whitened space; each coordinate has variance 1/3 + 2 / (3 m^2)."""
    like, white = jnp.zeros(d), jnp.asarray(whitening(d), jnp.float32)
    check_noise(lambda key: white @ shaped(d).perturb(key, like), CLIP * MULTIPLIER, draws=20_000)
    inverse = np.linalg.inv(whitening(d))
    np.testing.assert_allclose(np.diag(inverse @ inverse.T), 1 / 3 + 2 / (3 * 8**2))
    np.testing.assert_allclose(variance_left(weights(8) ** -2.0), 1 / 3 + 2 / (3 * 8**2))
    with pytest.raises(AssertionError):
        check_noise(lambda key: shaped(d).perturb(key, like), CLIP * MULTIPLIER)
    with pytest.raises(ValueError, match=f"d: {d}, but the sum has 6 coordinates; give that"):
        shaped(d).perturb(jax.random.key(0), like[:6])


@pytest.mark.parametrize("d", [7, 8])
def test_orthonormal_haar_noise_is_isotropic(d):
    noisy = shaped(d, "orthonormal")
    assert noisy.certified_multiplier == MULTIPLIER
    check_noise(lambda key: noisy.perturb(key, jnp.zeros(d)), CLIP * MULTIPLIER, draws=20_000)


@pytest.mark.parametrize("clipping", [flat(), coefficients(7), per_level(7)])
def test_calibrated_noise_is_larger_by_the_reach(clipping):
    """And has multiplier sigma, at any C and sigma."""
    plain, calibrated = (shaped(7, clipping=clipping, calibrated=c) for c in (False, True))
    reach = haar_noise(7).reach(clipping)
    key, zero = jax.random.key(0), jnp.zeros(7)
    for less, more, sigma in (
        (plain, calibrated, MULTIPLIER),
        (plain.at(2.0, 0.3), calibrated.at(2.0, 0.3), 0.3),
    ):
        assert more.certified_multiplier == pytest.approx(sigma)
        assert less.certified_multiplier == pytest.approx(sigma / reach)
        expected = reach * np.asarray(less.perturb(key, zero))
        np.testing.assert_allclose(more.perturb(key, zero), expected, rtol=1e-6)


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
        "adaptive_fed_avg": adaptive_fed_avg(MODEL.loss, **common, quantile=0.5, count_noise=1.0),
    }


NAMES = tuple(algorithms(0.0, 1.0))
KEPT = {"fed_smp rand_k": 0.4, "fed_smp top_k": 0.4}
OF_THE_SUM = {"adaptive_fed_avg": update_noise(MULTIPLIER, 1.0) / MULTIPLIER}
"""Where the count takes a part of the declared multiplier."""


def released_sum(algorithm, state, key, federation=FEDERATION):
    """The perturbed sum of the updates that the round's new model shows."""
    after, _ = one_round(algorithm)(key, state, federation)
    return CLIENTS * flatten(jax.tree.map(jnp.subtract, state.params, after.params))


@pytest.mark.parametrize("name", NAMES)
def test_an_algorithm_adds_what_its_release_declares(name):
    """At learning rate 0 the sum is noise alone, on the kept coordinates."""
    algorithm = algorithms(0.0, MULTIPLIER)[name]
    state = algorithm.init(jax.tree.map(jnp.zeros_like, MODEL.init(jax.random.key(0))), FEDERATION)
    (release, *_) = looked_at(algorithm, state.params, FEDERATION).releases(1)
    assert release.view == "third_party"
    kept = round(KEPT.get(name, 1.0) * dimension(state.params))

    def noise(key):
        vector = released_sum(algorithm, state, key)
        return vector[jnp.nonzero(vector, size=kept)[0]]

    vector = released_sum(algorithm, state, jax.random.key(1))
    assert jnp.count_nonzero(vector) == kept
    std = CLIP * release.multiplier * OF_THE_SUM.get(name, 1.0)
    check_noise(noise, std, release.noise, draws=1000)


@pytest.mark.parametrize("name", NAMES)
def test_one_client_moves_the_sum_by_no_more_than_declared(name):
    """Every client saturates the clip; one is replaced. The noise is the same and cancels."""
    algorithm = algorithms(50.0, MULTIPLIER)[name]
    state = algorithm.init(MODEL.init(jax.random.key(0)), FEDERATION)
    moved = FEDERATION.replace(rows=FEDERATION.rows.at[0].set(FEDERATION.rows[1]))
    key = jax.random.key(2)
    shift = released_sum(algorithm, state, key, moved) - released_sum(algorithm, state, key)
    assert 0.2 * CLIP < np.linalg.norm(shift) <= 2 * CLIP * (1 + 1e-4)


D, LOT = 15, 2.0


def local_steps(used):
    """One step of rate 1 on two of three records, whose gradients are nothing beside the noise."""
    return LocalSteps(per_example(MODEL.loss), fixed_size(3, 2), 1, lambda t: optax.sgd(1.0), used)


def taking(used, k_used):
    common = {"sampler": everyone(CLIENTS), "optimizer": lambda t: optax.sgd(0.0)}
    common |= {"batches": full_batch()}
    rand_k = select_rand_k(0.4)
    return {
        "fed_avg": fed_avg(MODEL.loss, **common, mechanism=used),
        "fed_avg_sparse": fed_avg_sparse(MODEL.loss, **common, sparsifier=rand_k, mechanism=k_used),
        "dp_sgd": dp_sgd(local_steps(used), sampler=everyone(CLIENTS)),
        "dp_scaffold": dp_scaffold(local_steps(used), sampler=everyone(CLIENTS)),
    }


LOCAL = {"dp_sgd", "dp_scaffold"}


@pytest.mark.parametrize("name", [*sorted(LOCAL), "fed_avg", "fed_avg_sparse"])
@pytest.mark.parametrize("shape", ["haar", "gaussian"])
def test_any_algorithm_takes_haar_noise(name, shape):
    """Whitened, what its model shows is what the mechanism declares; Fed-SMP's on the kept coordinates.

    Each client's own steps add noise of its own, divided by the lot; an averaging algorithm adds it once.
    """
    strong = {"clip_norm": 1e-6, "noise_multiplier": MULTIPLIER * 1e6}
    d = 6 if name == "fed_avg_sparse" else D
    used = shaped(d, **strong) if shape == "haar" else gaussian(**strong)
    algorithm = taking(used, used)[name]
    reach = math.sqrt(padded_length(d)) if shape == "haar" else 1.0
    for release in looked_at(algorithm, MODEL.init, FEDERATION).releases(1):
        if (name in LOCAL) == (release.view == "server"):
            assert release.multiplier == pytest.approx(MULTIPLIER * 1e6 / reach)

    state = algorithm.init(jax.tree.map(jnp.zeros_like, MODEL.init(jax.random.key(0))), FEDERATION)
    white = jnp.asarray(whitening(d) if shape == "haar" else np.eye(d), jnp.float32)

    def noise(key):
        vector = released_sum(algorithm, state, key)
        return white @ vector[jnp.nonzero(vector, size=d)[0]]

    own = math.sqrt(CLIENTS) / LOT if name in LOCAL else 1.0
    check_noise(noise, MULTIPLIER * own, draws=1000)
