"""A small sigmoid network whose gradients give its inputs away, and digits to be found."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedpriv import datasets

_rng = np.random.default_rng(0)


def _weights(*shape):
    return jnp.asarray(_rng.normal(0, 0.5, shape), jnp.float32)


PARAMS = {
    "hidden": {"kernel": _weights(64, 16), "bias": jnp.zeros(16)},
    "last": {"kernel": _weights(16, 10), "bias": jnp.zeros(10)},
}


def _dense(layer, x):
    return x @ layer["kernel"] + layer["bias"]


def loss(params, example):
    hidden = jax.nn.sigmoid(_dense(params["hidden"], example["image"].ravel()))
    logits = _dense(params["last"], hidden)
    return optax.softmax_cross_entropy_with_integer_labels(logits, example["label"])


_DIGITS = datasets.load("digits").train
IMAGES = np.asarray(_DIGITS["image"][:40], np.float32) / 255
LABELS = np.asarray(_DIGITS["label"][:40])
