"""MSP-FL and MSPDQ-FL: limits, what is counted, what is claimed."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import assert_identical, classification, one_round

from fedpriv import (
    Federation,
    certify,
    consensus,
    dimension,
    epochs,
    everyone,
    fed_avg,
    full_batch,
    msp_fl,
    mspdq_fl,
    poisson,
    simulate,
    splitting,
    subsets,
    with_replacement,
)
from fedpriv.algorithms import msp
from fedpriv.algorithms.consensus import coupling, fixed

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS = 6
FEDERATION, TEST, MODEL = classification(CLIENTS, 4)
COMMON = {"optimizer": lambda t: optax.sgd(0.2 / (t + 1)), "batches": epochs(2, 2)}
EVERYONE = COMMON | {"sampler": everyone(CLIENTS)}
SPLIT = {
    "splitting": splitting.uniform(0.3),
    "coupling": coupling(0.4, 0.15),
    "exchanges": consensus.constant(4),
}
D = dimension(MODEL.init(jax.random.key(0)))


def after(algorithm, rounds=3):
    return simulate(algorithm, MODEL.init, FEDERATION, TEST, score=MODEL.score, rounds=rounds)


def a_round(algorithm, t=0):
    state = algorithm.init(MODEL.init(jax.random.key(0)), FEDERATION)
    state = state._replace(round=jnp.int32(t))
    return one_round(algorithm)(jax.random.key(1), state, FEDERATION)


def distance(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(float(jnp.abs(a - b).max()) for a, b in pairs)


def test_many_exchanges_are_fed_avg():
    patient = SPLIT | {
        "coupling": coupling(0.4, 0.15, "none"),
        "exchanges": consensus.constant(200),
    }
    plain = after(fed_avg(MODEL.loss, **EVERYONE))
    split = after(msp_fl(MODEL.loss, **EVERYONE, **patient))
    assert distance(split.state.params, plain.state.params) < 1e-5
    two = after(msp_fl(MODEL.loss, **EVERYONE, **patient, submodels=(2, 2)))
    assert distance(two.state.params, plain.state.params) < 1e-5


def test_unequal_numbers_of_submodels_weigh_clients():
    patient = SPLIT | {"coupling": coupling(0.3, 0.1, "none"), "exchanges": consensus.constant(400)}
    algorithm = msp_fl(MODEL.loss, **EVERYONE, **patient, submodels=(1, 4), secret=3)
    seen = a_round(algorithm)[1]["diagnostics"]
    assert seen["distance_to_weighted_mean"] < 1e-5
    assert seen["distance_to_mean"] > 1e-3


def test_many_bits_are_full_precision_up_to_the_common_start():
    patient = SPLIT | {
        "coupling": coupling(0.4, 0.15, "none"),
        "exchanges": consensus.constant(200),
    }
    plain, _ = a_round(msp_fl(MODEL.loss, **EVERYONE, **patient))
    quantized, seen = a_round(mspdq_fl(MODEL.loss, bits=22, **EVERYONE, **patient))
    assert distance(plain.params, quantized.params) < 1e-3
    assert seen["diagnostics"]["saturated"] == 0
    wide = msp_fl(MODEL.loss, **EVERYONE, **patient, transmission=fixed(22, 20.0))
    assert distance(plain.params, a_round(wide)[0].params) < 1e-3


def test_few_bits_are_worse_than_many():
    """With many, what is left is the consensus that four exchanges do not reach."""

    def error(bits):
        found = a_round(mspdq_fl(MODEL.loss, bits=bits, **EVERYONE, **SPLIT))
        return found[1]["diagnostics"]["distance_to_mean"]

    assert error(2) > 3 * error(12)


@pytest.mark.parametrize(("make", "bits", "extra"), [(msp_fl, 32, 0), (mspdq_fl, 6, 32)])
def test_bits_of_all_exchanges_are_counted(make, bits, extra):
    options = {} if bits == 32 else {"bits": bits}
    _, metrics = a_round(make(MODEL.loss, **EVERYONE, **SPLIT, **options))
    assert metrics["uplink"].bits() == 5 * (D * bits + extra)  # K + 1
    assert metrics["downlink"].bits() == 5 * (D * 32 + extra)
    fixed_metrics = a_round(msp_fl(MODEL.loss, **EVERYONE, **SPLIT, transmission=fixed(6, 1.0)))[1]
    assert fixed_metrics["uplink"].bits() == 5 * D * 6
    assert metrics["cohort_size"] == CLIENTS
    assert metrics["diagnostics"]["exchanges"] == 4


def test_clients_keep_their_number_of_submodels():
    """The same whatever the round's key, and another for another secret."""
    patient = SPLIT | {"coupling": coupling(0.3, 0.1, "none"), "exchanges": consensus.constant(0)}
    found = []
    for secret in (0, 0, 1):
        algorithm = msp_fl(MODEL.loss, **EVERYONE, **patient, submodels=(1, 4), secret=secret)
        found.append(a_round(algorithm)[0].params)
    assert_identical(found[0], found[1])
    assert distance(found[0], found[2]) > 1e-4


