"""FedPer, FedRep and Ditto against NumPy, and in their limits."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from small import (
    assert_close,
    assert_identical,
    gradient,
    one_round,
    records,
    regression,
    squared,
    start,
    vector,
)

import fedpriv as fp
from fedpriv.engine.client_metric_names import by_group

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS, RATE, CLIP, LAM = 4, 0.2, 0.3, 0.7
FEDERATION, PARAMS = regression([2, 3, 1, 3]), start()
HEAD = {
    "sampler": fp.everyone(CLIENTS),
    "optimizer": lambda t: optax.sgd(RATE),
    "batches": fp.epochs(4, 3),
    "mechanism": fp.gaussian(CLIP, 0.0),
}
NOISY = {
    "sampler": fp.poisson(CLIENTS, 0.7),
    "optimizer": lambda t: optax.sgd(0.1 * 0.9**t, momentum=0.5),
    "batches": fp.epochs(2, 2),
}
PRIVATE = {"clip_norm": CLIP, "noise_multiplier": 1.2}


def after(algorithm, rounds, params=PARAMS):
    state = algorithm.init(params, FEDERATION)
    for t in range(rounds):
        state, metrics = one_round(algorithm)(jax.random.key(t), state, FEDERATION)
    return state, metrics


def own_models(algorithm, state):
    """f64[clients, d], what each client uses."""
    each = jax.vmap(partial(algorithm.personal, state))(jnp.arange(CLIENTS))
    return np.concatenate([np.asarray(each["b"])[:, None], each["w"]], 1).astype(np.float64)


def steps(theta, client, count, moved, pull=None):
    """Gradient descent on one client's records; only the coordinates `moved` move."""
    for _ in range(count):
        g = gradient(theta, *records(FEDERATION, client))
        g = g if pull is None else g + LAM * (theta - pull)
        theta = theta - RATE * g * moved
    return theta


def clipped(update):
    return update * min(1.0, CLIP / np.linalg.norm(update))


ALL, BIAS, WEIGHTS = np.ones(4), np.eye(4)[0], 1 - np.eye(4)[0]


@tiers.every("name", ["fed_rep", "fed_per"])
def test_personal_heads_against_numpy(name):
    """Three rounds; the bias is the head. What is clipped is the update of the weights alone."""
    shared, heads = vector(PARAMS), np.full(CLIENTS, float(PARAMS["b"]))
    for _ in range(3):
        updates = []
        for i in range(CLIENTS):
            begun = np.where(BIAS, heads[i], shared)
            theta = steps(begun, i, 4, ALL)
            if name == "fed_rep":
                theta = steps(steps(begun, i, 2, BIAS), i, 4, WEIGHTS)
            heads[i] = theta[0]
            updates.append(clipped((theta - begun) * WEIGHTS))
        shared = shared + np.mean(updates, 0)
    further = {"head_batches": fp.epochs(2, 3)} if name == "fed_rep" else {}
    algorithm = getattr(fp, name)(squared, head=("b",), **further, **HEAD)
    state, metrics = after(algorithm, 3)
    expected = np.where(BIAS, heads[:, None], shared)
    assert_close(own_models(algorithm, state), expected, 1e-6)
    assert_close(vector(state.params), np.where(BIAS, float(PARAMS["b"]), shared), 1e-6)
    assert metrics["uplink"].bits() == metrics["downlink"].bits() == 3 * 32


def test_ditto_against_numpy():
    """Three rounds; the personal models are drawn to the global one of the round's start."""
    w, own = vector(PARAMS), np.tile(vector(PARAMS), (CLIENTS, 1))
    for _ in range(3):
        updates = [clipped(steps(w, i, 4, ALL) - w) for i in range(CLIENTS)]
        own = np.stack([steps(own[i], i, 4, ALL, pull=w) for i in range(CLIENTS)])
        w = w + np.mean(updates, 0)
    algorithm = fp.ditto(squared, lam=LAM, **HEAD)
    state, _ = after(algorithm, 3)
    assert_close(vector(state.params), w, 1e-6)
    assert_close(own_models(algorithm, state), own, 1e-6)


@pytest.mark.slow
def test_a_personal_model_that_is_released_is_a_leak():
    algorithm = fp.ditto(squared, lam=LAM, **NOISY, mechanism=fp.gaussian(**PRIVATE))

    def round(key, state, cohort):
        state, metrics = algorithm.round(key, state, cohort)
        return state._replace(params=algorithm.personal(state, 0)), metrics

    with pytest.raises(fp.LeakError):
        fp.trace_round(algorithm._replace(round=round), PARAMS, FEDERATION)


