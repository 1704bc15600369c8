"""Clients weighted by their examples: the two estimators by hand, how far one client moves them, what is certified."""

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from small import (
    assert_close,
    assert_normal,
    records,
    regression,
    squared,
    start,
    table_of,
)

import fedpriv as fp
from fedpriv.privacy.rows import featured
from fedpriv.proof.stream import participation_key
from fedpriv.rounds.one_round import Carried, round_in_run

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SIZES = [4, 1, 3, 2, 4, 6]
N, CAP, S, Z = len(SIZES), 3, 30.0, 1.4
WEIGHTS = np.minimum(np.array(SIZES) / CAP, 1)
FEDERATION, PARAMS = regression(SIZES), start()
POISSON = fp.poisson(N, 0.5)
FIXED = fp.ByExamples(CAP, mean=WEIGHTS.mean())
CLIPPED = fp.ByExamples(CAP, mean=0.6, estimator="clipped")
COHORT = fp.ByExamples(cap=1, mean=1e-3, estimator="clipped")  # the mean over those who are there


@pytest.fixture(scope="module")
def means():
    """Cohort, and for each weighting the mean update without noise, the noise, and the clipped updates f64[n, d]."""
    federation = regression(SIZES, features=500)
    quiet, loud = (fp.gaussian(S, sigma) for sigma in (0.0, Z))

    def client(key, shard):
        return jnp.sum(jnp.where(shard.mask[:, None], shard.examples["x"], 0.0), 0)

    def mean_of(weighting, mechanism):
        def round(key, state, cohort):
            total, metrics, _ = cohort.sum(client, key, mechanism=mechanism, weighting=weighting)
            return fp.ModelState(total / cohort.expected_size, state.round + 1), metrics

        return round_in_run(fp.Algorithm(fp.start, round, POISSON))

    each = [mean_of(*parts) for parts in itertools.product((FIXED, CLIPPED, COHORT), (quiet, loud))]

    @jax.jit
    def run(key):
        drawn = POISSON.draw(participation_key(key, 0))
        carried = Carried(fp.ModelState(jnp.zeros(500), jnp.int32(0)), None, ((),))
        ran = [mean(key, carried, federation, jnp.int32(0)) for mean in each]
        return drawn, [(after.state.params, metrics["uplink"]) for after, metrics in ran]

    updates = np.stack([records(federation, i)[0].sum(0) for i in range(N)])
    norms = np.linalg.norm(updates, axis=1, keepdims=True)
    assert norms.min() < S < norms.max()
    return [run(jax.random.key(t)) for t in range(6)], updates * np.minimum(1, S / norms)


ESTIMATORS = {
    "fixed": (0, lambda w: N / 2 * WEIGHTS.mean(), Z * S / (N / 2 * WEIGHTS.mean())),
    "clipped": (1, lambda w: max(N / 2 * 0.6, w.sum()), 2 * Z * S / (N / 2 * 0.6)),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_estimators_by_hand(name, means):
    """Updates are clipped, then weighted, and divided by q W or max(q W_min, their weights); the paper's noise."""
    place, divisor, std = ESTIMATORS[name]
    (runs, updates), divisors = means, set()
    for (ids, mask, _), found in runs:
        there = np.asarray(ids)[np.asarray(mask)]
        w, u = WEIGHTS[there], updates[there]
        divisors.add(divisor(w))
        (mean, wire), (noisy, _) = found[2 * place : 2 * place + 2]
        assert_close(mean, (w[:, None] * u).sum(0) / divisor(w))
        assert wire.bits() == 32 * (500 + (name == "clipped"))  # of which the weight travels, too
    assert_normal(np.asarray(noisy - mean), std)
    assert (len(divisors) > 1) == (name == "clipped")


def test_equal_weights_without_a_bound_on_the_divisor_are_the_mean_of_those_there(means):
    runs, updates = means
    for (ids, mask, _), found in runs:
        there = np.asarray(ids)[np.asarray(mask)]
        assert_close(found[4][0], updates[there].mean(0) if len(there) else np.zeros(500))


def fed_avg(weighting, sigma=1.2, sampler=POISSON, make=fp.dp_fed_avg, **more):
    return make(
        squared,
        sampler=sampler,
        optimizer=lambda t: optax.sgd(0.5),
        batches=fp.full_batch(),
        clip_norm=0.8,
        noise_multiplier=sigma,
        weighting=weighting,
        **more,
    )


@tiers.every("order", [2, 1, np.inf], lambda order: "any")
@pytest.mark.parametrize("replaced", [False, True])
def test_one_client_moves_what_is_perturbed_by_the_bound(order, replaced):
    """In any norm: of random and of worst cohorts, none by more, and some by nearly as much."""
    rng = np.random.default_rng(0)
    n, size = 40, 20.0  # clients in a cohort at most, its expected size
    weighting = fp.ByExamples(1, mean=0.8, estimator="clipped")

    def perturbed(updates, weights):
        total = (weights[:, None] * updates).sum(0)
        return np.asarray(weighting.bounded(total, weights, size), np.float64)

    def bounded(updates):
        return updates / np.linalg.norm(updates, order, axis=1, keepdims=True)

    far = 0.0
    for others in itertools.chain(rng.integers(0, n, 30), [16]):
        updates = bounded(rng.normal(size=(others + 2, 3)))
        weights = rng.uniform(0, 1, others + 2)
        if others == 16:  # as many as make the divisor least, all alike, and one against them
            updates = np.tile(updates[:1], (others + 2, 1)) * np.r_[[1.0] * others, -1, 1][:, None]
            weights[:] = 1
        one, other = np.r_[0 : others + 1], np.r_[0:others, others + 1]
        after = perturbed(updates[other], weights[other]) if replaced else 0
        after = after if replaced else perturbed(updates[:others], weights[:others])
        moved = np.linalg.norm(perturbed(updates[one], weights[one]) - after, order)
        far = max(far, moved)
    bound = 2.0 if replaced else 1.0
    assert 0.45 * bound < far <= bound * (1 + 1e-6)
    if not replaced:
        assert far > 0.9


def views(algorithm):
    traced = fp.trace_round(algorithm, PARAMS, FEDERATION)
    assert traced.basis == "constructed"
    return {view: replace(featured(row), used=None) for view, (row,) in table_of(traced, 9).items()}


SAMPLERS = {"poisson": POISSON, "fixed": fp.fixed_size(N, 3), "everyone": fp.everyone(N)}


@tiers.every("name", SAMPLERS)
def test_the_certificate_is_that_of_the_mechanism(name):
    """With the realised weights in the divisor the server adds the noise, which hides nothing from itself."""
    plain, fixed, clipped = (
        views(fed_avg(w, sampler=SAMPLERS[name])) for w in (fp.types.Weighting(), FIXED, CLIPPED)
    )
    assert fixed == plain
    assert clipped["third_party"].noisy == plain["third_party"].noisy
    assert plain["third_party"].noisy.multiplier == pytest.approx(1.2)
    assert clipped["third_party"].adder == "server"
    for view in ("server", "server_secagg"):
        assert clipped[view].noisy.multiplier == 0
        assert "divided by the clients' weights" in clipped[view].reason
