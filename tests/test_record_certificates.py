"""What is read off rounds whose clients bound and perturb gradients of their records themselves."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from releases_seen import (
    BATCHES,
    BY_TENSOR,
    CLIENTS,
    FALLING,
    GAUSSIAN,
    HAAR,
    LAPLACE,
    MOST,
    PIECES,
    PRIVATE,
    RECORDS,
    ROUNDS,
    SAMPLERS,
    SIGMA,
    C,
    D,
    assert_parts,
    local,
    scaled,
    seen,
)
from small import released, squared

import fedpriv as fp
from fedpriv.privacy import Everyone
from fedpriv.rounds.record_samplers import accounting_of

LARGEST = {
    "everyone": 4,
    "fixed_size": 2,
    "poisson": 4,
    "cut": 3,
    "with_replacement": 5,
}
"""The largest batch: by so many clip norms a whole client moves a step."""


ALGORITHMS = (
    fp.dp_sgd,
    fp.record_fed_avg,
    fp.dp_scaffold,
    functools.partial(fp.dp_scaffold, codec=fp.qsgd(8)),
)


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("batch", BATCHES)
def test_local_steps(batch, unit):
    """Every view is taken to see each noisy gradient of a client, in the rounds that it takes part in.

    Each kind of batches meets each kind of cohorts, and each of the two each algorithm.
    """
    records, client = BATCHES[batch], unit == "client"
    own = SIGMA / (LARGEST[batch] if client else 1)
    sampling = Everyone(RECORDS) if client else accounting_of(records)
    first = list(BATCHES).index(batch)
    for turn, (name, sampler) in enumerate(SAMPLERS.items(), first):
        possible = ALGORITHMS[:2] if name == "with_replacement" else ALGORITHMS
        make = possible[turn % len(possible)]
        parts, kinds = seen(make(local(records, unit=unit), sampler=sampler))
        assert_parts(parts, *[[(ROUNDS, own)]] * 3)
        expected = (unit, "gaussian", False, False, 3, sampling, sampler.accounting, [""])
        assert all(kind == expected for kind in kinds.values())


def test_mechanisms_of_local_steps():
    sampler, root = SAMPLERS["fixed_size"], math.sqrt
    wav = fp.wavelet_mechanism(D, **PRIVATE)
    median = fp.MedianClipping(2 * SIGMA)
    for algorithm, parts in (
        (fp.dp_sgd(local(used=HAAR), sampler=sampler), [(ROUNDS, SIGMA / root(D))]),
        (fp.dp_sgd(local(used=BY_TENSOR), sampler=sampler), [(ROUNDS, SIGMA / root(2))]),
        (fp.dp_sgd(local(used=LAPLACE), sampler=sampler), [(ROUNDS, SIGMA)]),
        (fp.dp_sgd(local(used=FALLING), sampler=sampler), PIECES),
        (fp.dp_scaffold(local(used=FALLING), sampler=sampler), PIECES),
        (fp.dp_sgd_wav(local(used=wav), sampler=sampler), [(ROUNDS, SIGMA / D)]),
        (
            fp.dp_sgd_wav(local(used=wav), sampler=sampler, noise_on_each=True),
            [(ROUNDS, SIGMA / D * root(2))],
        ),
        (fp.dp_scaffold(local(used=median), sampler=sampler), [(ROUNDS, 0)]),
        (fp.dp_sgd(local(used=fp.gaussian(C, 0)), sampler=sampler), [(ROUNDS, 0)]),
    ):
        assert_parts(seen(algorithm)[0], parts, parts, parts)
    steps = {"records": BATCHES["fixed_size"], "steps": 3, "learning_rate": 0.1, **PRIVATE}
    for unit, tensors, m in (
        ("record", 1, 2 * SIGMA),  # S = 2 C / (s R)
        ("record", 2, 2 * SIGMA / root(2)),
        ("client", 1, 2 * SIGMA * RECORDS / 2),  # S = 2 C / s, on what moves by 2 C / (s R)
    ):
        made = fp.dp_scaffold_steps(fp.per_example(squared), unit=unit, tensors=tensors, **steps)
        parts, _ = seen(fp.dp_scaffold(made, sampler=sampler))
        assert_parts(parts, *[[(ROUNDS, m)]] * 3)


@pytest.mark.parametrize("name", ["everyone", "fixed_size"])
def test_one_step_is_hidden_by_the_cohort(name):
    """In a sum that is a fixed multiple of the noisy gradients alone."""
    sampler, all_of_it = SAMPLERS[name], math.sqrt(MOST[name])
    for steps in (
        local(steps=1),
        local(steps=1, optimizer=optax.sgd(0.1, momentum=0.9)),
    ):
        parts, kinds = seen(fp.dp_sgd(steps, sampler=sampler))
        own = [(ROUNDS, SIGMA)]
        assert_parts(parts, scaled(own, all_of_it), own, scaled(own, all_of_it))
        assert [kinds[view].noise_is_split for view in fp.VIEWS] == [True, False, True]
    falling, _ = seen(fp.dp_sgd(local(steps=1, used=FALLING), sampler=sampler))
    assert_parts(falling, scaled(PIECES, all_of_it), PIECES, scaled(PIECES, all_of_it))


def test_where_one_step_is_not():
    """Steps that bend the gradient, control variates, rounded messages, other noise, or cohorts of unknown size."""
    fixed, one = SAMPLERS["fixed_size"], local(steps=1)
    for algorithm in (
        fp.dp_sgd(local(steps=1, optimizer=optax.adam(0.1)), sampler=fixed),
        fp.dp_sgd(local(steps=1, optimizer=optax.adagrad(0.1)), sampler=fixed),
        fp.dp_sgd(local(steps=2), sampler=fixed),
        fp.dp_sgd(one, sampler=fixed, codec=fp.qsgd(8)),
        fp.dp_sgd(local(steps=1, used=LAPLACE), sampler=fixed),
        fp.dp_sgd(one, sampler=SAMPLERS["poisson"]),
        fp.dp_sgd(one, sampler=SAMPLERS["with_replacement"]),
        fp.dp_scaffold(one, sampler=fixed),
    ):
        parts, kinds = seen(algorithm)
        assert_parts(parts, *[[(ROUNDS, SIGMA)]] * 3)
        assert not any(kind.noise_is_split for kind in kinds.values())


def of_one_step(sent, model=lambda total, diagnostics: total):
    """DP-SGD of one step: clients send `sent(client, noisy gradient)`, and the model is `model(sum, diagnostics)`."""

    def round(key, state, cohort):
        def client(key, shard):
            gradients, records = fp.per_example(squared), BATCHES["fixed_size"]
            mean = shard.private_mean(
                key, gradients, state.params, records=records, mechanism=GAUSSIAN
            )
            return sent(shard.client_id, mean)

        total, metrics, _ = cohort.sum(client, key, mechanism=fp.ALREADY_PRIVATE)
        return fp.ModelState(model(total, metrics["diagnostics"]), state.round + 1), metrics

    return fp.Algorithm(fp.start, round, SAMPLERS["fixed_size"], unit="record")


def beside_the_sum(seen_of):
    """The model also shows the mean of `seen_of(client, noisy gradient)` over the cohort."""
    return of_one_step(
        lambda i, mean: fp.Sent(mean, {"seen": seen_of(i, mean)}),
        lambda total, diagnostics: total | {"b": total["b"] + diagnostics["seen"]},
    )


@pytest.mark.parametrize(
    "seen_of",
    [
        lambda i, mean: jnp.where(i == 0, mean["b"], 0.0),
        lambda i, mean: mean["b"] ** 2,
        lambda i, mean: mean["b"],
    ],
    ids=["one client's", "bent", "linear"],
)
def test_one_step_that_shows_beside_the_sum(seen_of):
    """A diagnostic that is fed back may tell one client's noisy gradient from those of others."""
    parts, kinds = seen(beside_the_sum(seen_of))
    assert_parts(parts, *[[(ROUNDS, SIGMA)]] * 3)
    assert not any(kind.noise_is_split for kind in kinds.values())
    parts, _ = seen(beside_the_sum(lambda i, mean: jnp.float32(0)))
    assert_parts(parts, *(scaled([(ROUNDS, SIGMA)], f) for f in (math.sqrt(3), 1, math.sqrt(3))))


