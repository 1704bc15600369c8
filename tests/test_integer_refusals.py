"""What sums of integers refuse, in one line that names the field and what would do; and weights that they take."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from checkpointed import CLIENTS, FEDERATION, FIXED, PER_CLIENT
from small import one_round, refused, squared, start

import fedpriv as fp
from fedpriv.mechanisms.integers import Integers
from fedpriv.types import Dynamic

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SKELLAM = fp.skellam(0.5, 1.2, bits=16)
DISCRETE = fp.discrete_gaussian(0.5, 1.2, bits=16)
FIXED_WEIGHTS = fp.ByExamples(cap=4, estimator="fixed")


class State(NamedTuple):
    params: dict
    round: jax.Array


def trained_by(mechanism, sampler=FIXED, **options):
    return fp.fed_avg(
        squared,
        sampler=sampler,
        batches=fp.full_batch(),
        optimizer=lambda t: optax.sgd(0.1),
        mechanism=mechanism,
        **options,
    )


def own_round(client, mechanisms=(SKELLAM,), **how):
    """An algorithm of one's own, whose clients send what `client` returns."""

    def round(key, state, cohort):
        for used in mechanisms:
            total, metrics, _ = cohort.sum(client, key, mechanism=used, **how)
        return State(total, state.round + 1), metrics

    return fp.Algorithm(lambda params, _: State(params, jnp.int32(0)), round, FIXED)


def ones(key, shard):
    return jax.tree.map(jnp.ones_like, start())


def noisy_mean(key, shard):
    records = fp.fixed_size(PER_CLIENT, 2)
    return shard.private_mean(fp.per_example(squared), start(), records=records, mechanism=SKELLAM)


def perturbed(key, shard):
    return SKELLAM.perturb(key, ones(key, shard))


LOUD = "too much for sums of 3 messages of 4 values with 30 bits and noise of deviation 65536"
ROUNDS = {
    "few bits": (trained_by(fp.skellam(0.5, 1.2, bits=3)), "bits: 3, .* wrap; give 5"),
    "few bits for the noise": (
        trained_by(fp.discrete_gaussian(0.5, 1e4, bits=16)),
        "bits: 16, .* wrap; give 17",
    ),
    "loud": (
        trained_by(fp.skellam(0.5, 1e6, bits=30)),
        f"noise_multiplier: {LOUD}; divide it by 32",
    ),
    "real noise": (
        trained_by(fp.gaussian(0.5, 1.2)._replace(integers=Integers("skellam", 16))),
        "mechanism: noise: 'gaussian'; .* give fp.skellam or fp.discrete_gaussian",
    ),
    "another law": (
        trained_by(DISCRETE._replace(noise="skellam"), fp.poisson(CLIENTS, 0.5)),
        "mechanism: noise: 'skellam'; .* give fp.skellam or fp.discrete_gaussian",
    ),
    "cohorts of many sizes": (
        trained_by(DISCRETE, fp.poisson(CLIENTS, 0.5)),
        "mechanism: 'discrete_gaussian'; .* give fp.skellam, or cohorts of one size",
    ),
    "drawn twice": (
        trained_by(SKELLAM, fp.with_replacement([1.0] * CLIENTS, 3)),
        "sampler: .* give fp.fixed_size or fp.poisson",
    ),
    "lossy codec": (own_round(ones, codec=fp.qsgd(8)), "codec: .*; leave it out"),
    "public sizes": (
        trained_by(SKELLAM, weighting=fp.ByPublicSizes([1] * CLIENTS)),
        r"weighting: .* give fp.ByExamples\(cap\)",
    ),
    "divided by weights": (
        trained_by(SKELLAM, weighting=fp.ByExamples(cap=4, estimator="clipped")),
        "weighting: estimator: 'clipped'; .* give 'fixed'",
    ),
    "own": (own_round(ones, adder="own"), "adder: 'own'; .* leave it out, or give fp.gaussian"),
    "a schedule made by hand": (
        trained_by(Dynamic(SKELLAM, 5, noise_decay=2.0)),
        "start: 'skellam'; .* give a mechanism that has",
    ),
    "in a client": (own_round(perturbed), "mechanism: .* give it to cohort.sum, or to"),
    "of records, in a client": (
        own_round(noisy_mean),
        "mechanism: 'skellam'; .* take cohort.private_mean .* or give fp.gaussian",
    ),
    "beside real noise": (
        own_round(ones, (SKELLAM, fp.gaussian(0.5, 2.0))),
        "round: sums of one cohort differ in their kind of noise, .* make them alike",
    ),
}


@pytest.mark.parametrize("name", ROUNDS)
def test_rounds_are_refused_in_one_line(name):
    algorithm, words = ROUNDS[name]
    with pytest.raises(ValueError, match=words) as raised:
        fp.trace_round(algorithm, start(), FEDERATION).seen(1)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_no_noise_reaches_no_epsilon():
    options = {"epsilon": 2.0, "rounds": 3, "delta": 1e-5, "view": "server_secagg"}
    with refused("^epsilon: 2.0; "):
        fp.calibrate_noise(
            lambda sigma: trained_by(fp.skellam(0.5, 0.0, bits=16)), start(), FEDERATION, **options
        )


@pytest.mark.slow
def test_weights_whose_sum_is_divided_by_one_number_are_taken():
    """Without noise the mean is that of floats; certified as without weights, as none is above 1."""

    def after(mechanism):
        algorithm = trained_by(mechanism, weighting=FIXED_WEIGHTS)
        state, _ = one_round(algorithm)(
            jax.random.key(0), algorithm.init(start(), FEDERATION), FEDERATION
        )
        return state.params

    integers, floats = after(fp.skellam(0.5, 0.0, bits=28)), after(fp.gaussian(0.5, 0.0))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-3), integers, floats)
    moved = jax.tree.leaves(jax.tree.map(lambda a, b: np.max(np.abs(a - b)), floats, start()))
    assert max(moved) > 0.03

    def epsilon(**options):
        options = {"mechanism": SKELLAM, **options}
        return fp.certify(
            trained_by(**options), start(), FEDERATION, rounds=3, delta=1e-5, view="server_secagg"
        ).epsilon

    assert epsilon(weighting=FIXED_WEIGHTS) == epsilon() < math.inf
