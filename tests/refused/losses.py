"""What is no loss: its parameters, and what it gives for an example."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from small import regression, squared, start

import fedpriv as fp
from refused.row import Refusal

EXAMPLES = regression([3]).examples
MASK = jnp.ones(3, bool)
UNTAKEN = {
    "no example": lambda p: 0.0,
    "a fourth parameter": lambda p, e, key, more: 0.0,
    "an example by name alone": lambda p, *, e: 0.0,
    "a key by name alone": lambda p, e, *, key: 0.0,
    "a key by name, that may be left out": lambda p, e, *, key=None: 0.0,
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
    "a boolean": (lambda p, e: squared(p, e) > 1, "bool[]"),
    "complex": (lambda p, e: squared(p, e) * 1j, "complex64[]"),
    "a constant": (lambda p, e: 0.0, "no influence"),
    "NumPy's constant": (lambda p, e: np.float32(1), "no influence"),
    "data alone": (lambda p, e: e["y"] ** 2, "no influence"),
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


ROWS = [
    *(
        Refusal(
            f"{name}, of {take.__name__}",
            lambda take=take, loss=loss: take(loss),
            "loss",
            "parameters are (p",
        )
        for take, named in (
            (fp.mean_grad, UNTAKEN),
            (fp.per_example, ["no example"]),
            (averaging, ["no example"]),
        )
        for name, loss in UNTAKEN.items()
        if name in named
    ),
    *(
        Refusal(name, lambda loss=loss: of_mean(loss), "loss", said)
        for name, (loss, said) in NO_NUMBERS.items()
    ),
    Refusal(
        "a key of another name",
        lambda: fp.mean_grad(lambda params, example, rng: 0.0),
        "third parameter",
        "'rng'",
        remedy="call it `key`",
    ),
    Refusal(
        "a batch without keys",
        lambda: fp.mean_grad(lambda params, example, key: 0.0)(start(), EXAMPLES, MASK),
        "fp.with_keys",
    ),
]
