"""What is read off rounds whose clients bound and perturb gradients of their records themselves."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from every_algorithm import ENTRIES, that
from rows_seen import (
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
    rows,
    scaled,
    seen,
)
from small import assert_normal, squared

import fedpriv as fp
from fedpriv.experiments.papers.dp_scaffold import local_steps
from fedpriv.privacy import Everyone
from fedpriv.proof.row import seen_of
from fedpriv.rounds.record_samplers import accounting_of

LARGEST = {
    "everyone": 4,
    "fixed_size": 2,
    "poisson": 4,
    "cut": 3,
    "with_replacement": 5,
}
"""The largest batch: by so many clip norms a whole client moves a step."""


OF_LOCAL_STEPS = that(
    lambda entry: entry.takes("local") and not {"together", "weighting"} & {*entry.make.keywords}
)


@pytest.mark.parametrize("unit", ["record", "client"])
@tiers.every("batch", ["poisson", *(name for name in BATCHES if name != "poisson")])
def test_local_steps(batch, unit):
    """Every view is taken to see each noisy gradient of a client, in the rounds that it takes part in.

    Each kind of batches meets each kind of cohorts, and each of the two each algorithm.
    """
    records, client = BATCHES[batch], unit == "client"
    own = SIGMA / (LARGEST[batch] if client else 1)
    sampling = Everyone(RECORDS) if client else accounting_of(records)
    first = list(BATCHES).index(batch)
    for turn, (name, sampler) in enumerate(SAMPLERS.items(), first):
        entries = [ENTRIES[each] for each in OF_LOCAL_STEPS]
        if name == "with_replacement":
            entries = [entry for entry in entries if not entry.takes("warm_start")]
        make = entries[turn % len(entries)].make
        parts, kinds = seen(make(local=local(records, unit=unit), sampler=sampler))
        assert_parts(parts, *[[(ROUNDS, own)]] * 3)
        expected = (unit, "gaussian", "own", 3, sampling, sampler.accounting, [""])
        assert all(kind == expected for kind in kinds.values())


@pytest.mark.slow
def test_mechanisms_of_local_steps():
    sampler, root = SAMPLERS["fixed_size"], math.sqrt
    wav = fp.papers.haar_mechanism(D, **PRIVATE)
    median = fp.papers.MedianClipping(2 * SIGMA)
    for algorithm, parts in (
        (fp.dp_sgd(local(used=HAAR), sampler=sampler), [(ROUNDS, SIGMA / root(D))]),
        (fp.dp_sgd(local(used=BY_TENSOR), sampler=sampler), [(ROUNDS, SIGMA / root(2))]),
        (fp.dp_sgd(local(used=LAPLACE), sampler=sampler), [(ROUNDS, SIGMA)]),
        (fp.dp_sgd(local(used=FALLING), sampler=sampler), PIECES),
        (fp.dp_scaffold(local(used=FALLING), sampler=sampler), PIECES),
        (fp.papers.dp_sgd_wav(local(used=wav), sampler=sampler), [(ROUNDS, SIGMA / D)]),
        (
            fp.papers.dp_sgd_wav(local(used=wav), sampler=sampler, noise_on_each=True),
            [(ROUNDS, SIGMA / D * root(2))],
        ),
        (fp.dp_scaffold(local(used=median), sampler=sampler), [(ROUNDS, 0)]),
        (fp.dp_sgd(local(used=fp.gaussian(C, 0)), sampler=sampler), [(ROUNDS, 0)]),
    ):
        assert_parts(seen(algorithm)[0], parts, parts, parts)


def test_the_papers_local_steps():
    """S = 2 C / (s R) of a record."""
    sampler = SAMPLERS["fixed_size"]
    steps = {"records": BATCHES["fixed_size"], "steps": 3, "learning_rate": 0.1, **PRIVATE}
    for unit, tensors, m in (
        ("record", 1, 2 * SIGMA),
        ("record", 2, 2 * SIGMA / math.sqrt(2)),
        ("client", 1, 2 * SIGMA * RECORDS / 2),  # S = 2 C / s, on what moves by 2 C / (s R)
    ):
        made = local_steps(fp.per_example(squared), unit=unit, tensors=tensors, **steps)
        parts, _ = seen(fp.dp_scaffold(made, sampler=sampler))
        assert_parts(parts, *[[(ROUNDS, m)]] * 3)


@tiers.every("name", ["fixed_size", "everyone"])
def test_one_step_of_all_is_hidden_by_the_cohort(name):
    """Whatever the optimiser makes of the mean."""
    sampler, all_of_it, own = SAMPLERS[name], math.sqrt(MOST[name]), [(ROUNDS, SIGMA)]
    for optimizer in (optax.sgd(0.1, momentum=0.9), optax.adam(0.1)):
        steps = local(steps=1, optimizer=optimizer)
        parts, kinds = seen(fp.dp_sgd(steps, sampler=sampler, together=True))
        assert_parts(parts, scaled(own, all_of_it), own, scaled(own, all_of_it))
        assert [kinds[view].adder for view in fp.privacy.VIEWS] == [
            "own_summed",
            "own",
            "own_summed",
        ]
    falling, _ = seen(fp.dp_sgd(local(steps=1, used=FALLING), sampler=sampler, together=True))
    assert_parts(falling, scaled(PIECES, all_of_it), PIECES, scaled(PIECES, all_of_it))


def test_where_one_step_is_not():
    """Other noise, units, cohorts or divisors; and steps that clients take by themselves."""
    fixed, one = SAMPLERS["fixed_size"], local(steps=1)
    public = local(fp.PublicSizes([RECORDS] * CLIENTS, batch=2), steps=1)
    for algorithm in (
        fp.dp_sgd(local(steps=1, used=LAPLACE), sampler=fixed, together=True),
        fp.dp_sgd(public, sampler=fixed, together=True),
        fp.dp_sgd(one, sampler=SAMPLERS["poisson"], together=True),
        fp.dp_sgd(one, sampler=SAMPLERS["with_replacement"], together=True),
        fp.dp_sgd(one, sampler=fp.dropping(fixed, 0.25), together=True),
        fp.dp_sgd(one, sampler=fixed),
        fp.dp_scaffold(one, sampler=fixed),
    ):
        parts, kinds = seen(algorithm)
        assert_parts(parts, *[[(ROUNDS, SIGMA)]] * 3)
        assert all(kind.adder == "own" for kind in kinds.values())


@pytest.mark.parametrize(
    "more",
    [
        {"codec": fp.qsgd(8)},
        {"weighting": fp.ByPublicSizes([RECORDS] * CLIENTS)},
        {"local": fp.straggling(local(steps=1), 0.5)},
        {"local": local(steps=2)},
    ],
    ids=lambda more: next(iter(more)),
)
def test_one_step_of_all_is_plain(more):
    given = {"local": local(steps=1), "sampler": SAMPLERS["fixed_size"]} | more
    with pytest.raises(ValueError, match="together: True; leave it out"):
        fp.dp_sgd(together=True, **given)


def test_several_steps_of_all():
    """Each is a release of its own; beside them a client's own, which has its own noise alone."""
    sampler, all_of_it = SAMPLERS["everyone"], math.sqrt(MOST["everyone"])
    how = {"records": BATCHES["fixed_size"], "mechanism": GAUSSIAN}

    def round(key, state, cohort):
        params, gradients = state.params, fp.per_example(squared)
        for _ in range(2):
            mean, metrics = cohort.private_mean(gradients, params, **how)
            params = jax.tree.map(lambda p, g: p - 0.1 * g, params, mean)
        own = lambda key, shard: shard.private_mean(gradients, state.params, **how)  # noqa: E731
        metrics = cohort.sum(own, key, mechanism=fp.ALREADY_PRIVATE).metrics
        return fp.ModelState(params, state.round + 1), metrics

    algorithm = fp.Algorithm(fp.start, round, sampler, unit="record")
    third = rows(algorithm)["third_party"]
    assert [(row.repeated.steps, row.noisy.multiplier) for row in third] == [
        (2, pytest.approx(SIGMA * all_of_it)),
        (1, pytest.approx(SIGMA)),
    ]


