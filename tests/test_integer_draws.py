"""Which draws sums of integers are certified for, and that the others are refused in a line."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from small import refused

import fedpriv as fp

N, D, DELTA = 40, 5, 1e-5
X = np.random.default_rng(0).normal(size=(2 * N, D)).astype(np.float32)
IDS = np.arange(2 * N) % N
DISCRETE, SKELLAM = fp.discrete_gaussian(1.0, 2.0, bits=16), fp.skellam(1.0, 2.0, bits=16)
GAUSSIAN = fp.gaussian(1.0, 2.0)
GROUPS = ["few"] * 20 + ["many"] * 20
STRATA = {"few": fp.fixed_size(20, 5), "many": fp.fixed_size(20, 10)}


def squared(w, example):
    return jnp.sum((w - example) ** 2)


def federation(person=None):
    return fp.Federation.from_arrays(X, fp.partition.natural(IDS), person=person)


def certified(sampler, mechanism, view="third_party", of=None):
    algorithm = fp.fed_avg(
        squared,
        sampler=sampler,
        mechanism=mechanism,
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.full_batch(),
    )
    of = federation() if of is None else of
    return fp.certify(algorithm, jnp.zeros(D), of, rounds=3, delta=DELTA, view=view)


EXACT = {
    "turns": fp.fixed_order(N, 10),
    "groups": fp.grouped(GROUPS, STRATA),
    "dropping": fp.dropping(fp.fixed_size(N, 20), 0.3),
}


@tiers.every("name", EXACT, kind=lambda sampler: "of one size")
@tiers.every("view", ["third_party", "server"])
def test_discrete_gaussians_cost_what_real_noise_does(name, view):
    found, real = (certified(EXACT[name], used, view) for used in (DISCRETE, GAUSSIAN))
    assert real.epsilon < found.epsilon < 1.001 * real.epsilon
    assert found.relation == real.relation


VARYING = {
    "poisson": fp.poisson(N, 0.25, 25),
    "availability": fp.random_availability(N, 10, 4, 0.5),
    "cyclic": fp.cyclic_poisson(N, 2, 0.5),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", VARYING)
def test_cohorts_that_may_not_be_full_are_skellams(name):
    with refused(r"^mechanism.*: .*fp.skellam"):
        certified(VARYING[name], DISCRETE)
    by_rdp = certified(VARYING[name], GAUSSIAN).epsilons["RDP"]
    assert certified(VARYING[name], SKELLAM).epsilon == pytest.approx(by_rdp, rel=0.05)


def test_a_block_of_skellams_is_never_finite_without_a_proof():
    assert np.isinf(certified(fp.random_allocation(N, 4), SKELLAM).epsilon)


@tiers.every("name", {"discrete": DISCRETE, "skellam": SKELLAM})
def test_unequal_or_repeated_members_are_refused(name):
    for sampler in (
        fp.with_replacement([2] * N, 10),
        fp.grouped(GROUPS, STRATA, weights={"few": 0.5, "many": 1.0}),
        fp.grouped(GROUPS, STRATA, clip_scales={"few": 0.5, "many": 1.0}),
    ):
        with refused(r"^sampler.*: .*count members equally"):
            certified(sampler, {"discrete": DISCRETE, "skellam": SKELLAM}[name])


@pytest.mark.slow
@pytest.mark.parametrize("view", ["server", "third_party", "server_secagg"])
def test_a_persons_clients_are_counted_together(view):
    of = federation(np.repeat(np.arange(N // 2), 2)[IDS])
    real = certified(fp.fixed_size(N, 10), GAUSSIAN, view, of)
    found = certified(fp.fixed_size(N, 10), DISCRETE, view, of)
    assert found.unit == real.unit == "person"
    if view == "server":  # where messages' own Gaussian noises add up in l2, and these in l1
        assert real.epsilon < found.epsilon
    else:
        assert real.epsilon < found.epsilon < 1.001 * real.epsilon


def test_a_persons_clients_by_turns_are_refused():
    of = federation(np.repeat(np.arange(N // 2), 2)[IDS])
    with refused(r"^sampler.*: .*per_person=1"):
        certified(fp.fixed_order(N, 10), DISCRETE, "server_secagg", of)


@pytest.mark.slow
def test_late_answers_weigh_at_most_what_they_are_counted_at():
    def certificate(mechanism):
        algorithm = fp.buffered(
            lambda key, params, shard: params,
            lambda state, mean: state._replace(params=mean, round=state.round + 1),
            sampler=fp.fixed_size(N, 10),
            delay=fp.delays.geometric(1.0, 3),
            staleness=lambda delay: 1 / (1 + delay),
            mechanism=mechanism,
        )
        return fp.certify(
            algorithm, jnp.zeros(D), federation(), rounds=3, delta=DELTA, view="third_party"
        )

    real, found = certificate(GAUSSIAN), certificate(DISCRETE)
    assert real.epsilon < found.epsilon < 1.001 * real.epsilon


@pytest.mark.slow
def test_what_is_assumed_names_no_table_of_the_library():
    texts = certified(fp.everyone(N), DISCRETE, "server_secagg").assumptions
    assert not any("closes over" in text or "real-valued" in text for text in texts)
    assert any("2^-145" in text for text in texts)
