"""The contract of every algorithm; a new one gets one line in ALGORITHMS."""

import math

import jax
import numpy as np
import optax
import pytest
from small import classification, one_round

from fedpriv import (
    Certificate,
    Claim,
    LocalSteps,
    adaptive_fed_avg,
    certify,
    check_algorithm,
    consensus,
    dp_fed_avg,
    dp_scaffold,
    dp_scaffold_steps,
    dp_sgd,
    epochs,
    everyone,
    fed_avg,
    fed_avg_sparse,
    fed_sgd,
    fed_smp,
    fixed_size,
    full_batch,
    gaussian,
    jopeq,
    laplace,
    ldp_fed_avg,
    looked_at,
    mechanism,
    msp_fl,
    mspdq_fl,
    per_example,
    per_example_dense,
    poisson,
    qsgd,
    record_fed_avg,
    select_rand_k,
    select_top_k,
    splitting,
    subsets,
    with_replacement,
)
from fedpriv.mechanisms.clipping import coefficients, flat
from fedpriv.mechanisms.noise import haar_noise
from fedpriv.privacy import VIEWS

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS, PER_CLIENT = 6, 3
FEDERATION, _, MODEL = classification(CLIENTS, PER_CLIENT)
COMMON = {"optimizer": lambda t: optax.sgd(0.1 * 0.9**t, momentum=0.5), "batches": full_batch()}
PRIVATE = {"clip_norm": 0.5, "noise_multiplier": 1.2}
FIXED, POISSON = fixed_size(CLIENTS, 3), poisson(CLIENTS, 0.5, 4)
RAND_K, TOP_K = select_rand_k(0.4), select_top_k(0.4, full_batch())

ALGORITHMS = {
    "fed_avg": fed_avg(MODEL.loss, sampler=FIXED, **COMMON | {"batches": epochs(1, 2)}),
    "fed_sgd": fed_sgd(MODEL.loss, sampler=everyone(CLIENTS), learning_rate=0.1),
    "dp_fed_avg": dp_fed_avg(MODEL.loss, sampler=POISSON, **COMMON, **PRIVATE),
    "fed_avg_sparse": fed_avg_sparse(MODEL.loss, sampler=FIXED, sparsifier=TOP_K, **COMMON),
    "fed_smp rand_k": fed_smp(MODEL.loss, sampler=FIXED, sparsifier=RAND_K, **COMMON, **PRIVATE),
    "fed_smp top_k": fed_smp(
        MODEL.loss, sampler=everyone(CLIENTS), sparsifier=TOP_K, **COMMON, **PRIVATE
    ),
}
LOCAL = dp_scaffold_steps(per_example(MODEL.loss), fixed_size(PER_CLIENT, 2), 3, 0.1)
NOISY_LOCAL = dp_scaffold_steps(per_example_dense(1e-2), subsets(PER_CLIENT, 2), 3, 0.1, **PRIVATE)
ALGORITHMS |= {
    "scaffold": dp_scaffold(LOCAL, sampler=FIXED),
    "dp_scaffold": dp_scaffold(NOISY_LOCAL, sampler=POISSON),
    "record_fed_avg": record_fed_avg(NOISY_LOCAL, sampler=FIXED),
}
HAAR = mechanism(flat(), haar_noise(15), **PRIVATE)  # of the 15 parameters
COEFFICIENTS = mechanism(coefficients(6), haar_noise(6), calibrated=True, **PRIVATE)
ALGORITHMS |= {
    "dp_adam": dp_sgd(
        LocalSteps(
            per_example(MODEL.loss),
            poisson(PER_CLIENT, 0.5, 3),
            2,
            lambda t: optax.adam(0.1),
            gaussian(0.5, 1.2),
        ),
        sampler=FIXED,
    ),
    "adaptive_fed_avg": adaptive_fed_avg(
        MODEL.loss, sampler=POISSON, quantile=0.5, count_noise=1.0, **COMMON, **PRIVATE
    ),
    "fed_avg haar": fed_avg(MODEL.loss, sampler=FIXED, mechanism=HAAR, **COMMON),
    "fed_avg_sparse haar": fed_avg_sparse(
        MODEL.loss, sampler=FIXED, sparsifier=RAND_K, mechanism=COEFFICIENTS, **COMMON
    ),
    "dp_sgd haar": dp_sgd(NOISY_LOCAL._replace(mechanism=HAAR), sampler=POISSON),
    "dp_scaffold haar": dp_scaffold(NOISY_LOCAL._replace(mechanism=HAAR), sampler=FIXED),
}
SPLIT = {
    "sampler": with_replacement([1, 1, 1, 1, 1, 2], 4),
    "splitting": splitting.uniform(0.3),
    "coupling": consensus.coupling(0.4, 0.1),
    "exchanges": consensus.constant(3),
    "submodels": (1, 2),
}
ALGORITHMS |= {
    "msp_fl": msp_fl(MODEL.loss, **SPLIT, **COMMON),
    "mspdq_fl": mspdq_fl(MODEL.loss, bits=8, **SPLIT, **COMMON),
    "ldp_fed_avg": ldp_fed_avg(MODEL.loss, sampler=FIXED, mechanism=laplace(0.5, 1.2), **COMMON),
    "jopeq": jopeq(MODEL.loss, sampler=FIXED, bits=8, bound=0.1, epsilon=2.0, **COMMON),
    "dp_fed_avg qsgd": dp_fed_avg(MODEL.loss, sampler=FIXED, codec=qsgd(8), **COMMON, **PRIVATE),
    "scaffold qsgd": dp_scaffold(LOCAL, sampler=FIXED, codec=qsgd(8)),
}
ONLY_CLAIMED = {"mspdq_fl", "jopeq"}
"""Of which a paper says what is not proved for any noise that is there."""
SERVER_ADDS_NOISE = {"dp_fed_avg qsgd"}
UNCLAIMED = {
    "ldp_fed_avg",
    "dp_adam",
    "adaptive_fed_avg",
    "fed_avg haar",
    "fed_avg_sparse haar",
    "dp_sgd haar",
}
"""Noisy, but without a formula of their own paper."""
NOISY = UNCLAIMED | {
    "dp_fed_avg qsgd",
    "dp_fed_avg",
    "fed_smp rand_k",
    "fed_smp top_k",
    "dp_scaffold",
    "dp_scaffold haar",
    "record_fed_avg",
}


