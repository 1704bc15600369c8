"""Layers that compute again what a gradient needs (`jax.checkpoint`, `nn.remat`) save memory in rounds, of each client.

XLA for CPU undoes this where layers are not scanned over, in a program of plain JAX, too; there the trace is looked at.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiers
from jax import lax
from small import assert_close

import fedpriv as fp
from fedpriv.devices.fitting import compiled_to_fit
from fedpriv.devices.layout import Strategy, use
from fedpriv.devices.memory import live_bytes

pytestmark = pytest.mark.usefixtures("quick_to_compile")  # memory is the same to the byte

LAYERS, WIDTH, LENGTH = 8, 16, 64
CLIENTS, RECORDS = 4, 4
BASE_BYTES = 4 * LAYERS * 2 * WIDTH * 4 * WIDTH


def layer(x, weights):
    hidden = jnp.tanh(x @ weights["first"])
    return x + jnp.tanh(hidden @ weights["second"]) + weights["bias"]


def init(key):
    rng = np.random.default_rng(0)
    shapes = {"first": (WIDTH, 4 * WIDTH), "second": (4 * WIDTH, WIDTH), "bias": (WIDTH,)}
    drawn = {name: 0.1 * rng.normal(size=(LAYERS, *shape)) for name, shape in shapes.items()}
    return jax.tree.map(jnp.float32, drawn)


def scanned(again, length=LENGTH):
    body = jax.checkpoint(layer) if again else layer

    def apply(params, x):
        return lax.scan(lambda x, weights: (body(x, weights), None), x[:length], params)[0].mean(0)

    return fp.models.from_apply(init, apply, "x")


def in_turn(again):
    body = jax.checkpoint(layer) if again else layer

    def apply(params, x):
        for i in range(LAYERS):
            x = body(x, jax.tree.map(lambda leaf, i=i: leaf[i], params))
        return x.mean(0)

    return fp.models.from_apply(init, apply, "x")


def biases(again):
    """Of a public base, its biases alone are trained, on few rows: the base is larger than what a client needs."""
    model = scanned(again, 2)
    return fp.models.frozen(model, model.init(jax.random.key(5)), "bias")


def federation():
    rng = np.random.default_rng(0)
    total = CLIENTS * RECORDS
    examples = {
        "x": rng.standard_normal((total, LENGTH, WIDTH)).astype(np.float32),
        "label": rng.integers(0, WIDTH, total).astype(np.int32),
    }
    rows = list(np.arange(total).reshape(CLIENTS, RECORDS))
    return fp.Federation.from_arrays(examples, rows, num_classes=WIDTH)


def of_clients(model):
    return fp.dp_fed_avg(
        model.loss,
        sampler=fp.everyone(CLIENTS),
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.epochs(1, RECORDS),
        clip_norm=1.0,
        noise_multiplier=1.0,
    )


def of_records(model):
    steps = fp.LocalSteps(
        fp.per_example(model.loss),
        fp.fixed_size(RECORDS, 2),
        2,
        lambda t: optax.sgd(0.1),
        fp.gaussian(1.0, 2.0),
    )
    return fp.dp_scaffold(steps, sampler=fp.everyone(CLIENTS))


def given(algorithm, model):
    data = federation()
    state = algorithm.init(model.init(jax.random.key(0)), data)
    return jax.random.key(1), state, data


@cache
def compiled(make, again, clients):
    """A round of that many clients side by side, and its arguments."""
    model = make(again)
    algorithm = of_clients(model)
    args = given(algorithm, model)
    run, _ = compiled_to_fit(lambda: fp.one_round(algorithm), args, [], Strategy(clients))
    return run, args


def temporary(make, again, clients):
    return compiled(make, again, clients)[0].memory_analysis().temp_size_in_bytes


@pytest.mark.slow
def test_a_round_takes_less_memory_and_does_the_same():
    assert temporary(scanned, True, 2) < 0.65 * temporary(scanned, False, 2)
    (run, args), (other, _) = compiled(scanned, True, 2), compiled(scanned, False, 2)
    assert_close(run(*args)[0].params, other(*args)[0].params)


@pytest.mark.slow
def test_a_further_client_takes_no_more_than_its_own():
    """Neither a copy of the layers that all share."""
    two, four = (temporary(biases, True, clients) for clients in (2, 4))
    each = (four - two) / 2
    assert each < 1.05 * two / 2
    assert each < BASE_BYTES / 2


KEEPING = {
    "scanned": (scanned, of_clients),
    "in turn": (in_turn, of_records),
}


@tiers.every("name", KEEPING)
def test_less_is_kept_for_the_gradient(name):
    """By the round's trace, without a compiler."""
    make, algorithm = KEEPING[name]

    def kept(again):
        model = make(again)
        made = algorithm(model)
        with use(Strategy(2)):
            traced = jax.jit(fp.one_round(made)).trace(*given(made, model))
        return live_bytes(traced.jaxpr)

    assert kept(True) < 0.9 * kept(False)
