"""Canaries that train honestly on natural or mislabelled data: scores, limits, refusals."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from canary_runs import (
    CLIENTS,
    CLIP,
    COMMON,
    FEDERATION,
    RATE,
    RECORDS,
    WHOLE,
    WIDE,
    a_round,
    certified_of,
    clients,
    clipped,
    gradients,
    of_one_client,
    runs,
    sparse,
    traced,
    with_canaries,
)
from canary_runs import records as record_steps
from scipy import stats
from small import (
    FALSE_ALARM,
    gradient,
    keys_of,
    members,
    one_round,
    records,
    refused,
    regression,
    squared,
    start,
    vector,
)

import fedpriv as fp
from fedpriv.attacks.canary_places import NoPlaceError
from fedpriv.core import random_streams

pytestmark = pytest.mark.usefixtures("quick_to_compile")

ROUNDS, NOISE = 4, 0.8


def natural(examples):
    return examples


def mislabelled(examples):
    return examples | {"y": 2.0 - examples["y"]}


def linear(params, example):
    """Its gradient (y, x) is the same at every model."""
    return params["b"] * example["y"] + example["x"] @ params["w"]


def histories(algorithm, *, federation=FEDERATION, data=natural, per_client=0):
    """seed -> (root, states before and after each round) of an audited run; compiled once for all seeds."""
    audited = with_canaries(algorithm, 1, federation, per_client=per_client, data=data)

    def of_seed(seed):
        root, states = jax.random.key(seed), [audited.init(start(), federation)]
        for _ in range(ROUNDS):
            states.append(one_round(audited)(root, states[-1], federation)[0])
        return root, states

    return of_seed


def both_kinds(run):
    """Histories with and without the canary."""
    found = {}
    for seed in range(20):  # all coins alike: 2e-6
        root, states = run(seed)
        found.setdefault(bool(states[-1].present[0]), (root, states))
        if len(found) == 2:
            return found.items()
    raise AssertionError("one kind only")


def bent(x, y, data):
    return (x, y) if data is natural else (x, 2.0 - y)


def log_ratio(seen, known, message, std):
    """log of N(known + message, std^2) over N(known, std^2)."""
    return ((seen - known) @ message - message @ message / 2) / std**2


MESSAGES = {"mislabelled": (clients, mislabelled), "sparse, natural": (sparse, natural)}


@tiers.every("name", MESSAGES)
def test_scores_of_clients_are_log_likelihood_ratios(name):
    """Over four rounds, against NumPy: messages of the model at hand, a cohort that may be known or not.

    Whoever sees the last model alone does not know the later messages: it is scored along the first.
    """
    make, data = MESSAGES[name]
    rate, sampler = 0.3, fp.poisson(CLIENTS, 0.3, CLIENTS)
    algorithm = make(NOISE, sampler)

    def kept(after):
        return np.asarray(after.inner.kept) if make is sparse else np.arange(4)

    def message(i, theta, after):
        x, y = records(FEDERATION, i)
        x, y = bent(x, y, data) if i == 0 else (x, y)
        of_client = RATE * gradient(theta, x, y)[kept(after)]
        return clipped(of_client[None] * 4 / len(kept(after)))[0]

    for there, (root, states) in both_kinds(histories(algorithm, data=data)):
        known_cohort = third_party = 0.0
        first = np.zeros(4)
        first[kept(states[1])] = message(0, vector(start()), states[1])
        last = (vector(start()) - vector(states[-1].params)) @ first / np.linalg.norm(first)
        if make is clients:
            assert states[-1].scores[2, 0] == pytest.approx(last, rel=1e-4)
        for t, (before, after) in enumerate(itertools.pairwise(states)):
            theta, moved = vector(before.params), vector(before.params) - vector(after.params)
            ids = members(sampler, root, t)
            others = sum(message(i, theta, after) for i in ids if i != 0)
            seen = moved[kept(after)] * sampler.expected_size
            ratio = log_ratio(seen, others, message(0, theta, after), NOISE * CLIP)
            known_cohort += ratio * (0 in ids)
            third_party += np.log(1 - rate + rate * np.exp(ratio))
        found = np.asarray(states[-1].scores)[:2, 0]
        np.testing.assert_allclose(found, [third_party, known_cohort], rtol=2e-4, atol=2e-4)
        assert bool(states[-1].present[0]) == there


def bounded_records(i, theta, federation, data):
    x, y = records(federation, i)
    if i == 0:
        _, y0 = bent(x[:1], y[:1], data)
        y = np.concatenate([y0, y[1:]])
    x = np.concatenate([np.ones((len(x), 1)), x], 1)
    return clipped(x * (x @ theta - y)[:, None])


@pytest.mark.slow
def test_scores_of_records_are_log_likelihood_ratios():
    """The same of one record, of which it is not known whether it is in the batch."""
    rate, size = 0.3, 60
    batches = fp.poisson(size, rate, size)
    local = fp.LocalSteps(
        fp.per_example(squared), batches, 1, COMMON["optimizer"], fp.gaussian(CLIP, NOISE)
    )
    algorithm = fp.dp_sgd(local, sampler=fp.everyone(1))

    def drawn(root, t):
        key = keys_of(root, t).call
        for number in (0, 0, 0, 0, random_streams.RECORDS):  # client, its loop, step, private mean
            key = jax.random.fold_in(key, number)
        batch = batches.draw(key)
        return np.asarray(batch.ids)[np.asarray(batch.mask)]

    run = histories(algorithm, federation=WHOLE, data=mislabelled, per_client=1)
    for _, (root, states) in both_kinds(run):
        expected = 0.0
        for t, (before, after) in enumerate(itertools.pairwise(states)):
            theta, ids = vector(before.params), drawn(root, t)
            each = bounded_records(0, theta, WHOLE, mislabelled)
            others = each[[i for i in ids if i != 0]].sum(0)
            seen = (theta - vector(after.params)) * batches.expected_size / RATE
            ratio = log_ratio(seen, others, each[0], NOISE * CLIP)
            expected += np.log(1 - rate + rate * np.exp(ratio))
        found = np.asarray(states[-1].scores)[:2, 0]
        np.testing.assert_allclose(found, [expected, expected], rtol=5e-4, atol=5e-4)


@pytest.mark.slow
def test_records_of_clients_who_may_be_away():
    """The record's direction is known in rounds, too, in which its client is not drawn."""
    rate, sampler = 0.3, fp.poisson(CLIENTS, 0.3, CLIENTS)
    algorithm = record_steps(NOISE, 1, sampler)
    for _, (root, states) in both_kinds(histories(algorithm, per_client=1)):
        known_cohort = third_party = 0.0
        for t, (before, after) in enumerate(itertools.pairwise(states)):
            theta, ids = vector(before.params), members(sampler, root, t)
            each = {i: bounded_records(i, theta, FEDERATION, natural) for i in {0, *ids}}
            others = sum((each[i].sum(0) for i in ids if i != 0), np.zeros(4))
            others = others + each[0][1:].sum(0) * (0 in ids)
            seen = (theta - vector(after.params)) * sampler.expected_size * RECORDS / RATE
            std = NOISE * CLIP * np.sqrt(len(ids))
            ratio = log_ratio(seen, others, each[0][0], std)
            known_cohort += ratio * (0 in ids)
            third_party += np.log(1 - rate + rate * np.exp(ratio))
        found = np.asarray(states[-1].scores)[:2, 0]
        np.testing.assert_allclose(found, [third_party, known_cohort], rtol=5e-4, atol=5e-4)


