"""FedAvg + LDP: the noise of every message, its limits, its certificate; codecs with every algorithm."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from every_algorithm import ENTRIES
from scipy import stats
from small import (
    FALSE_ALARM,
    assert_close,
    certified,
    gradient,
    one_round,
    records,
    regression,
    released,
    squared,
    start,
    vector,
)

from fedpriv import (
    Algorithm,
    LocalSteps,
    ModelState,
    dp_fed_avg,
    everyone,
    fixed_size,
    full_batch,
    gaussian,
    laplace,
    per_example,
    poisson,
    qsgd,
    with_replacement,
)
from fedpriv.algorithms.local_dp import ldp_fed_avg
from fedpriv.compression.codecs import UNCODED
from fedpriv.core import random_streams
from fedpriv.papers import fixed_interval
from fedpriv.privacy.played import plays_of
from fedpriv.proof.seen import common_neighbour
from fedpriv.types import Draw

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS, RECORDS, RATE, DELTA = 5, 4, 0.1, 1e-5
FEDERATION = regression([RECORDS] * CLIENTS)
COMMON = {"optimizer": lambda t: optax.sgd(RATE), "batches": full_batch()}
ALL = {"sampler": everyone(CLIENTS)}


def ldp(mechanism, sampler=ALL["sampler"], **options):
    return ldp_fed_avg(squared, sampler=sampler, mechanism=mechanism, **COMMON, **options)


def a_round(algorithm):
    """(what a round subtracts from the model f64[4], its metrics)."""
    state = algorithm.init(start(), FEDERATION)
    after, metrics = one_round(algorithm)(jax.random.key(1), state, FEDERATION)
    return vector(start()) - vector(after.params), metrics


def epsilon(algorithm, rounds=4, delta=DELTA, view="third_party"):
    return certified(algorithm, rounds, delta, view=view).epsilon


def seen(algorithm):
    """View -> what it sees."""
    return {view: one for view, (one,) in released(algorithm, 3).items()}


@tiers.every("name", ["laplace", "gaussian"])
def test_every_message_has_all_of_the_noise(name):
    """One client: the step is its noise, as its clipped update is nothing beside it."""
    mechanism, law = {
        "gaussian": (gaussian(1e-6, 3e6), stats.norm(0, 3)),
        "laplace": (laplace(1e-6, 2e6), stats.laplace(0, 2)),
    }[name]
    algorithm = ldp(mechanism, fixed_size(CLIENTS, 1))
    state = algorithm.init(start(), FEDERATION)
    draw = jax.vmap(lambda k: one_round(algorithm)(k, state, FEDERATION)[0].params)
    found = jax.device_get(draw(jax.random.split(jax.random.key(4), 2000)))
    noise = np.concatenate([np.ravel(found[name] - start()[name]) for name in found])
    assert stats.kstest(noise, law.cdf).pvalue > FALSE_ALARM


@pytest.mark.slow
def test_a_client_drawn_twice_sends_one_message():
    """So that what it loses is that of one release: the mean of four equal messages is that message."""
    weights = [1e9, *[1e-9] * (CLIENTS - 1)]
    noisy = gaussian(1e-6, 1e6)
    once, often = (a_round(ldp(noisy, with_replacement(weights, m)))[0] for m in (1, 4))
    assert_close(often, once)


@pytest.mark.slow
def test_certificates():
    """A message by itself; the sum of Gaussian ones has sqrt(M) as much noise; pure epsilon composes."""
    central = {"clip_norm": 1.0, **ALL, **COMMON}
    for view, factor in (("server", 1), ("server_secagg", math.sqrt(CLIENTS))):
        like = dp_fed_avg(squared, noise_multiplier=2.0 * factor, **central)
        assert epsilon(ldp(gaussian(1.0, 2.0)), view=view) == pytest.approx(epsilon(like))
    pure = ldp(laplace(1.0, 0.5))
    assert epsilon(pure, 1, 1e-9, "server") == pytest.approx(2.0, rel=1e-2)
    assert epsilon(pure, 3, 1e-9, "server") <= 6.0 * (1 + 1e-2)
    assert math.isinf(epsilon(ldp(gaussian(1.0, 0)), 1, view="server"))


@pytest.mark.slow
def test_no_secrecy_of_the_cohort_is_used():
    """With replacement; and of Poisson cohorts: an empty round has no noise, as who joins brings it along."""
    made = ldp(gaussian(1.0, 2.0), with_replacement([1, 1, 1, 1, 6], 2))
    assert certified(made, 4, DELTA).relation == "zero_out"
    assert epsilon(made) < epsilon(ldp(gaussian(1.0, 2.0)), view="server")
    of_a_round = seen(made)["third_party"].pairs.zeroed.of
    assert pytest.approx(1 - 0.4**2) in [chance for chance, _ in of_a_round.cases]
    made = ldp(gaussian(1.0, 5.0), poisson(CLIENTS, 0.1, CLIENTS))
    third, server = (certified(made, 2, DELTA, view=v) for v in ("third_party", "server"))
    assert third.relation == server.relation == "zero_out"
    assert third.epsilon == server.epsilon


# Codecs

LOUD = {"clip_norm": 0.5, "noise_multiplier": 1.0}
FAINT = {"clip_norm": 10.0, "noise_multiplier": 0.01}  # clips nothing here
SILENT = {"clip_norm": 10.0, "noise_multiplier": 0.0}


CODED = {
    entry.make.func.__name__: entry
    for entry in reversed(ENTRIES.values())  # the first of each function
    if entry.takes("codec") and "codec" not in entry.make.keywords
}
BY_CLIENTS = [name for name, entry in CODED.items() if entry.noise == "own"]
BY_SERVER = [name for name in CODED if name not in BY_CLIENTS]
LARGEST, CELL = 4.0, 2 * 4.0 / 255


def coded(name, codec, noise):
    """By one step of everyone on all of their records."""
    entry, used = CODED[name], gaussian(**noise)
    local = LocalSteps(per_example(squared), everyone(RECORDS), 1, COMMON["optimizer"], used)
    given = {"mechanism": used, **noise, "local": local, "codec": codec, **ALL, **COMMON}
    if entry.takes("clip_norm"):
        del given["mechanism"]
    return entry.make(**{option: v for option, v in given.items() if entry.takes(option)})


KEEPING = tiers.one_of_each(CODED, lambda entry: (entry.keeps, entry.work))


@tiers.every("name", KEEPING, lambda entry: "any")
def test_codecs_compose_with_every_algorithm(name):
    """Every message is on the grid, noise of the client's own included, and at most a cell from what was meant.

    Without the server's noise and without a clip the first round of each is FedAvg's, where it sends; but for FedRep's,
    whose clients train their heads first.
    """
    entry, own = CODED[name], name in BY_CLIENTS
    noise = FAINT if own else SILENT
    step, metrics = a_round(coded(name, fixed_interval(8, LARGEST), noise))
    overhead = 1 if entry.takes("count_noise") else 0
    assert metrics["uplink"].bits() == entry.sends * 8 + overhead
    assert metrics["diagnostics"]["saturated"] == 0
    sent = step != 0
    assert sent.sum() == min(entry.sends, 4)  # DP-SCAFFOLD sends controls, too
    levels = CLIENTS * (step[sent] + LARGEST) / CELL
    np.testing.assert_allclose(levels, np.round(levels), atol=1e-2)
    theta = vector(start())
    plain = RATE * np.mean([gradient(theta, *records(FEDERATION, i)) for i in range(CLIENTS)], 0)
    scale = 2 if entry.takes("sparsifier") else 1
    # An eighth in six standard deviations of the loudest noise, C sigma / sqrt(5).
    loose = 0.3 if own else 0.0
    if not entry.takes("head_batches"):
        assert np.abs(step - scale * plain)[sent].max() <= CELL + loose
        assert np.abs(step - scale * plain)[sent].max() > 1e-5


@tiers.every("name", BY_SERVER)
def test_noise_that_the_server_adds_does_not_hide_messages_from_it(name):
    for view, one in seen(coded(name, qsgd(8), LOUD)).items():
        if view == "third_party":
            assert one.hidden
            assert "the server adds all of the noise" in " ".join(
                one.words[common_neighbour([one])]
            )
        else:
            assert not one.hidden
            assert "the server adds the noise" in one.reason


def test_what_a_codec_makes_of_the_assumptions():
    by_server, plain = (coded("dp_fed_avg", codec, LOUD) for codec in (qsgd(8), UNCODED))
    assert seen(by_server)["third_party"].pairs == seen(plain)["third_party"].pairs
    said = " ".join(certified(by_server, 3, DELTA).assumptions)
    assert "the server adds all of the noise" in said
    assert "before sending anything" not in said


@tiers.every("name", BY_CLIENTS)
def test_rounding_messages_takes_away_the_noise_of_others(name):
    """A sum of rounded messages is no function of the sum of messages: others' noise may be rounded away."""
    plain, rounded = (seen(coded(name, codec, LOUD)) for codec in (UNCODED, qsgd(8)))
    assert {plays_of(r).multiplier for r in rounded.values()} == {
        plays_of(plain["server"]).multiplier
    }


