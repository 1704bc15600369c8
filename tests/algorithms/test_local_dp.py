"""FedAvg + LDP: the noise of every message, its limits, its certificate; codecs with every algorithm."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats
from small import FALSE_ALARM, classification, one_round

from fedpriv import (
    VIEWS,
    Draw,
    Federation,
    LocalSteps,
    adaptive_fed_avg,
    certify,
    dimension,
    dp_fed_avg,
    dp_fed_avg_wav,
    dp_scaffold,
    dp_scaffold_steps,
    dp_sgd,
    everyone,
    fed_avg,
    fed_smp,
    fixed_interval,
    fixed_size,
    full_batch,
    gaussian,
    laplace,
    looked_at,
    per_example,
    poisson,
    qsgd,
    select_rand_k,
    simulate,
    with_replacement,
)
from fedpriv.algorithms.local_dp import ldp_fed_avg
from fedpriv.compression.codecs import UNCODED
from fedpriv.core import random_streams
from fedpriv.privacy import (
    Everyone,
    FixedSize,
    Poisson,
    Release,
    WithReplacement,
    certify_releases,
)

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS, RECORDS = 5, 4
FEDERATION, TEST, MODEL = classification(CLIENTS, RECORDS)
COMMON = {"optimizer": lambda t: optax.sgd(0.1), "batches": full_batch()}
EXAMPLE = jax.tree.map(lambda leaf: leaf[0], FEDERATION.examples)
D = dimension(MODEL.init(jax.random.key(0)))


def after(algorithm, rounds=2):
    found = simulate(algorithm, MODEL.init, FEDERATION, TEST, score=MODEL.score, rounds=rounds)
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found.state.params)])


def a_round(algorithm):
    state = algorithm.init(MODEL.init(jax.random.key(0)), FEDERATION)
    return one_round(algorithm)(jax.random.key(1), state, FEDERATION)


def certified(algorithm, rounds, delta, view="third_party", clients=CLIENTS):
    federation = Federation.blank(EXAMPLE, clients, RECORDS)
    return certify(algorithm, MODEL.init, federation, rounds, delta, view=view)


def released(algorithm, rounds=3):
    """View -> what it sees."""
    found = looked_at(algorithm, MODEL.init, FEDERATION).releases(rounds)
    assert [r.view for r in found] == list(VIEWS)
    return {r.view: r for r in found}


def test_without_clip_and_noise_it_is_fed_avg_to_the_bit():
    options = COMMON | {"sampler": fixed_size(CLIENTS, 3)}
    quiet = ldp_fed_avg(MODEL.loss, mechanism=gaussian(math.inf, 0), **options)
    np.testing.assert_array_equal(after(quiet), after(fed_avg(MODEL.loss, **options)))


@pytest.mark.parametrize(
    ("mechanism", "law"),
    [(gaussian(1e-6, 3e6), stats.norm(0, 3)), (laplace(1e-6, 2e6), stats.laplace(0, 2))],
    ids=["gaussian", "laplace"],
)
def test_every_message_has_all_of_the_noise(mechanism, law):
    """One client: the step is its noise, as its clipped update is nothing beside it."""
    algorithm = ldp_fed_avg(
        MODEL.loss, mechanism=mechanism, sampler=fixed_size(CLIENTS, 1), **COMMON
    )
    state = algorithm.init(MODEL.init(jax.random.key(0)), FEDERATION)
    draw = jax.vmap(lambda k: one_round(algorithm)(k, state, FEDERATION)[0].params)
    moved = jax.tree.map(jnp.subtract, draw(jax.random.split(jax.random.key(4), 500)), state.params)
    noise = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(moved)])
    assert stats.kstest(noise, law.cdf).pvalue > FALSE_ALARM


def test_a_client_drawn_twice_sends_one_message():
    """So that what it loses is that of one release: the mean of four equal messages is that message."""
    weights = [1e9, *[1e-9] * (CLIENTS - 1)]
    noisy = {"mechanism": gaussian(1e-6, 1e6), **COMMON}
    once, often = (
        a_round(ldp_fed_avg(MODEL.loss, sampler=with_replacement(weights, m), **noisy))[0].params
        for m in (1, 4)
    )
    for one, four in zip(*map(jax.tree.leaves, (once, often)), strict=True):
        np.testing.assert_allclose(one, four, rtol=1e-5, atol=1e-6)


def test_certificates():
    """A message by itself; the sum of Gaussian ones has sqrt(M) as much noise; pure epsilon composes."""
    of_one = {"mechanism": gaussian(1.0, 2.0), **COMMON}
    all_of_them = ldp_fed_avg(MODEL.loss, sampler=everyone(CLIENTS), **of_one)
    server = certified(all_of_them, 4, 1e-5, "server")
    summed = certified(all_of_them, 4, 1e-5, "server_secagg")
    central = {"clip_norm": 1.0, "sampler": everyone(CLIENTS), **COMMON}
    like = dp_fed_avg(MODEL.loss, noise_multiplier=2.0 * math.sqrt(CLIENTS), **central)
    assert summed.epsilon == pytest.approx(certified(like, 4, 1e-5).epsilon)
    alone = dp_fed_avg(MODEL.loss, noise_multiplier=2.0, **central)
    assert server.epsilon == pytest.approx(certified(alone, 4, 1e-5).epsilon)
    pure = ldp_fed_avg(MODEL.loss, sampler=everyone(CLIENTS), mechanism=laplace(1.0, 0.5), **COMMON)
    assert certified(pure, 1, 1e-9, "server").epsilon == pytest.approx(2.0, rel=1e-2)
    assert certified(pure, 3, 1e-9, "server").epsilon <= 6.0 * (1 + 1e-2)
    bare = ldp_fed_avg(MODEL.loss, sampler=everyone(CLIENTS), mechanism=gaussian(1.0, 0), **COMMON)
    assert math.isinf(certified(bare, 1, 1e-5, "server").epsilon)


def test_with_replacement_no_secrecy_of_the_cohort_is_used():
    sampler = with_replacement([1, 1, 1, 1, 6], 2)
    made = ldp_fed_avg(MODEL.loss, sampler=sampler, mechanism=gaussian(1.0, 2.0), **COMMON)
    found = certified(made, 4, 1e-5)
    assert found.relation == "zero_out"
    always = ldp_fed_avg(
        MODEL.loss, sampler=everyone(CLIENTS), mechanism=gaussian(1.0, 2.0), **COMMON
    )
    assert found.epsilon < certified(always, 4, 1e-5, "server").epsilon
    once = 1 - 0.4**2
    assert released(made)["third_party"].sampling.rate == pytest.approx(once)


def with_empty_slots(population, size):
    """`fixed_size` with three slots that nobody fills."""
    full = fixed_size(population, size)

    def draw(key):
        ids, mask = full.draw(key)
        return Draw(jnp.pad(ids, (0, 3), constant_values=population), jnp.pad(mask, (0, 3)))

    return full._replace(draw=draw, slots=size + 3)


def test_empty_slots_add_no_noise():
    """Only members' noise counts."""
    spent = [
        certified(
            ldp_fed_avg(MODEL.loss, sampler=of(20, 5), mechanism=gaussian(1.0, 2.0), **COMMON),
            4,
            1e-5,
            "server_secagg",
            clients=20,
        ).epsilon
        for of in (with_empty_slots, fixed_size)
    ]
    assert spent[0] == spent[1]


