"""The contract of every algorithm; a new one gets one line in ALGORITHMS."""

import math

import jax
import numpy as np
import optax
import pytest
from small import one_round, regression, squared, start

import fedpriv as fp
from fedpriv.mechanisms.clipping import coefficients, flat
from fedpriv.mechanisms.noise import haar_noise

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS, PER_CLIENT, D = 6, 3, 4
FEDERATION, PARAMS = regression([PER_CLIENT] * CLIENTS, public=2), start()
COMMON = {"optimizer": lambda t: optax.sgd(0.1 * 0.9**t, momentum=0.5), "batches": fp.full_batch()}
PRIVATE = {"clip_norm": 0.5, "noise_multiplier": 1.2}
FIXED, POISSON = fp.fixed_size(CLIENTS, 3), fp.poisson(CLIENTS, 0.5, 4)
RAND_K, TOP_K = fp.select_rand_k(0.5), fp.select_top_k(0.5, fp.full_batch())
HAAR = fp.mechanism(flat(), haar_noise(D), **PRIVATE)
COEFFICIENTS = fp.mechanism(coefficients(2), haar_noise(2), calibrated=True, **PRIVATE)
LOCAL = fp.dp_scaffold_steps(fp.per_example(squared), fp.fixed_size(PER_CLIENT, 2), 2, 0.1)
NOISY_LOCAL = fp.dp_scaffold_steps(
    fp.per_example(squared), fp.fixed_size(PER_CLIENT, 2), 2, 0.1, **PRIVATE
)
ADAM = fp.LocalSteps(
    fp.per_example(squared),
    fp.poisson(PER_CLIENT, 0.5, 3),
    2,
    lambda t: optax.adam(0.1),
    fp.gaussian(0.5, 1.2),
)
ADAPTIVE = {"quantile": 0.5, "count_noise": 1.0, **COMMON, **PRIVATE}
SPLIT = {
    "sampler": fp.with_replacement([1, 1, 1, 1, 1, 2], 4),
    "splitting": fp.splitting.uniform(0.3),
    "coupling": fp.consensus.coupling(0.4, 0.1),
    "exchanges": fp.consensus.constant(3),
    "submodels": (1, 2),
}

ALGORITHMS = {
    "fed_avg": fp.fed_avg(squared, sampler=FIXED, **COMMON | {"batches": fp.epochs(1, 2)}),
    "fed_sgd": fp.fed_sgd(squared, sampler=fp.everyone(CLIENTS), learning_rate=0.1),
    "dp_fed_avg": fp.dp_fed_avg(squared, sampler=POISSON, **COMMON, **PRIVATE),
    "dp_fed_avg, fed_adam, weighted": fp.dp_fed_avg(
        squared,
        sampler=FIXED,
        server=fp.fed_opt.adam(0.1),
        weighting=fp.ByExamples(cap=4),
        **COMMON,
        **PRIVATE,
    ),
    "fed_smp rand_k": fp.fed_smp(squared, sampler=FIXED, sparsifier=RAND_K, **COMMON, **PRIVATE),
    "fed_smp top_k": fp.fed_smp(
        squared, sampler=fp.everyone(CLIENTS), sparsifier=TOP_K, **COMMON, **PRIVATE
    ),
    "dp_scaffold": fp.dp_scaffold(NOISY_LOCAL, sampler=POISSON),
    "record_fed_avg": fp.record_fed_avg(NOISY_LOCAL, sampler=FIXED),
    "dp_adam": fp.dp_sgd(ADAM, sampler=FIXED),
    "adaptive_fed_avg": fp.adaptive_fed_avg(squared, sampler=POISSON, **ADAPTIVE),
    "fed_avg haar": fp.fed_avg(squared, sampler=FIXED, mechanism=HAAR, **COMMON),
    "fed_avg_sparse haar": fp.fed_avg_sparse(
        squared, sampler=FIXED, sparsifier=RAND_K, mechanism=COEFFICIENTS, **COMMON
    ),
    "dp_sgd haar": fp.dp_sgd(NOISY_LOCAL._replace(mechanism=HAAR), sampler=POISSON),
    "msp_fl": fp.msp_fl(squared, **SPLIT, **COMMON),
    "mspdq_fl": fp.mspdq_fl(squared, bits=8, **SPLIT, **COMMON),
    "ldp_fed_avg": fp.ldp_fed_avg(squared, sampler=FIXED, mechanism=fp.laplace(0.5, 1.2), **COMMON),
    "jopeq": fp.jopeq(squared, sampler=FIXED, bits=8, bound=0.1, epsilon=2.0, **COMMON),
    "dp_fed_avg qsgd": fp.dp_fed_avg(squared, sampler=FIXED, codec=fp.qsgd(8), **COMMON, **PRIVATE),
    "scaffold qsgd": fp.dp_scaffold(LOCAL, sampler=FIXED, codec=fp.qsgd(8)),
}
CLAIMED = {
    "dp_fed_avg qsgd",
    "dp_fed_avg",
    "dp_fed_avg, fed_adam, weighted",
    "fed_smp rand_k",
    "fed_smp top_k",
    "dp_scaffold",
    "record_fed_avg",
}
UNCLAIMED = {
    "ldp_fed_avg",
    "dp_adam",
    "adaptive_fed_avg",
    "fed_avg haar",
    "fed_avg_sparse haar",
    "dp_sgd haar",
}
"""Noisy, but without a formula of their own paper."""
ONLY_CLAIMED = {"mspdq_fl", "jopeq"}
"""Of which a paper says what is not proved for any noise that is there."""


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_contract(name):
    fp.check_algorithm(ALGORITHMS[name], PARAMS, FEDERATION)


