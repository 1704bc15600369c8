"""SCAFFOLD, DP-SCAFFOLD and record-level DP-FedAvg against NumPy and their own limits."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from small import (
    assert_identical,
    assert_normal,
    gradient,
    members,
    of_clients,
    one_round,
    regression,
    squared,
    start,
    vector,
)

from fedpriv import everyone, fixed_size, poisson
from fedpriv.algorithms.dp_scaffold import dp_scaffold
from fedpriv.algorithms.dp_sgd import dp_sgd
from fedpriv.experiments.papers.dp_scaffold import local_steps
from fedpriv.mechanisms.per_example import per_example
from fedpriv.papers import fixed_interval

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS, RECORDS, RATE = 5, 6, 0.1
FEDERATION = regression([RECORDS] * CLIENTS)
ALL = everyone(RECORDS)


def local(**changes):
    given = {"gradients": per_example(squared), "records": ALL, "steps": 3, "learning_rate": RATE}
    return local_steps(**given | changes)


def rounds_of(algorithm, count, state=None, federation=FEDERATION):
    step = one_round(algorithm)
    state = algorithm.init(start(), federation) if state is None else state
    states, metrics = [state], []
    for t in range(count):
        state, told = step(jax.random.fold_in(jax.random.key(7), t), state, federation)
        states.append(state)
        metrics.append(told)
    return states, metrics


def records_of(client):
    rows = np.asarray(FEDERATION.rows)[client]
    return tuple(np.asarray(FEDERATION.examples[n], np.float64)[rows] for n in "xy")


def numpy_scaffold(cohorts, steps, warm_start, global_rate):
    """Algorithm 1 with full batches, infinite clip and no noise; yields (x, c, c_i) after each round."""
    x = vector(start())
    c, controls = np.zeros_like(x), np.zeros((CLIENTS, len(x)))
    for t, cohort in enumerate(cohorts):
        dy, dc = np.zeros_like(x), np.zeros_like(x)
        for i in cohort:
            y, seen = x.copy(), []
            for _ in range(steps):
                at = x if t < warm_start else y
                seen.append(gradient(at, *records_of(i)))
                if t >= warm_start:
                    y -= RATE * (seen[-1] - controls[i] + c)
            new = (
                controls[i] - c + (x - y) / (steps * RATE) if t >= warm_start else np.mean(seen, 0)
            )
            dy += (y - x) / len(cohort)
            dc += (new - controls[i]) / len(cohort)
            controls[i] = new
        x = x + global_rate * dy
        c = c + len(cohort) / CLIENTS * dc
        yield x.copy(), c.copy(), controls.copy()


@tiers.every("skipped", [0, 2])
def test_against_numpy(skipped):
    """With a warm start, and with the two rounds of it skipped."""
    sampler = fixed_size(CLIENTS, 2)
    algorithm = ON_FULL_BATCHES
    state = algorithm.init(start(), FEDERATION)._replace(round=jnp.int32(skipped))
    states, _ = rounds_of(algorithm, 5, state)
    roots = [jax.random.fold_in(jax.random.key(7), t) for t in range(5)]
    cohorts = [members(sampler, root, skipped + t) for t, root in enumerate(roots)]
    expected = numpy_scaffold(cohorts, 3, 2 - skipped, 0.7)
    for state, (x, c, controls) in zip(states[1:], expected, strict=True):
        np.testing.assert_allclose(vector(state.params), x, atol=1e-5)
        np.testing.assert_allclose(state.control, c, atol=1e-5)
        np.testing.assert_allclose(state.controls, controls, atol=1e-5)


ON_FULL_BATCHES = dp_scaffold(
    local(), sampler=fixed_size(CLIENTS, 2), warm_start=2, server=optax.sgd(0.7)
)
NOISY = {"clip_norm": 0.5, "noise_multiplier": 0.8, "records": fixed_size(RECORDS, 3)}


@pytest.mark.slow
def test_a_client_s_control_is_the_mean_of_its_noisy_gradients():
    """Line 16 by its first expression, c_i - c + (x - y_K) / (K eta_l), from what the client sends: y_K - x."""
    one = everyone(1)
    federation = of_clients(FEDERATION, [0])
    algorithm = dp_scaffold(local(**NOISY | {"clip_norm": 5.0}), sampler=one)
    (before, *_, last), _ = rounds_of(algorithm, 1, federation=federation)
    rng = np.random.default_rng(0)
    c, c_i = (jnp.asarray(rng.normal(size=4), jnp.float32) for _ in range(2))
    state = before._replace(control=c, controls=c_i[None])
    (_, after), _ = rounds_of(algorithm, 1, state, federation)
    moved = vector(after.params) - vector(state.params)
    np.testing.assert_allclose(after.controls[0], c_i - c - moved / (3 * RATE), atol=2e-6)
    assert not np.allclose(
        after.controls[0], last.controls[0]
    )  # the correction moves y, and so the gradients


@pytest.mark.slow
def test_an_empty_slot_touches_no_client():
    """Who is not drawn keeps its control variate; the server's stays the mean of the clients'."""
    sampler = poisson(CLIENTS, 0.4, 2)
    algorithm = dp_scaffold(local(**NOISY), sampler=sampler)
    controls = np.random.default_rng(0).normal(size=(CLIENTS, 4)).astype(np.float32)
    state = algorithm.init(start(), FEDERATION)
    state = state._replace(controls=jnp.asarray(controls), control=jnp.asarray(controls.mean(0)))
    for t in range(6):
        key = jax.random.key(t)
        absent = np.setdiff1d(np.arange(CLIENTS), members(sampler, key))
        after, _ = one_round(algorithm)(key, state, FEDERATION)
        assert_identical(np.asarray(after.controls)[absent], controls[absent])
        moved = (np.asarray(after.controls) - controls).sum(0) / CLIENTS
        np.testing.assert_allclose(after.control - state.control, moved, atol=2e-6)


@pytest.mark.slow
def test_a_warm_start_keeps_the_model_and_sends_one_message():
    """What it does not send is not decoded, as a grid without 0 would move the model.

    The diagnostic is of the message that is sent; the server's control variate is the mean of the clients'.
    """
    narrow = fixed_interval(4, 1e-3)
    algorithm = dp_scaffold(
        local(**NOISY), sampler=fixed_size(CLIENTS, 2), warm_start=2, codec=narrow
    )
    states, metrics = rounds_of(algorithm, 4)
    assert_identical(states[2].params, states[0].params)
    assert np.abs(vector(states[3].params) - vector(states[2].params)).max() > 0
    assert np.abs(states[2].controls).sum() > 0
    assert [int(m["uplink"].values) for m in metrics] == [4, 4, 8, 8]
    assert metrics[0]["diagnostics"]["saturated"] > 0.9
    for state in states:
        np.testing.assert_allclose(state.control, np.asarray(state.controls).mean(0), atol=1e-6)


@pytest.mark.slow
@tiers.every("tensors", [2, 1])
def test_one_record_moves_a_step_by_what_is_declared(tensors):
    """One step, a record's y from 1e6 to -1e6: 2 C / (s R), times sqrt(tensors) where each is clipped by itself."""
    shift = steps_apart(FEDERATION.rows[0, :1], tensors)
    assert shift[0] == pytest.approx(2 * 0.3 / RECORDS * math.sqrt(tensors), rel=1e-4)
    assert_identical(shift[1:], np.zeros(CLIENTS - 1))


