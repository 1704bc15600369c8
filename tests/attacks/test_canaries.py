"""Canaries: what they put in, whom they leave alone, and where they find no place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from canary_runs import (
    CLIENTS,
    CLIP,
    COMMON,
    FEDERATION,
    RATE,
    RECORDS,
    WIDE,
    a_round,
    attacked,
    certified_of,
    clients,
    clipped,
    gradients,
    records,
    seen_of,
    traced,
    warm,
    with_canaries,
)
from small import assert_normal, one_round, squared, start, vector

import fedpriv as fp
from fedpriv.attacks.canary_messages import Canaries
from fedpriv.attacks.canary_places import NoPlaceError
from fedpriv.core.trees import flatten

pytestmark = pytest.mark.usefixtures("quick_to_compile")

DIRECTIONS = Canaries(jax.random.key(0), jnp.ones(CLIENTS, bool), 1.0, 0)


@pytest.fixture(scope="module")
def directions():
    """f64[CLIENTS, 4]."""
    of_canary = jax.jit(jax.vmap(lambda j: flatten(DIRECTIONS.direction(j, start()))))
    return np.asarray(of_canary(jnp.arange(CLIENTS)), np.float64)


def test_canary_clients_move_the_model_by_the_clip_norm_in_their_direction(directions):
    """All clients are canaries: without noise the model moves by C times the directions of those there, over n.

    Coins are tossed in the first round alone.
    """
    audited = with_canaries(clients(0.0), CLIENTS)
    after = a_round(audited)
    expected = CLIP * np.asarray(after.present, float) @ directions / CLIENTS
    np.testing.assert_allclose(vector(start()) - vector(after.params), expected, atol=1e-6)
    assert 5 < after.present.sum() < 35
    again, _ = one_round(audited)(jax.random.key(2), after, FEDERATION)
    np.testing.assert_array_equal(again.present, after.present)


def test_canary_records_move_it_in_every_step(directions):
    """One canary at the first position of each client; the others' gradients as without it."""
    after = a_round(with_canaries(records(0.0), CLIENTS, per_client=1))

    def client(i):
        theta = vector(start())
        for _ in range(3):
            others = clipped(gradients(i, theta)[1:]).sum(0)
            total = others + CLIP * float(after.present[i]) * directions[i]
            theta = theta - RATE * total / RECORDS
        return theta

    expected = np.mean([client(i) for i in range(CLIENTS)], 0)
    np.testing.assert_allclose(vector(after.params), expected, atol=2e-5)


@pytest.mark.slow
def test_others_are_left_alone(directions):
    """With only one place taken the rest trains as ever, canary there or not."""
    theta = vector(start())
    updates = clipped(np.stack([RATE * gradients(i, theta).mean(0) for i in range(CLIENTS)]))
    audited = with_canaries(clients(0.0), 1)
    single = Canaries(jax.random.key(0), jnp.ones(1, bool), 1.0, 0)
    direction = flatten(single.direction(jnp.int32(0), start()))
    seen = set()
    for key in range(1, 21):  # all coins alike: 2e-6
        after = a_round(audited, key)
        seen.add(there := bool(after.present[0]))
        total = updates[1:].sum(0) + there * CLIP * direction
        np.testing.assert_allclose(vector(after.params), theta - total / CLIENTS, atol=1e-6)
    assert seen == {True, False}


@pytest.mark.slow
@pytest.mark.parametrize("per_client", [0, 2])
def test_canaries_leave_the_certificate_as_it_is(per_client):
    """Their scores are diagnostics; who certifies traces the sums of a cohort that canaries have copied."""
    algorithm = records(3.0) if per_client else clients(3.0, fp.poisson(CLIENTS, 0.3, 30))
    audited = with_canaries(algorithm, 10, WIDE, 770, per_client=per_client)
    assert certified_of(audited) == certified_of(algorithm) < np.inf


