"""What a check costs, in work that is counted and not timed: traces of the user's loss, and function calls."""

import cProfile
import pstats

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from every_algorithm import ENTRIES, FEDERATION, PARAMS
from small import regression, squared, start

import fedpriv as fp
from fedpriv.certification.certificate import check_twice, trace_round


class TracedError(Exception):
    """A run has come to its compilation."""


def only_traced(fn, args, donated):
    jax.jit(fn).trace(*args)
    raise TracedError


def counting(loss):
    """The loss, which counts in `traces` how often it is called: traced."""

    def counted(params, example):
        counted.traces += 1
        return loss(params, example)

    counted.traces = 0
    return counted


def traces_of(loss, algorithm, params, federation, **options):
    """How often the loss is traced by `certify`, and then by `simulate` until the rounds are compiled."""
    fp.certify(algorithm, params, federation, 3, 1e-5)
    by_certify, loss.traces = loss.traces, 0
    test = jax.tree.map(lambda leaf: leaf[:2] + 0.5, federation.examples)

    def score(params, example):
        return {"loss": squared(params, example)}

    given = {"score": score, "rounds": 3, "compiler": only_traced} | options
    with pytest.raises(TracedError):
        fp.simulate(algorithm, params, federation, test, **given)
    return by_certify, loss.traces


TWICE = ["fed_smp top_k", "fed_rep", "ditto"]
"""Their clients train two things."""


TRAINED = {name: 2 if name in TWICE else 1 for name in (*list(ENTRIES)[::10], *TWICE)}
"""How many things."""


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_a_loss_is_traced_twice_to_check_it_and_once_to_compile_it(name):
    """And once more where `per_example` or `mean_grad` meets it first."""
    loss, times = counting(squared), TRAINED[name]
    algorithm = ENTRIES[name].of_loss(loss)
    of_certify, of_simulate = traces_of(loss, algorithm, PARAMS, FEDERATION)
    assert of_certify <= 1 + 2 * times
    assert of_simulate <= 3 * times


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "every"), [(("vmap", 2), 2), ((2,), 1)])
def test_no_layout_and_no_rest_of_rounds_costs_a_trace(layout, every):
    loss = counting(squared)
    algorithm = ENTRIES["dp_fed_avg"].of_loss(loss)
    given = {"strategy": fp.Strategy(*layout), "every": every}
    assert traces_of(loss, algorithm, PARAMS, FEDERATION, **given)[1] <= 3


@pytest.mark.slow
def test_a_large_matrix_costs_no_trace():
    """Whether its sum may take its place is read off the program that is trained with."""
    loss = counting(squared)
    federation, params = regression([2] * 4, features=8), start(8)

    def of_matrix(params, example):
        return loss(params | {"w": params["w"] + jnp.sum(params["large"][:8], 1)}, example)

    algorithm = fp.fed_avg(
        of_matrix,
        sampler=fp.everyone(4),
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.epochs(2, 1),
    )
    params["large"] = jnp.zeros((2**10, 2**8))
    of_certify, of_simulate = traces_of(loss, algorithm, params, federation)
    assert of_certify <= 3
    assert of_simulate <= 3


def layered(layers):
    """An algorithm whose model has so many layers, of arrays that the loss closes over and of parameters."""
    rng = np.random.default_rng(0)
    fixed = [jnp.asarray(rng.normal(size=(2, 3, 3)), jnp.float32) for _ in range(layers)]

    def loss(params, example):
        x = example["x"]
        for own, (weights, others) in zip(params["layers"], fixed, strict=True):
            x = jnp.tanh(x @ (weights + own)) + jnp.sin(others @ x)
        return (x.sum() - example["y"]) ** 2

    algorithm = fp.dp_fed_avg(
        loss,
        sampler=fp.everyone(4),
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.full_batch(),
        clip_norm=1.0,
        noise_multiplier=1.0,
    )
    return algorithm, {"layers": [jnp.zeros((3, 3))] * layers}


def calls_of_a_check(layers):
    algorithm, params = layered(layers)
    profile = cProfile.Profile()
    with profile:
        traced = trace_round(algorithm, params, regression([2] * 4))
        check_twice(traced)
        traced.assumed()
    return pstats.Stats(profile).total_calls


@pytest.mark.slow
def test_a_check_is_linear_in_the_size_of_the_program():
    calls_of_a_check(2)  # JAX keeps what it meets for the first time
    few, more, most = map(calls_of_a_check, (4, 8, 16))
    assert most - more == pytest.approx(2 * (more - few), rel=0.1)