CONSTANT = {
    "clients": (clients(0.5, loss=linear), FEDERATION, RATE),
    "records": (of_one_client(0.5, 1, linear), WHOLE, 1.0),
    "integers": (
        fp.fed_avg(
            linear,
            sampler=fp.everyone(12),
            mechanism=fp.discrete_gaussian(CLIP, 0.5, bits=20),
            **COMMON,
        ),
        regression([2] * 12),
        RATE,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONSTANT)
def test_scores_of_a_constant_message_have_a_known_law(name):
    """N(mu^2 / 2, mu^2), and N(-mu^2 / 2, mu^2) without it, by Kolmogorov and Smirnov; false alarm 1e-6 each."""
    algorithm, federation, share = CONSTANT[name]
    per_client = int(name == "records")
    present, scores = runs(algorithm, 400, ROUNDS, federation, per_client=per_client, data=natural)
    x, y = records(federation, 0)
    each = np.concatenate([y[:, None], x], 1)
    message = clipped(share * (each[:1] if per_client else each.mean(0, keepdims=True)))[0]
    mu = np.sqrt(ROUNDS) * np.linalg.norm(message) / (0.5 * CLIP)
    for there in (True, False):
        law = stats.norm((there - 0.5) * mu**2, mu)
        assert stats.kstest(scores[present == there, 0], law.cdf).pvalue > FALSE_ALARM
    rounding = 1e-6 if name == "integers" else 0  # what is decoded
    np.testing.assert_allclose(scores[:, 0], scores[:, 1], rtol=0, atol=rounding)


@pytest.mark.slow
def test_a_message_of_zeros_tells_nothing():
    def nothing(examples):
        return jax.tree.map(jnp.zeros_like, examples)

    present, scores = runs(clients(0.5, loss=linear), 20, ROUNDS, data=nothing)
    assert set(present) == {True, False}  # all coins alike: 2e-6
    assert not scores.any()


@pytest.mark.slow
@pytest.mark.parametrize("per_client", [0, 1])
def test_who_is_there_trains_as_ever_and_who_is_not_adds_nothing(per_client):
    """Without noise: with it the model is that of the algorithm alone, without it that of all others."""
    algorithm = record_steps(0.0, 1) if per_client else clients(0.0)
    audited = with_canaries(algorithm, 1, per_client=per_client, data=natural)
    theta, seen = vector(start()), set()
    each = [clipped(gradients(i, theta)) for i in range(CLIENTS)]
    for key in range(1, 21):  # all coins alike: 2e-6
        after = a_round(audited, key)
        seen.add(there := bool(after.present[0]))
        if per_client:
            total = RATE * (np.sum(each, (0, 1)) - (not there) * each[0][0]) / RECORDS
        else:
            means = [RATE * gradients(i, theta).mean(0) for i in range(CLIENTS)]
            total = clipped(np.stack(means))[not there :].sum(0)
        np.testing.assert_allclose(vector(after.params), theta - total / CLIENTS, atol=1e-6)
    assert seen == {True, False}


PLAYED = {"worst": None, "natural": natural}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAYED)
def test_who_is_away_has_no_weight(name):
    """The mean by examples, divided by the weights of those there: as if the client were not in the federation."""
    sizes = [2, 4, 3, 4]
    federation = regression(sizes)
    weighting = fp.ByExamples(4.0, mean=0.25, estimator="clipped")
    algorithm = clients(0.0, fp.everyone(4), weighting=weighting)
    audited = with_canaries(algorithm, 1, federation, data=PLAYED[name])
    theta = vector(start())
    updates = clipped(np.stack([RATE * gradient(theta, *records(federation, i)) for i in range(4)]))
    weights = np.array(sizes) / 4
    expected = theta - (weights[1:] @ updates[1:]) / weights[1:].sum()
    state = audited.init(start(), federation)
    found = [one_round(audited)(jax.random.key(k), state, federation)[0] for k in range(20)]
    away = [after for after in found if not after.present[0]]
    assert away  # all coins alike: 1e-6
    np.testing.assert_allclose(vector(away[0].params), expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("per_client", [0, 1])
def test_the_certificate_stays_as_it_is(per_client):
    algorithm = record_steps(3.0, 1) if per_client else clients(3.0, fp.poisson(CLIENTS, 0.3, 30))
    audited = with_canaries(algorithm, 1, WIDE, 770, per_client=per_client, data=mislabelled)
    assert certified_of(audited) == certified_of(algorithm) < np.inf


@pytest.mark.slow
def test_who_keeps_something_has_to_take_part_openly():
    """Its messages tell when it took part: the score would be that of somebody who knows more than a third party."""

    def keeping(sampler):
        return fp.fed_per(
            squared, head=("b",), sampler=sampler, mechanism=fp.gaussian(CLIP, NOISE), **COMMON
        )

    for secret in (fp.poisson(CLIENTS, 0.3, CLIENTS), fp.fixed_size(CLIENTS, 10)):
        with refused("own: an honest canary that keeps something tells", NoPlaceError):
            traced(with_canaries(keeping(secret), 1, data=natural))
        # The worst case sends the same whenever it takes part.
        traced(with_canaries(keeping(secret), 1))
    for known in (fp.everyone(CLIENTS), fp.shuffled_blocks(CLIENTS, 10)):
        traced(with_canaries(keeping(known), 1, data=natural))


def test_what_is_refused():
    with refused("data: .*give back records of the shapes"):
        traced(with_canaries(clients(1.0), 1, data=lambda examples: examples["y"]))
