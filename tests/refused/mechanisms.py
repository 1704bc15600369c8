"""Mechanisms, of integers and over rounds, too; clip sets, codecs, the Haar transform, and private means of records."""

import functools
import math

import jax
import numpy as np
from small import squared

import fedpriv as fp
from fedpriv import noise_matrices as nm
from fedpriv.compression.lattice import lattice_for
from fedpriv.mechanisms.clipping import coefficients, per_layer, per_level, separately
from fedpriv.mechanisms.described import described
from fedpriv.mechanisms.haar import haar, haar_norm, inverse_haar, variance_left, weights
from fedpriv.mechanisms.integers import IntegerSum, WrapsError
from fedpriv.mechanisms.per_example import MedianClipping, private_mean

GRADIENTS = fp.per_example(squared)
FOUR = {name: np.ones(4, np.float32) for name in "abcd"}
GAUSSIAN = fp.gaussian(1.0, 1.0)
SIX, EIGHT = np.zeros(6, np.float32), np.zeros(8, np.float32)
SKELLAM = functools.partial(fp.skellam, noise_multiplier=1.2, bits=16)
TREE = nm.tree(rounds=10)


def median_in_parts():
    mean = private_mean(fp.per_example(squared, micro=2), MedianClipping(1.0), 1.0)
    batch = {"x": np.ones((4, 3), np.float32), "y": np.ones(4, np.float32)}
    params = {"b": np.float32(0), "w": np.ones(3, np.float32)}
    return jax.eval_shape(mean, jax.random.key(0), params, batch, np.ones(4, bool))


def mean_of(mechanism):
    return lambda: private_mean(GRADIENTS, mechanism, 1.0)


def falling():
    return fp.dynamic(fp.gaussian(1.0, 1.0), rounds=10, clip_decay=1e13)


def wrapping():
    return IntegerSum("skellam", 8, 1.0, 1.5, 100, 54_000).scale


ROWS = [
    ("noise without a bound", lambda: fp.gaussian(math.inf, 1), "clip_norm:", "inf"),
    ("a clip norm that falls below float32's", falling, "clip_norm:", "1e-13"),
    ("a norm of nothing", lambda: haar_norm(np.zeros(0, np.float32)), "length:", "0"),
    ("another wavelet", lambda: haar(np.zeros(2, np.float32), "db4"), "form:", "'db4'"),
    ("too many waves", lambda: inverse_haar(EIGHT, 4), "coefficients:", "8"),
    ("waves of no power of two", lambda: inverse_haar(SIX, 6), "coefficients:", "6"),
    ("weights of no power of two", lambda: weights(6), "m:", "6"),
    ("variances of no power of two", lambda: variance_left(np.ones(3)), "m:", "3"),
    ("a number for a mechanism", mean_of(5), "mechanism:", "5"),
    ("text for a mechanism", mean_of("gaussian"), "mechanism:", "'gaussian'"),
    ("a number to describe", lambda: described(5), "mechanism:", "5"),
    ("a number for a scaling", lambda: described(GAUSSIAN, scaling=5), "scaling:", "5"),
    ("a number for a worst case", lambda: described(GAUSSIAN, worst_case=5), "worst_case:", "5"),
    ("medians of parts", median_in_parts, "micro:", "2"),
    ("integers without a bound", functools.partial(SKELLAM, math.inf), "clip_norm:", "inf"),
    ("too few bits", wrapping, "bits:", ("8", "give 11"), WrapsError),
    ("too many coordinates", lambda: fp.top_k(9).code(jax.random.key(0), EIGHT), "k:", "9"),
    ("a bit of a lattice", lambda: lattice_for(1, 1.0, 1), "bits:", "1"),
    ("a lattice of no extent", lambda: lattice_for(4, 0.0, 1), "largest:", "0.0"),
    ("a lattice of three axes", lambda: lattice_for(4, 1.0, 3), "dim:", "3"),
    ("parts larger than the batch", lambda: fp.epochs(1, 3, micro=4), "micro:", "4"),
    ("parts larger than drawn", lambda: fp.random_batches(1, 3, micro=4), "micro:", "4"),
    ("a tree of very many rounds", lambda: nm.tree(10**5), "rounds:", "100000"),
    ("a strategy of more rounds", lambda: TREE.strategy(11), "rounds:", "11"),
    ("noise of more rounds", lambda: TREE.noising(11), "rounds:", "11"),
    ("more rounds", lambda: TREE.sensitivity(11), "rounds:", "11"),
    ("a number for a matrix", lambda: nm.error(3, 10), "factorization:", "3"),
    ("no candidate", lambda: nm.least_error([], 10), "candidates:", "[]"),
]
for make in (nm.banded, nm.banded_toeplitz, nm.banded_inverse):
    call = functools.partial(make, 10, 11)
    ROWS.append((f"{make.__name__} of more bands than rounds", call, "bands:", "11"))
for make in (fp.gaussian, fp.laplace):
    for clip in (9e-13, 1.1e12):
        call = functools.partial(make, clip, 0.0)
        ROWS.append((f"{make.__name__} of {clip}", call, "clip_norm:", f"{clip:g}"))
for make, given, field in (
    (per_layer, 3, "tensors:"),
    (separately, 3, "tensors:"),
    (coefficients, 8, "d:"),
    (per_level, 8, "d:"),
):
    clip = functools.partial(jax.eval_shape, make(given).clip, FOUR, 1.0)
    ROWS.append((f"{make.__name__} of others", clip, field, f"{given}"))
for make in (fp.skellam, fp.discrete_gaussian):
    made = make(0.5, 1.2, bits=16)
    for call, field, shown in (
        (functools.partial(fp.dynamic, made, rounds=5, noise_decay=2.0), "start:", "no Gaussian"),
        (functools.partial(fp.joint, fp.gaussian(0.5, 1.2), made), "parts[1]:", "Gaussian noise"),
        (functools.partial(fp.correlated, made, TREE), "mechanism:", "Gaussian noise"),
    ):
        ROWS.append((f"{make.__name__}, {field}", call, field, shown))