@pytest.mark.slow
def test_the_model_of_a_client_is_that_of_one_seed_and_one_client():
    algorithm = fp.fed_per(squared, head=("b",), **HEAD)
    score = lambda params, example: {"loss": squared(params, example)}  # noqa: E731
    options = {"score": score, "rounds": 2, "seeds": (0, 7)}
    test = jax.tree.map(np.asarray, FEDERATION.examples)
    history = fp.simulate(algorithm, PARAMS, FEDERATION, test, **options)
    for i in (2, np.int32(2), jnp.int32(2)):
        one = algorithm.personal(history.state_of(7), i)
        assert_identical(
            one, jax.jit(algorithm.personal)(jax.tree.map(lambda x: x[1], history.state), 2)
        )


@pytest.mark.slow
def test_clients_of_unequal_weight_share_what_fed_avg_would():
    """Where nothing is kept, or what is kept is beside the shared model."""
    given = {
        "sampler": fp.everyone(CLIENTS),
        "optimizer": lambda t: optax.sgd(RATE),
        "batches": fp.full_batch(),
    }
    expected, plain = (
        after(fp.fed_avg(squared, **given, **weighting), 2)[0].params
        for weighting in ({"weighting": fp.ByExamples(cap=3)}, {})
    )
    by_sums = fp.fed_sgd(
        squared, sampler=given["sampler"], learning_rate=RATE, weighting=fp.ByExamples(cap=3)
    )
    assert_close(after(by_sums, 2)[0].params, expected, 1e-6)
    own = {"head": (), "head_batches": fp.full_batch(), "weighting": fp.ByExamples(cap=3)}
    found = after(fp.fed_rep(squared, **own, **given), 2)[0].params
    assert_close(found, expected, 1e-6)
    assert np.abs(vector(found) - vector(plain)).max() > 1e-3


def score(params, example):
    return {"loss": squared(params, example)}


MAKES = {
    "fed_rep": partial(fp.fed_rep, head=("b",), head_batches=fp.full_batch()),
    "ditto": partial(fp.ditto, lam=LAM),
}
RECORDS = jax.tree.map(np.asarray, FEDERATION.examples)
COHORTS = {
    "nobody": fp.poisson(CLIENTS, 1e-12),
    "some vanish": fp.dropping(fp.fixed_size(CLIENTS, 3), 0.5, "whole"),
}


def trained_so_far(make, cohort, rounds, federation=FEDERATION, **options):
    """The last evaluation of clients and groups, and who trained by what engines keep: a mark of the cohort's own."""
    algorithm = make(squared, **HEAD | {"sampler": COHORTS[cohort]})
    measure = fp.measures.together(
        fp.measures.per_client(score, CLIENTS, personal=algorithm.personal),
        fp.measures.per_group(score, ["a", "a", "b", "b"], personal=algorithm.personal),
    )
    run = {"score": score, "rounds": rounds, "measure": measure}
    return algorithm, fp.simulate(algorithm, PARAMS, federation, RECORDS, **run | options)


def has_own_model(algorithm, history, seed):
    """bool[clients]: whether a client's part is not the one that all begin with, which a step of training moves."""
    own = jax.tree.leaves(history.state_of(seed).own)
    first = jax.tree.leaves(algorithm.init(PARAMS, FEDERATION).own)
    moved = [np.asarray(a != b).reshape(CLIENTS, -1) for a, b in zip(own, first, strict=True)]
    return np.concatenate(moved, 1).any(1)


def check_trained(algorithm, history):
    seen = history.evaluations[-1]
    each = seen.clients["personal_per_client"].metrics["loss"]
    for place, seed in enumerate(history.seeds):
        trained = has_own_model(algorithm, history, seed)
        np.testing.assert_array_equal(history.state_of(seed).trained, trained)
        for kind, members in (("", slice(None)), ("[a]", slice(2)), ("[b]", slice(2, None))):
            stem = f"personal_per_client{kind}_loss"
            own = trained[members]
            assert seen.measures[f"{stem}_trained"][place] == own.sum()
            expected = each[place, members][own].mean() if own.any() else np.nan
            found = seen.measures[f"{stem}_mean_of_trained"][place]
            np.testing.assert_allclose(found, expected, rtol=1e-6)
    return [int(np.sum(history.state_of(seed).trained)) for seed in history.seeds]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "cohort"), [("ditto", "some vanish"), ("fed_rep", "nobody")])
def test_evaluations_say_who_has_trained(name, cohort):
    """After no round nobody; then who was in a cohort, of each seed, which a step of training moves."""
    algorithm, history = trained_so_far(MAKES[name], cohort, 2, seeds=(0, 5), every=1)
    assert not np.any(algorithm.init(PARAMS, FEDERATION).trained)
    counts = check_trained(algorithm, history)
    first = history.evaluations[0].measures["personal_per_client_loss_trained"]
    of_groups = by_group(history.names)["personal_per_client", "loss"]
    assert of_groups["a"] == "personal_per_client[a]_loss_mean"
    assert cohort != "nobody" or set(first.tolist()) == {0}
    assert all(a <= b for a, b in zip(first, counts, strict=True))


def test_where_clients_keep_nothing_nobody_says_who_has_trained():
    assert fp.fed_per(squared, head=(), **HEAD).init(PARAMS, FEDERATION).trained == ()