# Codecs

STEPS = LocalSteps(
    per_example(MODEL.loss), fixed_size(RECORDS, 2), 2, lambda t: optax.sgd(0.1), gaussian(0.5, 1.0)
)
SCAFFOLD = dp_scaffold_steps(
    per_example(MODEL.loss), fixed_size(RECORDS, 2), 2, 0.1, clip_norm=0.5, noise_multiplier=1.0
)
BOUNDED = {"clip_norm": 0.5, "noise_multiplier": 1.0}
ALL = {"sampler": everyone(CLIENTS)}
CODED = {
    "fed_avg": lambda c: fed_avg(MODEL.loss, **ALL, **COMMON, codec=c),
    "dp_fed_avg": lambda c: dp_fed_avg(MODEL.loss, **ALL, **COMMON, **BOUNDED, codec=c),
    "fed_smp": lambda c: fed_smp(
        MODEL.loss, **ALL, **COMMON, **BOUNDED, sparsifier=select_rand_k(0.4), codec=c
    ),
    "adaptive": lambda c: adaptive_fed_avg(
        MODEL.loss, **ALL, **COMMON, **BOUNDED, quantile=0.5, count_noise=2.0, codec=c
    ),
    "dp_fed_avg_wav": lambda c: dp_fed_avg_wav(
        MODEL.loss, d=D, **ALL, **COMMON, **BOUNDED, bounded="update", codec=c
    ),
    "dp_sgd": lambda c: dp_sgd(STEPS, **ALL, codec=c),
    "dp_scaffold": lambda c: dp_scaffold(SCAFFOLD, **ALL, codec=c),
    "ldp_fed_avg": lambda c: ldp_fed_avg(
        MODEL.loss, **ALL, **COMMON, mechanism=gaussian(0.5, 1.0), codec=c
    ),
}


@pytest.mark.parametrize("name", CODED)
def test_codecs_compose_with_every_algorithm(name):
    """The bits that are counted are those of the codec, and 8 bits change the model a little."""
    plain, plain_metrics = a_round(CODED[name](fixed_interval(16, 4.0)))
    coded, metrics = a_round(CODED[name](fixed_interval(8, 4.0)))
    before = plain_metrics["uplink"]
    assert metrics["uplink"].bits() == before.bits() * 8 // 16 + (0 if name != "adaptive" else 1)
    flat = [
        np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(s.params)])
        for s in (plain, coded)
    ]
    assert 0 < np.abs(flat[0] - flat[1]).max() < 0.2
    assert metrics["diagnostics"]["saturated"] == 0