@pytest.mark.parametrize(("dtype", "records"), [("bfloat16", 1000), ("float16", 8000)])
def test_one_step_of_short_floats(dtype, records):
    """Each client rounds its noisy gradient, after which the others' noise may be gone: where it is small, always."""
    clients = 9
    own = fp.per_example(lambda params, y: params["w"] * y)
    used = fp.gaussian(1.25, 1.0)
    steps = fp.LocalSteps(own, fp.everyone(records), 1, lambda t: optax.sgd(1.0), used)
    algorithm = fp.dp_sgd(steps, sampler=fp.everyone(clients))
    # All gradients of four clients are 1.25 and of four others -1.25, which are floats of both types.
    y = np.repeat([1.25, -1.25, 0.0], np.array([4, 4, 1]) * records).astype(np.float32)
    federation = fp.Federation.from_arrays(y, np.split(np.arange(len(y)), clients))
    params = {"w": jnp.zeros((), dtype)}
    keys = jax.random.split(jax.random.key(0), 500)
    run = jax.jit(
        lambda key: fp.one_round(algorithm)(key, algorithm.init(params, None), federation)
    )
    found = jax.lax.map(lambda key: run(key)[0].params["w"].astype(jnp.float32), keys)
    noise = clients * records / 1.25 * np.asarray(found)  # of the last client's sum, in C sigma
    assert np.median(np.abs(noise)) < 1  # 0.67 of one client's noise, 2.02 of nine
    third, server = (
        fp.certify(algorithm, params, federation, 1, 1e-5, view=view)
        for view in ("third_party", "server")
    )
    assert third.epsilon == server.epsilon
    of_floats = fp.certify(algorithm, {"w": jnp.float32(0)}, federation, 1, 1e-5)
    assert of_floats.epsilon < third.epsilon / 2


