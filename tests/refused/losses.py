"""What is no loss: its parameters, and what it gives for an example."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from small import regression, squared, start

import fedpriv as fp

EXAMPLES = regression([3]).examples
MASK = jnp.ones(3, bool)
NO_EXAMPLE, RULE = (lambda p: 0.0), "its parameters are "
UNTAKEN = {
    "(p)": NO_EXAMPLE,
    "(p, e, key, more)": lambda p, e, key, more: 0.0,
    "(p, *, e)": lambda p, *, e: 0.0,
    "(p, e, *, key)": lambda p, e, *, key: 0.0,
    "(p, e, *, key=None)": lambda p, e, *, key=None: 0.0,
}
NO_NUMBERS = {
    "one entry": (lambda p, e: squared(p, e)[None], "float32[1]"),
    "a vector": (lambda p, e: squared(p, e) * jnp.ones(2), "float32[2]"),
    "nothing": (lambda p, e: squared(p, e) * jnp.ones((0, 3)), "float32[0, 3]"),
    "a tuple": (lambda p, e: (squared(p, e), {}), "a tuple of 2"),
    "a dict": (lambda p, e: {"loss": squared(p, e)}, "a dict of 1"),
    "None": (lambda p, e: None, "gives None"),
    "a string": (lambda p, e: "loss", "gives 'loss'"),
    "an integer": (lambda p, e: squared(p, e).astype(jnp.int32), "int32[]"),
    "complex": (lambda p, e: squared(p, e) * 1j, "complex64[]"),
    "a constant": (lambda p, e: 0.0, "no influence"),
    "NumPy's constant": (lambda p, e: np.float32(1), "no influence"),
    "jitted data": (jax.jit(lambda p, e: e["y"] ** 2), "no influence"),
    "stopped": (lambda p, e: jax.lax.stop_gradient(squared(p, e)), "no influence"),
    "an accuracy": (lambda p, e: (squared(p, e) > 1).astype(jnp.float32), "no influence"),
    "rounded": (lambda p, e: jnp.round(squared(p, e)), "no influence"),
}


def averaging(loss):
    how = {"optimizer": lambda t: optax.sgd(0.1), "batches": fp.full_batch()}
    return fp.fed_avg(loss, sampler=fp.everyone(2), **how)


def of_mean(loss):
    return jax.eval_shape(lambda: fp.mean_grad(loss)(start(), EXAMPLES, MASK))


def without_keys():
    return fp.mean_grad(lambda params, example, key: 0.0)(start(), EXAMPLES, MASK)


def of_generator():
    return fp.mean_grad(lambda params, example, rng: 0.0)


ROWS = [
    ("of records", lambda: fp.per_example(NO_EXAMPLE), "loss", RULE + "(p)"),
    ("of an algorithm", lambda: averaging(NO_EXAMPLE), "loss", RULE + "(p)"),
    ("a key of another name", of_generator, "third parameter", ("'rng'", "call it `key`")),
    ("a batch without keys", without_keys, "batch", "fp.with_keys"),
    *((name, partial(of_mean, loss), "loss", shown) for name, (loss, shown) in NO_NUMBERS.items()),
]
for taken, loss in UNTAKEN.items():
    ROWS.append((taken, partial(fp.mean_grad, loss), "loss", RULE + taken))