def test_streams_of_keys_do_not_meet():
    """`split(key, n)[i]` is `fold_in(key, i)`: the constants are beyond all such i."""
    constants = [value for name, value in vars(random_streams).items() if name.isupper()]
    assert len(set(constants)) == len(constants) >= 5
    assert all(2**31 <= value < 2**32 for value in constants)


LONG = np.random.default_rng(0).normal(size=100).astype(np.float32)


def sum_of(codec, clip_norm):
    """(sum without noise, diagnostics) of one client who sends `LONG`."""

    def round(key, state, cohort):
        how = {"mechanism": gaussian(clip_norm, 0.0), "codec": codec}
        total, metrics, _ = cohort.sum(lambda k, shard: jnp.asarray(LONG), key, **how)
        return state._replace(params=total, round=state.round + 1), metrics

    first = ModelState(np.zeros(100, np.float32), np.int32(0))
    algorithm = Algorithm(lambda params, federation: first, round, everyone(1))
    after, metrics = one_round(algorithm)(jax.random.key(1), first, regression([1]))
    return np.asarray(after.params), metrics["diagnostics"]


def test_messages_are_clipped_after_they_are_decoded():
    """So that C bounds what is summed: with few bits the decoded message is longer than the message."""
    total, _ = sum_of(qsgd(2), 0.5)
    assert np.linalg.norm(total) == pytest.approx(0.5, rel=1e-5)