@pytest.mark.usefixtures("quick_to_compile")
@tiers.every("dtype", ["bfloat16", "float32"])
def test_one_step_of_short_floats(dtype):
    """The mean is rounded once: clients that rounded their own would lose the others' noise."""
    clients, records = 9, 1000
    own = fp.per_example(lambda params, y: params["w"] * y)
    used = fp.gaussian(1.25, 1.0)
    steps = fp.LocalSteps(own, fp.everyone(records), 1, lambda t: optax.sgd(1.0), used)
    algorithm = fp.dp_sgd(steps, sampler=fp.everyone(clients), together=True)
    # All gradients of four clients are 1.25 and of four others -1.25, which are floats of both types.
    y = np.repeat([1.25, -1.25, 0.0], np.array([4, 4, 1]) * records).astype(np.float32)
    federation = fp.Federation.from_arrays(y, np.split(np.arange(len(y)), clients))
    params = {"w": jnp.zeros((), dtype)}
    keys = jax.random.split(jax.random.key(0), 500)
    run = jax.jit(
        lambda key: fp.one_round(algorithm)(key, algorithm.init(params, None), federation)
    )
    found = jax.lax.map(lambda key: run(key)[0].params["w"].astype(jnp.float32), keys)
    noise = clients * records / 1.25 * np.asarray(found)
    assert_normal(noise / 3, 1.0)  # of nine clients, in C sigma


WARM = {"falling": (FALLING, PIECES), "plain": (GAUSSIAN, [(ROUNDS, SIGMA)])}


@tiers.every("used", WARM)
def test_warm_starts(used):
    """They count as rounds; everyone takes part in the first one, if it is so asked."""
    sampler = SAMPLERS["fixed_size"]
    mechanism, pieces = WARM[used]
    plain, warm, first = (
        rows(fp.dp_scaffold(local(used=mechanism), sampler=sampler, **more))
        for more in ({}, {"warm_start": 2}, {"warm_start": 2, "everyone_first": True})
    )
    pairs = [
        [seen_of(row).pairs for each in found.values() for row in each] for found in (plain, warm)
    ]
    assert pairs[0] == pairs[1]
    begun = [(1, pieces[0][1]), (pieces[0][0] - 1, pieces[0][1]), *pieces[1:]]
    cohorts = [Everyone(CLIENTS)] + [sampler.accounting] * len(pieces)
    for each in first.values():
        assert [row.repeated.rounds for row in each] == [n for n, _ in begun]
        np.testing.assert_allclose([row.noisy.multiplier for row in each], [m for _, m in begun])
        assert [row.repeated.among for row in each] == cohorts
