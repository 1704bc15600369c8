"""Integers at a target epsilon: their bits, scale and noise, against a round that travels so."""

import math

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from small import refused

import fedpriv as fp
from fedpriv.mechanisms.integers import IntegerSum
from fedpriv.mechanisms.rounding import rounding_bias

ASKED = {"clients": 40, "dimension": 60, "clip_norm": 0.5, "delta": 1e-5, "rounds": 3}


LABELS = ["few"] * 30 + ["many"] * 30
STRATA = {"few": fp.fixed_size(30, 10), "many": fp.fixed_size(30, 30)}
BY_HAND = fp.everyone(40)._replace(draw=lambda key: fp.everyone(40).draw(key))


def distance(w, example):
    return jnp.sum((w - example) ** 2)


def certified(found, sampler, view):
    examples = np.zeros((sampler.accounting.population, ASKED["dimension"]), np.float32)
    owners = fp.partition.natural(np.arange(len(examples)))
    federation = fp.Federation.from_arrays(examples, owners)
    algorithm = fp.fed_avg(
        distance,
        sampler=sampler,
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.full_batch(),
        mechanism=found.mechanism(),
    )
    w = jnp.zeros(ASKED["dimension"])
    return fp.trace_round(algorithm, w, federation).certify(ASKED["rounds"], 1e-5, view=view)


COHORTS = {
    "everyone": ("discrete_gaussian", fp.everyone(40), "server"),
    "dropping": ("discrete_gaussian", fp.dropping(fp.fixed_size(50, 40), 0.2), "server_secagg"),
    "poisson": ("skellam", fp.poisson(200, 0.1, capacity=40), "server_secagg"),
    "groups": ("discrete_gaussian", fp.grouped(LABELS, STRATA), "server_secagg"),
    "blocks": ("discrete_gaussian", fp.shuffled_blocks(80, 40), "third_party"),
    "by hand": ("discrete_gaussian", BY_HAND, "server_secagg"),
}


@tiers.every("name", COHORTS)
def test_a_round_that_travels_so_costs_what_was_asked(name):
    """The certificate is that of an algorithm with these cohorts, which is traced."""
    noise, sampler, view = COHORTS[name]
    found = fp.calibrate_integers(1.5, **ASKED, sampler=sampler, view=view, bits=13, noise=noise)
    certificate = certified(found, sampler, view)
    assert 1.499 <= certificate.epsilon <= 1.5
    assert certificate.basis == ("declared" if sampler is BY_HAND else "constructed")
    assert found.certificate == certificate
    assert found.certificate.of_groups == certificate.of_groups


@pytest.mark.slow
@pytest.mark.parametrize("within", [1.1, 1.01])
def test_fewer_bits_miss_the_error(within):
    found = fp.calibrate_integers(2.0, **ASKED, within=within)
    assert 1 < found.error_ratio <= within
    fewer = fp.calibrate_integers(2.0, **ASKED, bits=found.bits - 1)
    assert fewer.error_ratio > within


def test_its_numbers_are_those_of_the_sum():
    found = fp.calibrate_integers(2.0, **ASKED, bits=14)
    n, d = ASKED["clients"], ASKED["dimension"]
    used = IntegerSum("discrete_gaussian", 14, 0.5, found.noise_multiplier, n, d)
    assert (found.scale, found.squared_norm) == (used.scale, used.squared_norm)
    deviation = found.share_deviation * math.sqrt(n)
    assert deviation == pytest.approx(found.noise_multiplier * math.sqrt(found.squared_norm))
    assert found.noise_deviation == pytest.approx(deviation / found.scale)
    bias = rounding_bias(64, used._chosen.deviations) * n / math.sqrt(d)
    squared = n / 4 + bias**2 + 4.0**14 * found.wrap_probability
    squared = found.noise_deviation**2 + squared / found.scale**2
    assert used.error == pytest.approx(math.sqrt(squared))
    assert found.uplink.bits() == 14 * 64
    assert (found.mechanism().integers.bits, found.mechanism().clip_norm) == (14, 0.5)


@pytest.mark.slow
def test_a_message_of_one_value_is_not_rounded_away():
    found = fp.calibrate_integers(2.0, clients=1, dimension=1, clip_norm=1.0, delta=1e-5)
    assert found.squared_norm > 0


WRONG = {
    "epsilon: 1e-09; its noise is too much .* raise it": {"epsilon": 1e-9},
    "give fp.skellam": {"sampler": fp.poisson(400, 0.1, capacity=40)},
    "bits: 5, but at epsilon 2.0 sums of 40 messages of 60 values wrap; give 7": {"bits": 5},
    "bits: 3, but at epsilon 2.0 sums of 40 .* wrap; give 7": {"bits": 3},  # at any noise
    "within: 1.0000001, but at .* reach 1.0001 with 30 bits; give more": {"within": 1.0000001},
}


@tiers.every("said", WRONG)
def test_bad_input_gets_one_line(said):
    with refused(said):
        fp.calibrate_integers(**{"epsilon": 2.0} | ASKED | WRONG[said])