def test_what_does_not_fit_is_reported():
    _, told = sum_of(fixed_interval(8, 0.5), 10.0)
    assert told["saturated"] == pytest.approx((np.abs(LONG) > 0.5).mean())
    assert "saturated" not in sum_of(qsgd(8), 10.0)[1]


@pytest.mark.slow
def test_a_client_that_fills_several_slots_counts_as_often():
    sampler = with_replacement([1] * CLIENTS, 3)
    made = dp_fed_avg(squared, sampler=sampler, **COMMON, **LOUD)
    plays = plays_of(seen(made)["third_party"])
    assert plays.multiplier == pytest.approx(LOUD["noise_multiplier"])
    assert plays.drawn == sampler.accounting
    assert not made.claim(2, DELTA).sound


def with_empty_slots(population, size):
    """`fixed_size` with three slots that nobody fills."""
    full = fixed_size(population, size)

    def draw(key):
        ids, mask, _ = full.draw(key)
        return Draw(jnp.pad(ids, (0, 3), constant_values=population), jnp.pad(mask, (0, 3)))

    return full._replace(draw=draw, slots=size + 3)


def test_empty_slots_add_no_noise():
    """Only members' noise counts."""
    spent = [
        epsilon(ldp(gaussian(1.0, 2.0), of(20, 5)), view="server_secagg")
        for of in (with_empty_slots, fixed_size)
    ]
    assert spent[0] == spent[1]
