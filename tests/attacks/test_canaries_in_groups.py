"""Canaries among records in public groups: scored by the draws of their own group."""

import jax
import numpy as np
import optax
import pytest
from small import refused, regression, squared, start

import fedpriv as fp
from fedpriv.attacks.canary_places import NoPlaceError

N, ROUNDS = 6, 3
FEDERATION = regression([4] * N)
GROUPS = [["x", "x", "y", "y"]] * N


def algorithm():
    records = fp.PublicGroups(GROUPS, rate={"x": 0.9, "y": 0.2})
    used = fp.gaussian(0.5, 0.5)
    local = fp.LocalSteps(fp.per_example(squared), records, 1, lambda t: optax.sgd(0.1), used)
    return fp.dp_sgd(local, sampler=fp.everyone(N))


def audited(group):
    traced = fp.trace_round(algorithm(), start(), FEDERATION)
    (kind,) = (kind for kind in traced.kinds if kind.group == group)
    seen = next(s for s in traced.seen(ROUNDS, kind) if s.view == "third_party")
    return fp.attacks.with_canaries(algorithm(), 1, seen, per_client=1)


def test_a_canary_of_another_group_finds_no_place():
    state = audited("y").init(start(), FEDERATION)
    with refused("of groups .'x'., which are drawn otherwise", NoPlaceError):
        jax.eval_shape(fp.one_round(audited("y")), jax.random.key(1), state, FEDERATION)


@pytest.mark.slow
def test_scores_are_log_likelihood_ratios():
    """Clients are alike: e^score without the canary, and e^-score with it, have mean 1; wrong once in 1e8."""
    played = audited("x")

    def run(key):
        def step(state, key):
            return fp.one_round(played)(key, state, FEDERATION)[0], None

        begin = played.init(start(), FEDERATION)
        return jax.lax.scan(step, begin, jax.random.split(key, ROUNDS))[0]

    after = jax.jit(lambda keys: jax.lax.map(run, keys))(jax.random.split(jax.random.key(0), 4000))
    present, scores = np.asarray(after.present)[:, 0], np.asarray(after.scores)[:, 0, 0]
    for ratio in (np.exp(scores[~present]), np.exp(-scores[present])):
        assert abs(ratio.mean() - 1) < 6 * ratio.std() / np.sqrt(len(ratio))
    assert scores[present].mean() - scores[~present].mean() > 0.5