def test_what_does_not_fit_is_reported():
    _, metrics = a_round(CODED["ldp_fed_avg"](fixed_interval(8, 1e-3)))
    assert metrics["diagnostics"]["saturated"] > 0.9
    assert "saturated" not in a_round(CODED["fed_avg"](qsgd(8)))[1]["diagnostics"]


@pytest.mark.parametrize("name", ["dp_fed_avg", "fed_smp", "adaptive", "dp_fed_avg_wav"])
def test_noise_that_the_server_adds_does_not_hide_messages_from_it(name):
    coded = CODED[name](qsgd(8))
    for release in released(coded).values():
        if release.view == "third_party":
            assert release.multiplier > 0
            assert not release.noise_is_split
        else:
            assert release.multiplier == 0
            assert "the server adds the noise" in release.reason
    if name == "dp_fed_avg":
        plain = dp_fed_avg(MODEL.loss, **ALL, **COMMON, **BOUNDED)
        third, expected = (released(a)["third_party"].multiplier for a in (coded, plain))
        assert third == expected
        said = " ".join(certified(coded, 3, 1e-5).assumptions)
        assert "the server adds all of the noise" in said
        assert "before anything leaves it" not in said


def test_rounding_messages_takes_away_the_noise_of_others():
    """A sum of rounded messages is no function of the sum of messages: others' noise may be rounded away."""
    for name in ("dp_sgd", "dp_scaffold", "ldp_fed_avg"):
        own = released(CODED[name](UNCODED))["server"].multiplier
        assert {r.multiplier for r in released(CODED[name](qsgd(8))).values()} == {own}
    one_step = STEPS._replace(steps=1)
    plain, coded = (released(dp_sgd(one_step, **ALL, codec=c)) for c in (UNCODED, qsgd(8)))
    for view in VIEWS:
        factor = 1 if view == "server" else math.sqrt(CLIENTS)
        assert plain[view].multiplier == pytest.approx(coded[view].multiplier * factor)


def test_poisson_cohorts_amplify_nothing():
    """An empty round has no noise: who joins brings it along."""
    made = ldp_fed_avg(
        MODEL.loss, sampler=poisson(CLIENTS, 0.1, CLIENTS), mechanism=gaussian(1.0, 5.0), **COMMON
    )
    third, server = (certified(made, 2, 1e-5, v) for v in ("third_party", "server"))
    assert third.relation == server.relation == "zero_out"
    assert third.epsilon == server.epsilon


def test_other_ways_of_drawing_cannot_be_mixed_with_replacement():
    """A further, harmless release would have it accounted for as if cohorts were secret."""
    replaced = Release("third_party", "client", 1.0, WithReplacement(100, 1, 0.01), 50)
    alone = certify_releases([replaced], 1e-5, "third_party").epsilon
    assert alone > 6
    for other in (Poisson(100, 0.01), FixedSize(100, 1)):
        quiet = Release("third_party", "client", 1e5, other, 1)
        with pytest.raises(ValueError, match="draw all cohorts of a run in one way"):
            certify_releases([replaced, quiet], 1e-5, "third_party")
    everyone_once = Release("third_party", "client", 1e5, Everyone(100), 1)
    both = certify_releases([replaced, everyone_once], 1e-5, "third_party").epsilon
    assert both == pytest.approx(alone, rel=1e-3)
    assert both >= alone * (1 - 1e-9)
    assert any(
        "are public" in text
        for text in certify_releases([replaced], 1e-5, "third_party").assumptions
    )


def test_streams_of_keys_do_not_meet():
    """`split(key, n)[i]` is `fold_in(key, i)`: the constants are beyond all such i."""
    constants = [value for name, value in vars(random_streams).items() if name.isupper()]
    assert len(set(constants)) == len(constants) >= 5
    assert all(2**31 <= value < 2**32 for value in constants)


def test_quantized_updates_are_clipped_after_they_are_decoded():
    """So that C bounds what is summed: with few bits the decoded message is longer than the message."""
    one = fixed_size(CLIENTS, 1)
    options = {"clip_norm": 1e-3, "noise_multiplier": 0.0, "sampler": one, **COMMON}
    moved = after(dp_fed_avg(MODEL.loss, **options, codec=qsgd(2)), 1) - np.concatenate(
        [
            np.ravel(leaf)
            for leaf in jax.tree.leaves(MODEL.init(jax.random.fold_in(jax.random.key(0), 0)))
        ]
    )
    assert np.linalg.norm(moved) <= 1e-3 * (1 + 1e-2)


def test_a_client_that_fills_all_slots_moves_the_sum_by_as_many_clip_norms():
    sampler = with_replacement([1] * CLIENTS, 3)
    made = dp_fed_avg(MODEL.loss, sampler=sampler, **COMMON, **BOUNDED)
    third = released(made)["third_party"]
    assert third.multiplier == pytest.approx(BOUNDED["noise_multiplier"] / 3)
    assert not made.claim(2, 1e-5).sound
