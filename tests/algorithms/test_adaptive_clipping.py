"""DP-FedAvg with adaptive clipping: against NumPy, its limits, and what the two parts release together."""

import math
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from noise import check_noise
from scipy import stats
from small import FALSE_ALARM, assert_close, assert_identical, keys_of, members, one_round

import fedpriv as fp
from fedpriv import (
    Federation,
    everyone,
    full_batch,
    gaussian,
    mechanism,
    poisson,
)
from fedpriv.algorithms.adaptive_clipping import adaptive_fed_avg, update_noise
from fedpriv.mechanisms.clipping import flat, per_layer
from fedpriv.mechanisms.haar import haar, weights
from fedpriv.mechanisms.noise import haar_noise
from fedpriv.pairs.parts import draws_of
from fedpriv.privacy import VIEWS, joint_multiplier
from fedpriv.privacy.played import plays_of

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS, D, RATE, Z, SIGMA_B = 40, 8, 0.5, 1.2, 2.0
NORMS = np.geomspace(0.1, 10, CLIENTS)
"""Of the clients' updates."""
UPDATES = np.random.default_rng(0).normal(size=(CLIENTS, D))
UPDATES *= (NORMS / np.linalg.norm(UPDATES, axis=1))[:, None]
START = {"w": jnp.zeros(D)}


def linear(params, example):
    """Its gradient is x wherever the model is."""
    return params["w"] @ example["x"]


def holding(updates):
    """One record per client, whose full batch moves it by `updates` [clients, D], which may be broken."""
    rows = [np.array([i]) for i in range(len(updates))]
    plain = Federation.from_arrays({"x": np.zeros((len(rows), D), np.float32)}, rows)
    return plain.replace(examples={"x": jnp.asarray(updates / RATE, jnp.float32)})


FEDERATION = holding(UPDATES)
COMMON = {"optimizer": lambda t: optax.sgd(RATE), "batches": full_batch()}
USUAL = {
    "sampler": everyone(CLIENTS),
    "quantile": 0.5,
    "clip_norm": 0.5,
    "noise_multiplier": Z,
    "count_noise": SIGMA_B,
}
SILENT = {"noise_multiplier": 0.0, "count_noise": 0.0}


def adaptive(**changes):
    return adaptive_fed_avg(linear, **COMMON | USUAL | changes)


DEFAULT = adaptive()


@lru_cache
def compiled(algorithm, count):
    def run(state, keys, federation):
        def step(state, key):
            after, metrics = fp.one_round(algorithm)(key, state, federation)
            return after, (after, metrics)

        return jax.lax.scan(step, state, keys)[1]

    return jax.jit(run)


def rounds_of(algorithm, count, federation=FEDERATION, first=None):
    """The states before and after each of `count` rounds, stacked; the metrics; `first` is another clip norm."""
    state = algorithm.init(START, federation)
    if first is not None:
        state = state._replace(clip_norm=jnp.float32(first))
    keys = jax.random.split(jax.random.key(0), count)
    states, metrics = jax.device_get(compiled(algorithm, count)(state, keys, federation))
    state = jax.device_get(state)
    joined = jax.tree.map(lambda a, b: np.concatenate([np.asarray(a)[None], b]), state, states)
    return joined, metrics, keys


def numpy_round(updates, bound, expected_size, gamma=0.5, rate=0.2):
    """(what the model loses, the next clip norm) without noise; `updates` are those of the cohort."""
    norms = np.linalg.norm(updates, axis=1)
    usable = np.where(np.isfinite(norms)[:, None], updates, 0.0)
    scale = np.minimum(1, bound / np.where(np.isfinite(norms), norms, 1.0))
    below = ((norms <= bound) - 0.5).sum() / expected_size + 0.5
    step = (usable * scale[:, None]).sum(0) / expected_size
    return step, bound * math.exp(-rate * (below - gamma))