def differ(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return any(np.any(np.asarray(a) != b) for a, b in pairs)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_round(name):
    """It moves the model, another key is other randomness, and messages are counted."""
    algorithm = ALGORITHMS[name]
    run, state = one_round(algorithm), algorithm.init(PARAMS, FEDERATION)
    after, metrics = run(jax.random.key(1), state, FEDERATION)
    other, _ = run(jax.random.key(2), state, FEDERATION)
    assert differ(after.params, state.params)
    assert differ(after.params, other.params) == (name != "fed_sgd")
    assert metrics["cohort_size"].dtype == np.int32
    assert 0 <= metrics["cohort_size"] <= CLIENTS
    assert metrics["uplink"].bits() > 0
    assert all(np.isfinite(value) for value in jax.tree.leaves(metrics["diagnostics"]))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_is_hidden(name):
    """By the releases and the certificate of every view; the server itself adds noise to rounded messages."""
    algorithm = ALGORITHMS[name]
    assert algorithm.releases is None  # nothing that is shipped declares them
    traced = fp.trace_round(algorithm, PARAMS, FEDERATION)
    assert traced.basis == "constructed"
    releases = traced.releases(9)
    assert {release.steps for release in releases} == {9}
    for release in releases:
        by_server = name == "dp_fed_avg qsgd" and release.view != "third_party"
        noisy = name in CLAIMED | UNCLAIMED and not by_server
        assert (release.multiplier > 0) == noisy
        assert bool(release.reason) == (not noisy)
        certificate = traced.certify(2, 1e-3, view=release.view)
        assert (certificate.view, certificate.delta) == (release.view, 1e-3)
        assert (0 < certificate.epsilon < math.inf) == noisy


@pytest.mark.parametrize("name", ALGORITHMS)
def test_claim(name):
    claim = ALGORITHMS[name].claim(9, 1e-3)
    if name in CLAIMED:
        assert isinstance(claim, fp.Claim)
        assert claim.source
        assert 0 < claim.epsilon < math.inf
    elif name in ONLY_CLAIMED:
        assert not claim.sound
        assert claim.reasons
    else:
        assert claim is None


@pytest.mark.parametrize(("name", "made"), [("fed_sgd", "fed_avg"), ("dp_adam", "dp_sgd")])
def test_an_algorithm_is_printed_in_one_line(name, made):
    shown = repr(ALGORITHMS[name])
    sampler, unit = ALGORITHMS[name].sampler.accounting, ALGORITHMS[name].unit
    assert shown == f"Algorithm(round={made}, sampler={sampler}, unit={unit!r})"
    assert len(shown) < 100
