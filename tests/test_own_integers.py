"""A user's own round of integer messages, and integer mechanisms made by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from own_algorithms import CLIENTS, CLIP, FEDERATION, PARAMS, SIGMA, fed_avg, measured
from small import one_round, refused

import fedpriv as fp
from fedpriv.core.trees import flatten

pytestmark = pytest.mark.usefixtures("quick_to_compile")

EVERYONE = fp.everyone(CLIENTS)
SKELLAM = fp.skellam(CLIP, SIGMA, bits=16)


def counting(mechanism):
    """The model is a noisy histogram of the clients' first feature, whose bins are sent as whole numbers."""

    def client(key, shard):
        bins = jnp.digitize(shard.examples["x"][:, 0], jnp.array([-1.0, 0.0, 1.0]))
        return {"of": jnp.zeros(4, jnp.int32).at[bins].add(shard.mask.astype(jnp.int32))}

    def round(key, state, cohort):
        total, metrics, _ = cohort.sum(client, key, mechanism=mechanism)
        return state._replace(params=total, round=state.round + 1), metrics

    return fp.Algorithm(fp.start, round, EVERYONE)


@pytest.mark.slow
def test_integer_messages_of_a_round_of_ones_own():
    """They are added up as any; without noise, to the number, as they are far below the clip norm."""
    begin, make = {"of": jnp.zeros(4)}, fp.discrete_gaussian
    exact = counting(make(10.0, 0.0, bits=24))
    after, metrics = one_round(exact)(jax.random.key(0), exact.init(begin, FEDERATION), FEDERATION)
    first = np.delete(np.asarray(FEDERATION.examples["x"])[:, 0], FEDERATION.public)
    expected = np.bincount(np.digitize(first, [-1.0, 0.0, 1.0]), minlength=4)
    np.testing.assert_allclose(after.params["of"], expected, atol=0.02)
    assert metrics["uplink"].bits() == 4 * 24
    noisy = counting(make(10.0, SIGMA, bits=12))
    fp.check_algorithm(noisy, begin, FEDERATION)
    certificate = fp.certify(noisy, begin, FEDERATION, 2, 1e-5, view="server_secagg")
    assert 0 < certificate.epsilon < np.inf
    assert certificate.basis == "constructed"


def unclipped(message):
    return message, jnp.linalg.norm(flatten(message))


def not_a_number(message):
    return jax.tree.map(lambda leaf: leaf * jnp.nan, message), jnp.float32(0)


CLIPS = {"unclipped": unclipped, "not a number": not_a_number}


@pytest.mark.slow
@pytest.mark.parametrize("clip", CLIPS)
def test_whatever_a_mechanism_clips_its_integers_are_bounded(clip):
    """100 C long each: all that comes of it is within the bound."""
    by_hand = SKELLAM._replace(clip=CLIPS[clip], noise_multiplier=0.0, certified_multiplier=0.0)
    algorithm = fed_avg(by_hand, EVERYONE)
    far = jax.tree.map(lambda leaf: 1e3 * leaf, FEDERATION.examples)
    federation = fp.Federation.from_arrays(far, fp.partition.natural(np.repeat(range(CLIENTS), 3)))
    after, _ = one_round(algorithm)(
        jax.random.key(0), algorithm.init(PARAMS, federation), federation
    )
    moved = jax.tree.map(jnp.subtract, after.params, PARAMS)
    assert float(jnp.linalg.norm(flatten(moved))) < 1.2 * CLIP


@tiers.every("declared", [2 * SIGMA, SIGMA / 2])
def test_noise_that_is_not_what_is_declared(declared):
    by_hand = SKELLAM._replace(certified_multiplier=declared)
    with refused("its noise was measured"):
        measured(fed_avg(by_hand, EVERYONE))
