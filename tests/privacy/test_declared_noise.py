"""Every shipped mechanism and algorithm adds the noise that it declares; one that does not is caught."""

import math

import every_algorithm
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from algorithm_exceptions import varied
from every_algorithm import CLIENTS, FEDERATION, PARAMS, D
from every_mechanism import ENTRIES, Size, that
from haar import haar
from noise import check_noise
from small import one_round, squared

import fedpriv as fp
from fedpriv.algorithms.adaptive_clipping import update_noise
from fedpriv.core.trees import flatten
from fedpriv.mechanisms import clipping, noise
from fedpriv.mechanisms.clipping import coefficients, flat, per_level
from fedpriv.mechanisms.described import worst_case_of
from fedpriv.mechanisms.haar import padded_length, variance_left, weights
from fedpriv.mechanisms.integers import integer_sum
from fedpriv.mechanisms.noise import haar_noise
from fedpriv.privacy.played import plays_of

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIP, MULTIPLIER = 0.5, 1.3


def of_names(entries, names):
    return {name: entries[name] for name in names}


ZEROS = {"b": jnp.zeros(()), "w": jnp.zeros((3, 2))}


@tiers.every("name", of_names(ENTRIES, that(lambda entry: entry.white and not entry.joint)))
def test_a_mechanism_adds_what_it_declares(name):
    """C sigma, or what scale Laplace noise has, to each coordinate by itself."""
    used = ENTRIES[name].make(Size(7, 2), CLIP, MULTIPLIER).in_round(0)
    law = "laplace" if name == "laplace" else "gaussian"
    assert used.noise == law
    std = CLIP * MULTIPLIER * (math.sqrt(2) if law == "laplace" else 1.0)
    check_noise(lambda key: flatten(used.perturb(key, ZEROS)), std, law)
    assert used.certified_multiplier * ENTRIES[name].longest(Size(7, 2)) == pytest.approx(
        MULTIPLIER
    )


def test_every_set_and_every_noise_has_an_entry():
    def made_in(module, kind):
        return {
            f
            for f in vars(module).values()
            if getattr(f, "__annotations__", {}).get("return") == kind
        }

    used = {getattr(e.noise, "func", e.noise) for e in ENTRIES.values()}
    assert made_in(clipping, "Clipping") == {entry.clipping for entry in ENTRIES.values()}
    assert made_in(noise, "Noise") == used


def whitening(d):
    """f64[d, d]: makes the paper's noise after the inverse transform, N(0, H^-1 diag(1 / W^2) H^-T), N(0, 1).

    The first d rows and columns of that covariance, where the vector is padded.
    """
    transform, scales = haar(padded_length(d))
    back = np.linalg.inv(transform) / scales
    return np.linalg.inv(np.linalg.cholesky((back @ back.T)[:d, :d]))


def shaped(d, form="averaging", into=None, **options):
    given = {"clip_norm": CLIP, "noise_multiplier": MULTIPLIER}
    return fp.mechanism(into or flat(), haar_noise(d, form), **given | options)


@tiers.every("d", [7, 8])
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


@pytest.mark.parametrize("into", [flat(), coefficients(7), per_level(7)])
def test_calibrated_noise_is_larger_by_the_reach(into):
    """And has multiplier sigma, at any C and sigma."""
    plain, calibrated = (shaped(7, into=into, calibrated=c) for c in (False, True))
    reach = haar_noise(7).reach(into)
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


LOT = 2.0
ZERO = jax.tree.map(np.zeros_like, jax.device_get(PARAMS))


def check_round(algorithm, kept, white, std):
    """The sum of the updates that a round's new model shows, whitened: nothing but noise, on `kept` coordinates."""
    state = algorithm.init(ZERO, FEDERATION)

    def noise(key):
        after, _ = one_round(algorithm)(key, state, FEDERATION)
        vector = CLIENTS * flatten(jax.tree.map(jnp.subtract, state.params, after.params))
        there = jnp.nonzero(vector, size=kept, fill_value=vector.size)[0]
        found = vector.at[there].get(mode="fill", fill_value=0)  # noise of integers may be 0
        return white(jnp.where(jnp.count_nonzero(vector) <= kept, found, jnp.nan))

    check_noise(noise, std)


def plain(entry) -> bool:
    """Whether clients train by an optimiser that is given, and the server adds up."""
    return entry.takes("optimizer") and "server" not in entry.make.keywords


ADDED_UP = every_algorithm.that(lambda e: plain(e) and e.noise in ("shares", "server"))


@tiers.every(
    "name",
    of_names(every_algorithm.ENTRIES, ADDED_UP),
    kind=lambda entry: (entry.noise, entry.of_integers),
)
def test_an_algorithm_adds_what_it_declares(name):
    """At learning rate 0 the sum is noise alone. How far a client moves it, the algorithms' own tests say."""
    entry = every_algorithm.ENTRIES[name]
    algorithm = entry.make(sampler=fp.everyone(CLIENTS), optimizer=lambda t: optax.sgd(0.0))
    (seen, *_) = fp.trace_round(algorithm, ZERO, FEDERATION).seen(1)
    used = plays_of(seen).used
    assert (seen.view, plays_of(seen).kind) == ("third_party", used.noise)
    assert plays_of(seen).multiplier == pytest.approx(used.certified_multiplier)

    def white(total):
        if entry.takes("count_noise"):  # the count has a part of the multiplier
            return total / (0.5 * update_noise(1.2, 1.0))
        if used.integers is not None:
            given = used.integers, used.clip_norm, used.noise_multiplier, CLIENTS, entry.sends
            return total / integer_sum(*given).noise_deviation
        return worst_case_of(used).whiten(total)

    check_round(algorithm, entry.sends, white, 1.0)


STRONG = {"clip_norm": 1e-6, "noise_multiplier": MULTIPLIER * 1e6}


OF_OWN_NOISE = every_algorithm.that(
    lambda e: e.noise == "own" and e.takes("local") and "weighting" not in e.make.keywords
)


@pytest.mark.slow
@pytest.mark.parametrize("name", varied(OF_OWN_NOISE, lambda entry: entry.sends))
def test_clients_own_noise_may_be_haar_noise(name):
    """One step of rate 1 on two of three records, whose gradients are nothing beside the noise, divided by the lot."""
    one = fp.LocalSteps(
        fp.per_example(squared),
        fp.fixed_size(3, 2),
        1,
        lambda t: optax.sgd(1.0),
        shaped(D, **STRONG),
    )
    algorithm = every_algorithm.MAKERS[name](local=one, sampler=fp.everyone(CLIENTS))
    traced = fp.trace_round(algorithm, ZERO, FEDERATION)
    (seen,) = (each for each in traced.seen(1) if each.view == "server")
    assert plays_of(seen).multiplier == pytest.approx(
        MULTIPLIER * 1e6 / math.sqrt(padded_length(D))
    )
    white = jnp.asarray(whitening(D), jnp.float32)
    check_round(algorithm, D, lambda total: white @ total, MULTIPLIER * math.sqrt(CLIENTS) / LOT)