@pytest.mark.parametrize(
    ("kind", "precision", "factor"),
    [
        ("bfloat16", "highest", 1.0),
        ("float32", None, 1.0),  # which GPUs compute in TF32, and TPUs in bfloat16
        ("float32", "high", 1.0),
        ("float32", "highest", math.sqrt(3)),
    ],
)
def test_one_step_multiplied_in_short_floats(kind, precision, factor):
    def sent(i, mean):
        along, how = (((0,), (0,)), ((), ())), {"preferred_element_type": kind}
        w = jax.lax.dot_general(mean["w"], jnp.eye(3), along, precision=precision, **how)
        return mean | {"w": w}

    parts, _ = seen(of_one_step(sent))
    assert parts["third_party"] == [(ROUNDS, pytest.approx(factor * SIGMA))]


def test_warm_starts():
    """They count as rounds; everyone takes part in the first one, if it is so asked."""
    sampler = SAMPLERS["fixed_size"]
    for used, pieces in (
        (GAUSSIAN, [(ROUNDS, SIGMA)]),
        (FALLING, PIECES),
    ):
        plain, warm, first = (
            released(fp.dp_scaffold(local(used=used), sampler=sampler, **more), ROUNDS)
            for more in ({}, {"warm_start": 2}, {"warm_start": 2, "everyone_first": True})
        )
        assert warm == plain
        begun = [(1, pieces[0][1]), (pieces[0][0] - 1, pieces[0][1]), *pieces[1:]]
        cohorts = [Everyone(CLIENTS)] + [sampler.accounting] * len(pieces)
        for each in first.values():
            assert [r.steps for r in each] == [n for n, _ in begun]
            np.testing.assert_allclose([r.multiplier for r in each], [m for _, m in begun])
            assert [r.participation for r in each] == cohorts