def steps_apart(rows, tensors=1):
    """How far the clients' control variates move where the y of `rows` is -1e6 instead of 1e6."""
    steps = local(steps=1, clip_norm=0.3, tensors=tensors)
    algorithm = dp_scaffold(steps, sampler=everyone(CLIENTS))
    found = []
    for y in (1e6, -1e6):
        moved = np.array(FEDERATION.examples["y"])
        moved[np.asarray(rows)] = y
        examples = FEDERATION.examples | {"y": jnp.asarray(moved)}
        (_, after), _ = rounds_of(algorithm, 1, federation=FEDERATION.replace(examples=examples))
        found.append(after.controls)
    return np.linalg.norm(found[0] - found[1], axis=1)


@pytest.mark.slow
def test_noise_of_a_client_s_step():
    """S = 2 C / s: 2 C sigma / s per coordinate of a step's mean, R times that of a record."""
    many = regression([4] * 500)
    steps = local(records=fixed_size(4, 2), clip_norm=1e-6, noise_multiplier=2e6, unit="client")
    algorithm = dp_scaffold(
        steps._replace(optimizer=lambda t: optax.sgd(1e-9)), sampler=everyone(500)
    )
    (_, state), _ = rounds_of(algorithm, 1, federation=many)
    assert_normal(np.asarray(state.controls), 2 * 1e-6 * 2e6 / 0.5 / math.sqrt(3))


@pytest.mark.slow
def test_a_client_moves_a_step_by_no_more_than_declared():
    """All of its records together: by 2 C if they pointed the same way, which these nearly do."""
    shift = steps_apart(FEDERATION.rows[0])
    assert 0.7 * 0.3 < shift[0] <= 2 * 0.3 * (1 + 1e-5)


@pytest.mark.slow
def test_everyone_sets_a_control_variate_first():
    sampler = fixed_size(CLIENTS, 2)
    first = dp_scaffold(local(**NOISY), sampler=sampler, warm_start=2, everyone_first=True)
    states, metrics = rounds_of(first, 3)
    assert (np.abs(states[1].controls).sum(1) > 0).all()
    assert [int(m["cohort_size"]) for m in metrics] == [CLIENTS, 2, 2]
    assert_identical(states[2].params, states[0].params)
    for state in states:
        np.testing.assert_allclose(state.control, np.asarray(state.controls).mean(0), atol=1e-6)


@pytest.mark.slow
def test_user_drift_is_the_mean_distance_from_the_start():
    algorithm = dp_sgd(local(steps=2), sampler=everyone(CLIENTS))
    _, (told,) = rounds_of(algorithm, 1)
    x, expected = vector(start()), []
    for i in range(CLIENTS):
        y = x
        for _ in range(2):
            y = y - RATE * gradient(y, *records_of(i))
            expected.append(np.sum((y - x) ** 2))
    assert float(told["diagnostics"]["user_drift"]) == pytest.approx(np.mean(expected), rel=1e-5)


@pytest.mark.slow
def test_noise_of_a_step():
    """At learning rate next to 0 and a clip next to 0 a control variate is noise alone: 2 C sigma / (s R sqrt K)."""
    many = regression([4] * 500)
    steps = local(records=fixed_size(4, 2), clip_norm=1e-6, noise_multiplier=2e6, steps=4)
    algorithm = dp_scaffold(
        steps._replace(optimizer=lambda t: optax.sgd(1e-9)), sampler=everyone(500)
    )
    (_, state), _ = rounds_of(algorithm, 1, federation=many)
    assert_normal(np.asarray(state.controls), 2 * 1e-6 * 2e6 / 2 / math.sqrt(4))
