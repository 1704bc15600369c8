"""Every shipped mechanism and algorithm adds the noise that it declares; one that does not is caught."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from haar import haar
from noise import check_noise
from small import one_round, regression, squared, start

from fedpriv import (
    LocalSteps,
    adaptive_fed_avg,
    dp_fed_avg,
    dp_scaffold,
    dp_sgd,
    everyone,
    fed_avg,
    fed_avg_sparse,
    fed_smp,
    fixed_size,
    full_batch,
    gaussian,
    laplace,
    mechanism,
    per_example,
    select_rand_k,
    select_top_k,
    trace_round,
)
from fedpriv.algorithms.adaptive_clipping import update_noise
from fedpriv.core.trees import flatten
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


def test_orthonormal_haar_noise_is_isotropic():
    d = 7
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


CLIENTS, D, LOT = 6, 7, 2.0
FEDERATION = regression([3] * CLIENTS, features=D - 1, public=4)
ZERO = jax.tree.map(np.zeros_like, jax.device_get(start(D - 1)))
COMMON = {
    "sampler": everyone(CLIENTS),
    "optimizer": lambda t: optax.sgd(0.0),
    "batches": full_batch(),
}


def check_round(algorithm, kept, white, std):
    """The sum of the updates that a round's new model shows, whitened: nothing but noise, on `kept` coordinates."""
    state = algorithm.init(ZERO, FEDERATION)

    def noise(key):
        after, _ = one_round(algorithm)(key, state, FEDERATION)
        vector = CLIENTS * flatten(jax.tree.map(jnp.subtract, state.params, after.params))
        found = vector[jnp.nonzero(vector, size=kept)[0]]
        return white @ jnp.where(jnp.count_nonzero(vector) == kept, found, jnp.nan)

    check_noise(noise, std)


NOISY = COMMON | {"clip_norm": CLIP, "noise_multiplier": MULTIPLIER}
RAND_K, TOP_K = select_rand_k(0.4), select_top_k(0.4, full_batch())
ALGORITHMS = {
    "dp_fed_avg": (dp_fed_avg(squared, **NOISY), D, 1.0),
    "fed_smp rand_k": (fed_smp(squared, **NOISY, sparsifier=RAND_K), 3, 1.0),
    "fed_smp top_k": (fed_smp(squared, **NOISY, sparsifier=TOP_K), 3, 1.0),
    "adaptive_fed_avg": (  # the count takes a part of the declared multiplier
        adaptive_fed_avg(squared, **NOISY, quantile=0.5, count_noise=1.0),
        D,
        update_noise(MULTIPLIER, 1.0) / MULTIPLIER,
    ),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_adds_what_its_release_declares(name):
    """At learning rate 0 the sum is noise alone. How far a client moves it, the algorithms' own tests say."""
    algorithm, kept, share = ALGORITHMS[name]
    (release, *_) = trace_round(algorithm, ZERO, FEDERATION).releases(1)
    assert (release.view, release.noise) == ("third_party", "gaussian")
    check_round(algorithm, kept, np.eye(kept, dtype=np.float32), CLIP * release.multiplier * share)


STRONG = {"clip_norm": 1e-6, "noise_multiplier": MULTIPLIER * 1e6}


def local_steps(used):
    """One step of rate 1 on two of three records, whose gradients are nothing beside the noise."""
    return LocalSteps(per_example(squared), fixed_size(3, 2), 1, lambda t: optax.sgd(1.0), used)


TAKING = {
    "fed_avg": (D, lambda used: fed_avg(squared, **COMMON, mechanism=used)),
    "fed_avg_sparse": (
        3,
        lambda used: fed_avg_sparse(squared, **COMMON, sparsifier=RAND_K, mechanism=used),
    ),
    "dp_sgd": (D, lambda used: dp_sgd(local_steps(used), sampler=everyone(CLIENTS))),
    "dp_scaffold": (D, lambda used: dp_scaffold(local_steps(used), sampler=everyone(CLIENTS))),
}


@pytest.mark.parametrize("name", TAKING)
def test_any_algorithm_takes_haar_noise(name):
    """Whitened, what its model shows is what the mechanism declares; Fed-SMP's on the kept coordinates.

    Each client's own steps add noise of its own, divided by the lot; an averaging algorithm adds it once.
    """
    d, make = TAKING[name]
    local = name in {"dp_sgd", "dp_scaffold"}
    algorithm = make(shaped(d, **STRONG))
    for release in trace_round(algorithm, ZERO, FEDERATION).releases(1):
        if local == (release.view == "server"):
            declared = MULTIPLIER * 1e6 / math.sqrt(padded_length(d))
            assert release.multiplier == pytest.approx(declared)
    white = jnp.asarray(whitening(d), jnp.float32)
    check_round(algorithm, d, white, MULTIPLIER * (math.sqrt(CLIENTS) / LOT if local else 1.0))