@tiers.every("name", ["poisson", "everyone"])
def test_against_numpy(name):
    """Cohorts of any size, empty ones included; two clients are broken."""
    sampler = {"poisson": poisson(CLIENTS, 0.05, 6), "everyone": everyone(CLIENTS)}[name]
    broken = UPDATES.copy()
    broken[3, 2], broken[11, 0] = math.nan, math.inf
    algorithm = adaptive(sampler=sampler, quantile=0.3, clip_rate=0.4, **SILENT)
    states, metrics, keys = rounds_of(algorithm, 12, holding(broken))
    assert_identical(metrics["diagnostics"]["clip_norm"], states.clip_norm[:-1])
    for t, key in enumerate(keys):
        step, bound = numpy_round(
            broken[members(sampler, key, t)],
            float(states.clip_norm[t]),
            sampler.expected_size,
            0.3,
            0.4,
        )
        moved = np.asarray(states.params["w"][t] - states.params["w"][t + 1])
        np.testing.assert_allclose(moved, step, atol=2e-5)
        assert float(states.clip_norm[t + 1]) == pytest.approx(bound, rel=1e-5)


@pytest.mark.slow
def test_at_rate_zero_it_is_dp_fed_avg():
    """But for the noise of updates, whose key is the first of two; with hardly a count, z_Delta is z."""
    sampler = poisson(CLIENTS, 0.2, 20)
    fixed = fp.dp_fed_avg(linear, sampler=sampler, **COMMON, clip_norm=0.5, noise_multiplier=Z)
    states, _, keys = rounds_of(adaptive(sampler=sampler, clip_rate=0.0, count_noise=1e9), 3)
    expected, _, _ = rounds_of(fixed, 3)
    assert_identical(states.clip_norm, np.full(4, 0.5, np.float32))
    noise = [keys_of(key, t).noise for t, key in enumerate(keys)]
    other = sum(np.asarray(jax.random.normal(jax.random.split(key)[0], (D,))) for key in noise)
    same = sum(np.asarray(jax.random.normal(key, (D,))) for key in noise)
    apart = states.params["w"][-1] - expected.params["w"][-1]
    assert_close(apart, 0.5 * Z / sampler.expected_size * (same - other), 1e-4)


@pytest.mark.slow
@tiers.every("gamma", [0.1, 0.9])
def test_it_finds_the_quantile(gamma):
    """Without noise: all but one client's worth of the fraction, from below and from above."""
    algorithm = adaptive(quantile=gamma, **SILENT)
    for first in (0.05, 20.0):
        states, _, _ = rounds_of(algorithm, 400, first=first)
        below = np.mean(float(states.clip_norm[-1]) >= NORMS)
        assert abs(below - gamma) <= 1 / CLIENTS + 1e-9


@pytest.mark.slow
def test_it_finds_the_quantile_under_noise():
    """The norms are uniform in log C, over 4.6: an AR(1) process around the quantile, and one gap between clients.

    False alarm 1e-6.
    """
    states, _, _ = rounds_of(adaptive(quantile=0.25), 400, first=3.0)
    width = math.log(NORMS[-1] / NORMS[0])
    pull = 1 - 0.2 / width
    spread = 0.2 * SIGMA_B / CLIENTS / math.sqrt(1 - pull**2)
    off = math.log(float(states.clip_norm[-1]) / np.quantile(NORMS, 0.25))
    assert abs(off) < stats.norm.isf(FALSE_ALARM / 2) * spread + width / (CLIENTS - 1)


def released(algorithm, federation, key, gamma=0.5, rate=0.2):
    """(the noisy sum f32[D], the noisy count of bits minus 1/2) that the new state shows."""
    state = algorithm.init(START, federation)
    after, _ = one_round(algorithm)(key, state, federation)
    fraction = gamma - jnp.log(after.clip_norm / state.clip_norm) / rate
    total = CLIENTS * (state.params["w"] - after.params["w"])
    return total, CLIENTS * (fraction - 0.5)


HAAR = mechanism(flat(), haar_noise(D), clip_norm=1.0, noise_multiplier=9.0)


@pytest.mark.slow
def test_haar_noise_of_both_parts():
    """Whitened, the sum and the count are D + 1 independent standard normals, with z_Delta and sigma_b."""
    algorithm = adaptive(mechanism=HAAR)
    nothing = holding(np.zeros((CLIENTS, D)))

    def draw(key):
        total, count = released(algorithm, nothing, key)
        z = total / (0.5 * update_noise(Z, SIGMA_B))
        z = jnp.asarray(weights(D), jnp.float32) * haar(z)
        return jnp.append(z, (count - CLIENTS / 2) / SIGMA_B)  # an update of 0 is below

    check_noise(draw, 1.0, draws=3000)