@pytest.fixture(scope="module", params=ALGORITHMS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def algorithm(name):
    return ALGORITHMS[name]


@pytest.fixture(scope="module")
def params():
    return MODEL.init(jax.random.key(0))


@pytest.fixture(scope="module")
def rounds(algorithm, params):
    """The state before; the compiled round; state and metrics after it."""
    state = algorithm.init(params, FEDERATION)
    run = one_round(algorithm)
    return state, run, run(jax.random.key(1), state, FEDERATION)


def test_the_contract(algorithm, params):
    check_algorithm(algorithm, params, FEDERATION)


def test_a_round_moves_the_model(rounds):
    state, _, (after, _) = rounds
    moved = jax.tree.map(lambda a, b: np.any(np.asarray(a) != b), after.params, state.params)
    assert any(jax.tree.leaves(moved))


def test_another_key_is_other_randomness(rounds, name):
    state, run, (first, _) = rounds
    other, _ = run(jax.random.key(2), state, FEDERATION)
    pairs = zip(jax.tree.leaves(first.params), jax.tree.leaves(other.params), strict=True)
    assert any(np.any(np.asarray(a) != b) for a, b in pairs) == (name != "fed_sgd")


def test_diagnostics_are_finite_and_messages_are_counted(rounds):
    _, _, (_, metrics) = rounds
    assert metrics["cohort_size"].dtype == np.int32
    assert 0 <= metrics["cohort_size"] <= CLIENTS
    assert metrics["uplink"].bits() > 0
    assert all(np.isfinite(value) for value in jax.tree.leaves(metrics["diagnostics"]))


def test_what_is_hidden(algorithm, name):
    assert algorithm.releases is None  # nothing that is shipped declares them
    looked = looked_at(algorithm, MODEL.init, FEDERATION)
    assert looked.basis == "constructed"
    releases = looked.releases(9)
    assert {release.steps for release in releases} == {9}
    for release in releases:
        noisy = name in NOISY and not (name in SERVER_ADDS_NOISE and release.view != "third_party")
        assert (release.multiplier > 0) == noisy
        assert bool(release.reason) == (not noisy)


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_gets_a_certificate(algorithm, name, view):
    certificate = certify(algorithm, MODEL.init, FEDERATION, 2, 1e-3, view=view)
    assert isinstance(certificate, Certificate)
    assert (certificate.view, certificate.delta) == (view, 1e-3)
    noisy = name in NOISY and not (name in SERVER_ADDS_NOISE and view != "third_party")
    assert (0 < certificate.epsilon < math.inf) == noisy


def test_claim(algorithm, name):
    claim = algorithm.claim(9, 1e-3)
    if name in NOISY - UNCLAIMED:
        assert isinstance(claim, Claim)
        assert claim.source
        assert 0 < claim.epsilon < math.inf
    elif name in ONLY_CLAIMED:
        assert not claim.sound
        assert claim.reasons
    else:
        assert claim is None