def test_what_has_no_place_for_them():
    with pytest.raises(ValueError, match="per_client: a client has 4 records, not 5"):
        traced(with_canaries(records(1.0), 41, per_client=5))

    def round(key, state, cohort):
        total, metrics, _ = cohort.unprotected(
            lambda k, shard: jnp.zeros(()), key, lambda k, each: (each.sum(), None), reason="none"
        )
        return state._replace(round=state.round + 1 + jnp.int32(total)), metrics

    bare = fp.Algorithm(fp.start, round, fp.everyone(CLIENTS))
    with pytest.raises(NoPlaceError, match="protect clients"):
        traced(with_canaries(bare, 2))
    with pytest.raises(NoPlaceError, match="protect records"):
        traced(with_canaries(clients(1.0), 2, per_client=1))
    with pytest.raises(NoPlaceError, match="protect clients"):
        traced(with_canaries(records(1.0), 2))


@pytest.mark.parametrize("per_client", [0, 1])
def test_the_round_is_not_called_again_to_be_played(per_client):
    """Once, by the trace of the program in which rules put canaries."""
    algorithm, calls = records(1.0) if per_client else clients(1.0), []

    def counted(key, state, cohort):
        calls.append(state)
        return algorithm.round(key, state, cohort)

    seen = seen_of(algorithm)
    for data in (None, lambda examples: examples):
        calls.clear()
        made = algorithm._replace(round=counted)
        traced(attacked(made, 1, seen, per_client=per_client, data=data))
        assert len(calls) == 1


@pytest.mark.slow
def test_a_canary_in_a_private_mean_within_another(directions):
    """The inner mean shifts the model at which the outer one is taken; both have the canary's direction."""
    step = 0.5
    full = {"records": fp.everyone(RECORDS), "mechanism": fp.gaussian(CLIP, 0.0)}

    def client(key, shard, params):
        def shifted(now, batch):
            mean = shard.private_mean(fp.per_example(squared), now, **full)
            moved = jax.tree.map(lambda p, g: p - step * g, now, mean)
            return fp.per_example(squared)(moved, batch)

        return shard.private_mean(shifted, params, **full)

    def round(key, state, cohort):
        total, metrics, _ = cohort.sum(
            lambda key, shard: client(key, shard, state.params), key, mechanism=fp.ALREADY_PRIVATE
        )
        params = jax.tree.map(lambda p, s: p - s / CLIENTS, state.params, total)
        return state._replace(params=params, round=state.round + 1), metrics

    made = fp.Algorithm(fp.start, round, fp.everyone(CLIENTS), unit="record")
    after = a_round(attacked(made, CLIENTS, seen_of(records(0.0)), per_client=1))

    def mean(i, theta):
        others = clipped(gradients(i, theta)[1:]).sum(0)
        return (others + CLIP * float(after.present[i]) * directions[i]) / RECORDS

    theta = vector(start())
    moves = [mean(i, theta - step * mean(i, theta)) for i in range(CLIENTS)]
    np.testing.assert_allclose(vector(after.params), theta - np.mean(moves, 0), atol=2e-6)


@pytest.mark.slow
def test_clients_with_noise_of_their_own_send_that_when_they_are_away():
    """Local noise: absent canaries change the sum by their update alone, not by its noise."""
    loud = fp.gaussian(1e-3, 1000.0)
    algorithm = fp.papers.ldp_fed_avg(
        squared, sampler=fp.everyone(CLIENTS), mechanism=loud, **COMMON
    )
    audited = with_canaries(algorithm, CLIENTS)
    state = audited.init(start(), FEDERATION)

    def move(key):
        after, _ = fp.one_round(audited)(key, state, FEDERATION)
        return flatten(after.params) - flatten(state.params)

    moves = jax.jit(lambda keys: jax.lax.map(move, keys))(jax.random.split(jax.random.key(1), 120))
    # CLIENTS numbers of variance 1 in every sum, whoever is there; C is too small to matter.
    assert_normal(moves * np.sqrt(CLIENTS), 1.0)


@pytest.mark.slow
def test_canary_records_are_in_a_warm_start_of_everyone(directions):
    """Nobody's noise: a client's control variate is the mean of its clipped gradients, its canary's among them."""
    audited = with_canaries(warm(fp.fixed_size(CLIENTS, 10), 0.0), CLIENTS, per_client=1)
    after = a_round(audited)
    assert not after.scores.any()  # the model stays as it is
    for i in range(CLIENTS):
        others = clipped(gradients(i, vector(start()))[1:]).sum(0)
        expected = (others + CLIP * float(after.present[i]) * directions[i]) / RECORDS
        np.testing.assert_allclose(after.inner.controls[i], expected, atol=1e-6)