def test_a_round_keeps_no_transcript():
    """What travels is there for attacks; rounds of many exchanges need no more memory than those of few."""
    d = 4000
    federation = Federation.blank({"x": jnp.zeros(d)}, CLIENTS, 2)

    def memory(exchanges):
        options = EVERYONE | SPLIT | {"exchanges": consensus.constant(exchanges)}
        algorithm = msp_fl(lambda w, example: w @ example["x"], **options)
        given = jax.random.key(0), algorithm.init(jnp.zeros(d), federation), federation
        return one_round(algorithm).lower(*given).compile().memory_analysis().temp_size_in_bytes

    assert memory(40) - memory(2) < 4 * d  # one message


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


def test_a_round_takes_as_many_exchanges_as_the_schedule_says():
    exchanges = consensus.by_rate(lambda t: 0.5 / (t + 1), 0.5, 9)
    algorithm = msp_fl(MODEL.loss, **EVERYONE, **SPLIT | {"exchanges": exchanges})
    constant = msp_fl(MODEL.loss, **EVERYONE, **SPLIT | {"exchanges": consensus.constant(3)})
    scheduled, metrics = a_round(algorithm, t=3)
    assert metrics["diagnostics"]["exchanges"] == 3
    assert metrics["uplink"].bits() == 4 * D * 32
    assert distance(scheduled.params, a_round(constant, t=3)[0].params) < 1e-6


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


def test_everything_is_seen_and_said():
    laplace = SPLIT | {"splitting": splitting.laplace(1.0, 5.0)}
    for algorithm, claimed in (
        (msp_fl(MODEL.loss, **EVERYONE, **SPLIT), None),
        (msp_fl(MODEL.loss, **EVERYONE, **laplace), (5.0, 0.0)),
        (mspdq_fl(MODEL.loss, bits=6, **EVERYONE, **SPLIT), (0.0, 1.0)),
    ):
        for view in ("third_party", "server", "server_secagg"):
            found = certify(algorithm, MODEL.init, FEDERATION, 3, 1e-5, view=view)
            assert math.isinf(found.epsilon)
            assert "without fresh noise" in found.assumptions[0]
        claim = algorithm.claim(3, 1e-5)
        if claimed is None:
            assert claim is None
        else:
            assert (claim.epsilon, claim.delta) == claimed
            assert not claim.sound


def test_cohorts_drawn_with_replacement():
    sampler = with_replacement(np.asarray(FEDERATION.size), 9)
    history = after(msp_fl(MODEL.loss, sampler=sampler, **COMMON, **SPLIT))
    assert np.isfinite(history.loss).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"submodels": (0, 2)}, r"submodels: \(0, 2\) is not a range"),
        ({"submodels": (3, 2)}, r"submodels: \(3, 2\) is not a range"),
        ({"sampler": poisson(CLIENTS, 0.5, 6)}, "sampler: cohorts vary in size"),
        ({"sampler": subsets(CLIENTS, 4)}, "or have empty slots"),
        ({"submodels": (1, 9)}, "gamma: 0.15 for up to 9 invisible submodels"),
        ({"coupling": coupling(2.0, 0.1)}, "step: 2.0 is not in"),
    ],
)
def test_wrong_input(changes, message):
    with pytest.raises(ValueError, match=message):
        msp_fl(MODEL.loss, **EVERYONE | SPLIT | changes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: consensus.constant(-1), "count: -1 is not 0 or more"),
        (lambda: consensus.by_rate(lambda t: 0.1, 1.0, 5), "contraction: 1.0 is not in"),
        (lambda: consensus.by_rate(lambda t: 0.1, 0.5, 0), "most: 0 is not at least 1"),
        (lambda: mspdq_fl(MODEL.loss, bits=0, **EVERYONE, **SPLIT), "bits: 0 is not in"),
    ],
)
def test_wrong_schedules(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_unstable_settings_are_allowed_where_asked_for():
    made = msp_fl(
        MODEL.loss,
        **EVERYONE | {"batches": full_batch()},
        **SPLIT,
        submodels=(18, 18),
        unstable=True,
    )
    assert np.isfinite(after(made, 1).loss).all()
