"""Mechanisms, clip sets, the Haar transform, and private means of records."""

import functools
import math

import jax
import numpy as np
from small import squared

import fedpriv as fp
from fedpriv.mechanisms.clipping import coefficients, per_layer, per_level, separately
from fedpriv.mechanisms.haar import haar, haar_norm, inverse_haar, variance_left, weights
from fedpriv.mechanisms.per_example import MedianClipping, private_mean
from refused.row import Refusal

GRADIENTS = fp.per_example(squared)
FOUR = {name: np.ones(4, np.float32) for name in "abcd"}


def noise_of(*given):
    return lambda: fp.gaussian(*given)


def median_in_parts():
    mean = private_mean(fp.per_example(squared, micro=2), MedianClipping(1.0), 1.0)
    batch = {"x": np.ones((4, 3), np.float32), "y": np.ones(4, np.float32)}
    params = {"b": np.float32(0), "w": np.ones(3, np.float32)}
    return jax.eval_shape(mean, jax.random.key(0), params, batch, np.ones(4, bool))


ROWS = [
    Refusal("a clip norm of 0", noise_of(0, 1), "clip_norm:", "0"),
    Refusal("a clip norm below 0", noise_of(-1.5, 1), "clip_norm:", "-1.5"),
    Refusal("a clip norm of nan", noise_of(math.nan, 1), "clip_norm:", "nan"),
    Refusal("noise below 0", noise_of(1, -0.1), "noise_multiplier:", "-0.1"),
    Refusal("noise of nan", noise_of(1, math.nan), "noise_multiplier:", "nan"),
    Refusal("endless noise", noise_of(1, math.inf), "noise_multiplier:", "inf"),
    Refusal("noise without a bound", noise_of(math.inf, 1), "clip_norm:", "inf"),
    Refusal("a Laplace clip norm of 0", lambda: fp.laplace(0, 1), "clip_norm:", "0"),
    *(
        Refusal(
            f"{make.__name__} at a clip norm of {c} and noise of {s}",
            functools.partial(make, c, s),
            "clip_norm:",
            f"{c:g}",
        )
        for make in (fp.gaussian, fp.laplace)
        for c in (1e-20, 9e-13, 1.1e12, 1e25)
        for s in (0.0, 1.0)
    ),
    Refusal(
        "a clip norm that falls below float32's",
        lambda: fp.dynamic(fp.gaussian(1.0, 1.0), rounds=10, clip_decay=1e13),
        "clip_norm:",
        "1e-13",
    ),
    *(
        Refusal(f"{make.__name__} of no tensor", functools.partial(make, 0), "tensors:", "0")
        for make in (per_layer, separately)
    ),
    *(
        Refusal(
            f"{make.__name__} of other tensors",
            lambda make=make: jax.eval_shape(make(3).clip, FOUR, 1.0),
            "tensors:",
            "3",
        )
        for make in (per_layer, separately)
    ),
    *(
        Refusal(
            f"{make.__name__} of another dimension",
            lambda make=make: jax.eval_shape(make(8).clip, FOUR, 1.0),
            "d:",
            "8",
        )
        for make in (coefficients, per_level)
    ),
    Refusal("waves of nothing", lambda: haar(np.zeros((2, 0), np.float32)), "length:", "0"),
    Refusal("a norm of nothing", lambda: haar_norm(np.zeros(0, np.float32)), "length:", "0"),
    Refusal("another wavelet", lambda: haar(np.zeros(2, np.float32), "db4"), "form:", "'db4'"),
    Refusal(
        "too many waves", lambda: inverse_haar(np.zeros(8, np.float32), 4), "coefficients:", "8"
    ),
    Refusal(
        "waves of no power of two",
        lambda: inverse_haar(np.zeros(6, np.float32), 6),
        "coefficients:",
        "6",
    ),
    Refusal("weights of no power of two", lambda: weights(6), "m:", "6"),
    Refusal("variances of no power of two", lambda: variance_left(np.ones(3)), "m:", "3"),
    Refusal("a number for a mechanism", lambda: private_mean(GRADIENTS, 5, 1.0), "mechanism:", "5"),
    Refusal(
        "text for a mechanism",
        lambda: private_mean(GRADIENTS, "gaussian", 1.0),
        "mechanism:",
        "'gaussian'",
    ),
    Refusal(
        "an object for a mechanism",
        lambda: private_mean(GRADIENTS, object(), 1.0),
        "mechanism:",
        "object",
    ),
    Refusal("records in parts of none", lambda: fp.per_example(squared, micro=0), "micro:", "0"),
    Refusal("records in parts of 1.5", lambda: fp.per_example(squared, micro=1.5), "micro:", "1.5"),
    Refusal("medians of parts", median_in_parts, "micro:", "2"),
]
