"""Rounds of a user's own that look like faulty ones and are sound pass, and get a certificate.

Of the statistical tests that they pass each refuses a sound algorithm with probability 1e-6.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from jax import lax
from own_algorithms import (
    CLIENTS,
    FEDERATION,
    GAUSSIAN,
    PARAMS,
    SIGMA,
    D,
    State,
    after_sum,
    at_random,
    error_feedback,
    fed_avg,
    fed_smp,
    moved,
    of_clients,
    scaffold,
    stepped,
    twice,
    update,
)
from planted_rounds import Sound

import fedpriv as fp
from fedpriv.certification.checks import check_launch
from fedpriv.compression.sparsification import top_k
from fedpriv.core.trees import flatten

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def all_that_is_allowed(key, state, cohort, summed, metrics):
    """Of the cohort's size, public data, what was released, and randomness of the server's own."""
    _ = summed.total["b"] / cohort.size
    metrics["diagnostics"]["size"] = cohort.size.astype(jnp.float32)
    momentum = jax.tree.map(lambda m, s: 0.9 * m + s, state.extra, summed.total)
    state = moved(state._replace(extra=momentum), -0.1 * flatten(update(state, key, cohort.public)))

    count = lambda key, shard: jnp.where(shard.size > 2, 0.5, -0.5)  # noqa: E731
    second, _, _ = cohort.sum(count, jax.random.fold_in(key, 1), mechanism=fp.gaussian(0.5, 2.0))
    rows = second * flatten(summed.total)[None]
    decayed, _ = lax.scan(lambda c, x: (c + 0.1 * x, None), jnp.zeros(D), rows)
    warm = lax.cond(state.round > 3, lambda: jnp.ones(D), lambda: jnp.zeros(D))
    own = 0.1 * jax.random.normal(jax.random.fold_in(key, 7), (D,))
    return moved(state, decayed + warm + own), metrics


def clip_from_releases():
    """The clip norm follows what was released."""

    def round(key, state, cohort):
        used = GAUSSIAN.at(state.extra, SIGMA)
        client = lambda key, shard: update(state, key, shard)  # noqa: E731
        total, metrics, _ = cohort.sum(client, key, mechanism=used)
        after = stepped(state, total, cohort.expected_size)
        bound = jnp.clip(jnp.linalg.norm(flatten(total)), 0.1, 1.0)
        return State(after, state.round + 1, bound), metrics

    return of_clients(round, jnp.float32(0.5))


def public_and_released(key, state, cohort):
    """The mask of top_k."""
    return top_k(jnp.abs(flatten(state.params) + flatten(update(state, key, cohort.public))), 6)


def several_sums():
    """All of one key, which tells nothing of their noise."""

    def loop(once, key, params):
        for _ in range(3):
            params = once(key, params)
        return params

    return twice(loop)


HARMLESS = {
    "all that is allowed": Sound(
        after_sum(all_that_is_allowed, jax.tree.map(jnp.zeros_like, PARAMS)), "sums"
    ),
    "several releases in a Python loop": Sound(several_sums(), "sums"),
    "a schedule of noise": Sound(
        fed_avg(fp.dynamic(GAUSSIAN, rounds=4, noise_decay=2.0, parts=2)), "sums"
    ),
    "a clip norm from releases": Sound(clip_from_releases(), "sums"),
    "Fed-SMP, rand_k": Sound(fed_smp(at_random), "sums"),
    "Fed-SMP, top_k of the last sum and of public data": Sound(
        fed_smp(public_and_released), "sums"
    ),
    "error feedback in clients' own state": Sound(error_feedback(), "sums"),
    "DP-SCAFFOLD of everyone with a local decay": Sound(
        scaffold(
            sampler=fp.everyone(CLIENTS),
            direction=lambda h, y, shard: jax.tree.map(lambda h, y: h + 0.01 * y, h, y),
        ),
        "sums",
    ),
    "a mechanism by hand that is sound": Sound(
        fed_avg(GAUSSIAN._replace(seal=())), "mechanism by hand"
    ),
    "nothing hidden, and said": Sound(fed_avg(fp.unprotected("a baseline")), "sums"),
}


@tiers.every("name", HARMLESS, kind=lambda sound: "a round")
def test_a_sound_round_passes_all_checks_as_it_runs(name):
    fp.check_algorithm(HARMLESS[name].algorithm, PARAMS, FEDERATION)


@tiers.every("name", HARMLESS)
def test_a_sound_round_is_certified(name):
    by_word = "declaration" in name or "by hand" in name
    certificate = check_launch(HARMLESS[name].algorithm, PARAMS, FEDERATION).certify(3, 1e-3)
    assert certificate.basis == ("declared" if by_word else "constructed")
    assert np.isfinite(certificate.epsilon) == (name != "nothing hidden, and said")