def test_one_client_moves_both_parts_by_no_more_than_declared():
    """Whitened, a client that is replaced moves them by 2 / z; one that becomes 0 also flips its bit."""
    found = {}
    for name, first, second in (
        ("opposite", [50.0], [-50.0]),
        ("to zero", [50.0], [0.0]),
        ("broken", [math.nan], [0.5]),
    ):
        shown = []
        for entry in (first, second):
            updates = UPDATES.copy()
            updates[0] = np.pad(entry, (0, D - 1))
            total, count = released(DEFAULT, holding(updates), jax.random.key(0))
            shown.append(np.append(total / (0.5 * update_noise(Z, SIGMA_B)), count / SIGMA_B))
        found[name] = np.linalg.norm(shown[0] - shown[1])
        assert found[name] <= 2 / Z * (1 + 1e-4)
    assert found["opposite"] == pytest.approx(2 / update_noise(Z, SIGMA_B), rel=1e-4)
    flipped = math.hypot(1 / update_noise(Z, SIGMA_B), 1 / SIGMA_B)
    assert found["to zero"] == pytest.approx(flipped, rel=1e-4)


@pytest.mark.parametrize("sigma_b", [0.6001, 1.0, 50.0])
def test_theorem_1(sigma_b):
    given = [update_noise(Z, sigma_b), 2 * sigma_b]
    assert joint_multiplier(given) == pytest.approx(Z, rel=1e-12)


def third_party(algorithm, rounds, clients=CLIENTS):
    """What it sees, of one kind of rounds."""
    federation = Federation.blank({"x": jnp.zeros(D)}, clients, 1)
    found = fp.trace_round(algorithm, START, federation).seen(rounds)
    assert [each.view for each in found] == list(VIEWS)
    return found[0]


@pytest.mark.slow
def test_the_reach_of_another_mechanism_counts():
    """Its own clip norm and noise do not."""
    calibrated = mechanism(
        flat(), haar_noise(D), clip_norm=7.0, noise_multiplier=0.1, calibrated=True
    )
    layered = mechanism(per_layer(1), haar_noise(D), clip_norm=7.0, noise_multiplier=0.1)
    expected = joint_multiplier([update_noise(Z, SIGMA_B) / math.sqrt(D), 2 * SIGMA_B])
    for used, multiplier in (
        (HAAR, expected),
        (layered, expected),  # whose set is inside the ball
        (calibrated, Z),
        (gaussian(9.0, 9.0), Z),
    ):
        seen = third_party(adaptive(mechanism=used), 3)
        assert (draws_of(seen.pairs.removed), seen.reason) == (3, "")
        assert plays_of(seen).multiplier == pytest.approx(multiplier)
    for hidden in (adaptive(**SILENT), adaptive(noise_multiplier=0.0)):
        for seen in fp.trace_round(hidden, START, FEDERATION).seen(3):
            assert not seen.hidden
            assert seen.reason
    given = adaptive(mechanism=gaussian(9.0, 9.0))
    assert_identical(rounds_of(given, 2)[0], rounds_of(DEFAULT, 2)[0])


@pytest.mark.slow
def test_the_clip_norm_stays_a_bound():
    """In [1e-8, 1e8], whatever the clients send and however often."""
    algorithm = adaptive(clip_rate=2.0)
    nothing = np.full((CLIENTS, D), math.nan)
    for updates, first in ((nothing, 5e7), (np.zeros((CLIENTS, D)), 2e-8)):
        states, _, _ = rounds_of(algorithm, 6, holding(updates), first)
        assert float(states.clip_norm[-1]) == pytest.approx(1e8 if first > 1 else 1e-8)
        assert np.isfinite(states.params["w"]).all()


@pytest.mark.slow
def test_metrics():
    _, metrics, _ = rounds_of(DEFAULT, 2)
    assert set(metrics["diagnostics"]) == {"mean_update_norm", "clip_norm"}
    assert_close(metrics["diagnostics"]["mean_update_norm"], np.full(2, NORMS.mean()))
    assert jax.tree.map(lambda n: int(n[0]), metrics["uplink"]).bits() == 32 * (
        D + 1
    )  # the bit with its share
    for bare in (adaptive(noise_multiplier=0.0), adaptive(codec=fp.qsgd(8))):
        assert fp.trace_round(bare, START, FEDERATION).stages[0].uplink % 32 == 1


@pytest.mark.slow
def test_the_count_s_noise_is_a_twentieth_of_the_cohort_by_default():
    seen = third_party(adaptive(sampler=everyone(2000), count_noise=None), 1, 2000)
    assert plays_of(seen).multiplier == pytest.approx(Z)
