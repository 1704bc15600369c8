"""MSP-FL and MSPDQ-FL: limits, what is counted, what is claimed."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import (
    assert_identical,
    certified,
    heavy_ball,
    one_round,
    records,
    regression,
    squared,
    start,
    vector,
)

from fedpriv import Federation, epochs, everyone
from fedpriv.algorithms import msp
from fedpriv.algorithms.consensus import Exchanges, coupling
from fedpriv.papers import consensus, msp_fl, mspdq_fl, splitting

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS, D = 6, 4
FEDERATION = regression([4] * CLIENTS)
COUNTS = (0, 4, 200, 400)
"""Exchanges of round t."""
BY_TABLE = Exchanges(lambda t: jnp.asarray(COUNTS)[t], max(COUNTS))
SPLIT = {
    "sampler": everyone(CLIENTS),
    "optimizer": lambda t: optax.sgd(0.1),
    "batches": epochs(2, 4),
    "splitting": splitting.uniform(0.3),
    "coupling": coupling(0.4, 0.15),
    "exchanges": consensus.constant(4),
}
PATIENT = SPLIT | {"coupling": coupling(0.3, 0.1, "none"), "exchanges": BY_TABLE}
EXACT = msp_fl(squared, **PATIENT, submodels=(1, 4), secret=3)


def a_round(algorithm, t=0, weights=None):
    """(the model after round t f64[4], its metrics); `weights` instead of those that were drawn."""
    state = algorithm.init(start(), FEDERATION)
    drawn = state.weights if weights is None else jnp.float32(weights)
    state = state._replace(round=jnp.int32(t), weights=drawn)
    after, metrics = one_round(algorithm)(jax.random.key(1), state, FEDERATION)
    assert_identical(after.weights, drawn)
    return vector(after.params), metrics


def trained():
    """f64[clients, 4]: the models that are split, by NumPy."""
    theta = vector(start())
    each = [records(FEDERATION, i) for i in range(CLIENTS)]
    return np.stack([heavy_ball(theta, *xy, steps=2, rate=0.1, momentum=0.0) for xy in each])


def test_many_exchanges_are_fed_avg():
    """And unequal numbers of submodels weigh the clients."""
    for number in (1, 2):
        found, _ = a_round(EXACT, 2, np.arange(4) < np.full((CLIENTS, 1), number))
        np.testing.assert_allclose(found, trained().mean(0), atol=1e-5)
    found, metrics = a_round(EXACT, 3)
    numbers = np.asarray(EXACT.init(start(), FEDERATION).weights).sum(1)
    weighted = np.average(trained(), axis=0, weights=1 + numbers)
    np.testing.assert_allclose(found, weighted, atol=1e-5)
    assert metrics["diagnostics"]["distance_to_weighted_mean"] < 1e-5
    apart = np.linalg.norm(found - trained().mean(0))
    assert apart > 1e-3
    assert metrics["diagnostics"]["distance_to_mean"] == pytest.approx(apart, rel=1e-2)


def test_a_round_takes_as_many_exchanges_as_the_schedule_says():
    for t, count in enumerate(COUNTS):
        _, metrics = a_round(EXACT, t)
        assert metrics["diagnostics"]["exchanges"] == count
        assert metrics["uplink"].bits() == metrics["downlink"].bits() == (count + 1) * D * 32
        assert metrics["cohort_size"] == CLIENTS
        settled = metrics["diagnostics"]["distance_to_weighted_mean"] < 1e-4
        assert settled == (count >= 200)


@pytest.mark.slow
def test_few_bits_are_worse_than_many():
    """Many are full precision up to the common start. The bits of all exchanges are counted."""
    makes = {
        bits: mspdq_fl(squared, bits=bits, **PATIENT, submodels=(1, 4), secret=3)
        for bits in (2, 22)
    }
    exact, _ = a_round(EXACT, 2)
    off = {}
    for bits, made in makes.items():
        found, metrics = a_round(made, 2)
        off[bits] = np.abs(found - exact).max()
        assert metrics["uplink"].bits() == 201 * (D * bits + 32)
        assert metrics["downlink"].bits() == 201 * (D * 32 + 32)
        assert (metrics["diagnostics"]["saturated"] == 0) or bits == 2
        assert bits == 2 or off[bits] < 1e-3
    few, many = (
        a_round(makes[bits], 1)[1]["diagnostics"]["distance_to_weighted_mean"] for bits in (2, 22)
    )
    assert few > 3 * many  # many bits leave what four exchanges leave of the splitting


def test_clients_keep_their_number_of_submodels():
    """The same in every round (see `a_round`), and another for another secret."""
    first, again, other = (
        msp_fl(squared, **PATIENT, submodels=(1, 4), secret=secret).init(start(), FEDERATION)
        for secret in (0, 0, 1)
    )
    assert_identical(first.weights, again.weights)
    numbers = [np.sum(s.weights, 1) for s in (first, other)]
    assert (numbers[0] != numbers[1]).any()
    assert set(np.ravel(numbers)) == {1, 2, 3, 4}
    models = [a_round(EXACT, 0, s.weights)[0] for s in (first, other)]
    assert np.abs(models[0] - models[1]).max() > 1e-4


def test_weights_of_clients_and_submodels():
    """Drawn once for each, from the least on; they do not move what many exchanges come to."""

    def drawn(weights):
        own = PATIENT | {"submodels": (1, 4), "secret": 3, "weights": weights}
        return np.asarray(msp_fl(squared, **own).init(start(), FEDERATION).weights)

    equal = drawn(splitting.equal)
    for make, alike in ((splitting.per_client, True), (splitting.per_submodel, False)):
        found = drawn(make(0.3))
        np.testing.assert_array_equal(found > 0, equal)
        assert np.all((found[found > 0] >= 0.3) & (found[found > 0] < 1))
        several = [row[row > 0] for row in found if (row > 0).sum() > 1]
        assert all((np.ptp(row) == 0) == alike for row in several)
        assert len(np.unique(found)) > CLIENTS // 2
        np.testing.assert_array_equal(drawn(make(1.0)), equal)
        weighted = np.average(trained(), axis=0, weights=1 + equal.sum(1))
        np.testing.assert_allclose(a_round(EXACT, 3, found)[0], weighted, atol=1e-4)
        few = [a_round(EXACT, 1, weights)[0] for weights in (found, equal)]
        assert np.abs(few[0] - few[1]).max() > 1e-4


@pytest.mark.slow
def test_a_round_keeps_no_transcript():
    """What travels is there for attacks; rounds of many exchanges need no more memory than those of few."""
    d = 4000
    federation = Federation.blank({"x": jnp.zeros(d)}, CLIENTS, 2)

    exchanges = 400
    options = SPLIT | {"exchanges": consensus.constant(exchanges)}
    algorithm = msp_fl(lambda w, example: w @ example["x"], **options)
    given = jax.random.key(0), algorithm.init(jnp.zeros(d), federation), federation
    memory = one_round(algorithm).lower(*given).compile().memory_analysis()
    assert 0 < memory.temp_size_in_bytes < exchanges * 4 * d  # what one client sends


def test_schedules_of_the_paper():
    """K_t = ceil(log_lambda eta_t), and max(that, ceil(1 / eta_t)), eta_t = 2 / (mu (theta + t))."""
    mu, theta, contraction = 0.5, 9.0, 0.6
    rate = lambda t: 2 / (mu * (theta + t))  # noqa: E731
    for quantized in (False, True):
        exchanges = consensus.by_rate(rate, contraction, 100, quantized=quantized)
        for t in (0, 3, 17, 40):
            expected = math.ceil(math.log(rate(t)) / math.log(contraction))
            if quantized:
                expected = max(expected, math.ceil(mu * (theta + t) / 2))
            assert int(exchanges.at(jnp.int32(t))) == max(expected, 1)
    assert int(consensus.by_rate(rate, 0.99, 7).at(jnp.int32(40))) == 7


def test_uploads_and_proposition_3():
    """Where mu (theta + t) / 2 is the larger part of K_t, its sum is half of the bound's or less."""
    mu, theta, size = 0.01, 799.0, 20
    exchanges = consensus.by_rate(
        lambda t: 2 / (mu * (theta + t)), math.exp(-1), 1000, quantized=True
    )
    for rounds in (1, 10, 100, 400):
        counts = [
            max(
                math.ceil(-math.log(2 / (mu * (theta + t))) - 1e-5),
                math.ceil(mu * (theta + t) / 2 - 1e-5),
            )
            for t in range(rounds)
        ]
        assert [int(exchanges.at(t)) for t in range(rounds)] == counts
        uploads = size * (sum(counts) + rounds)  # (27)
        assert uploads <= msp.uploads_bound(size, rounds, mu, theta)


@pytest.mark.slow
def test_everything_is_seen_and_said():
    laplace = SPLIT | {"splitting": splitting.laplace(1.0, 5.0)}
    for algorithm, claimed in (
        (msp_fl(squared, **SPLIT), None),
        (msp_fl(squared, **laplace), (5.0, 0.0)),
        (mspdq_fl(squared, bits=6, **SPLIT), (0.0, 1.0)),
    ):
        for view in ("third_party", "server", "server_secagg"):
            found = certified(algorithm, 3, 1e-5, view=view)
            assert math.isinf(found.epsilon)
            assert "without fresh noise" in found.assumptions[0]
        claim = algorithm.claim(3, 1e-5)
        if claimed is None:
            assert claim is None
        else:
            assert (claim.epsilon, claim.delta) == claimed
            assert not claim.sound


def test_unstable_settings_are_allowed_where_asked_for():
    given = {**SPLIT, "submodels": (18, 18)}
    assert msp_fl(squared, **given, unstable=True).round
