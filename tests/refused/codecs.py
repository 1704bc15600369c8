"""Codecs, lattices, quantization, and the batches of local training."""

import jax
import numpy as np

import fedpriv as fp
from fedpriv.compression.lattice import lattice_for
from fedpriv.papers import fixed_interval
from refused.row import Refusal

ROWS = [
    Refusal("a bit", lambda: fp.qsgd(1), "bits:", "1"),
    Refusal("too many bits", lambda: fixed_interval(23, 1.0), "bits:", "23"),
    Refusal("an empty interval", lambda: fixed_interval(8, 0.0), "bound:", "0.0"),
    Refusal("no coordinate", lambda: fp.top_k(0), "k:", "0"),
    Refusal("half a coordinate", lambda: fp.top_k(2.5), "k:", "2.5"),
    Refusal(
        "more coordinates than there are",
        lambda: fp.top_k(9).code(jax.random.key(0), np.zeros(8, np.float32)),
        "k:",
        "9",
    ),
    Refusal("a bit of a lattice", lambda: lattice_for(1, 1.0, 1), "bits:", "1"),
    Refusal("a lattice of no extent", lambda: lattice_for(4, 0.0, 1), "largest:", "0.0"),
    Refusal("a lattice of three axes", lambda: lattice_for(4, 1.0, 3), "dim:", "3"),
    Refusal("epochs of empty batches", lambda: fp.epochs(1, 0), "batch_size:", "0"),
    Refusal("no epoch", lambda: fp.epochs(0, 1), "count:", "0"),
    Refusal("random batches of none", lambda: fp.random_batches(1, 0), "batch_size:", "0"),
    Refusal("no step", lambda: fp.random_batches(0, 1), "count:", "0"),
    Refusal("parts larger than the batch", lambda: fp.epochs(1, 3, micro=4), "micro:", "4"),
    Refusal("parts larger than drawn", lambda: fp.random_batches(1, 3, micro=4), "micro:", "4"),
    Refusal("parts of no record", lambda: fp.full_batch(0), "micro:", "0"),
    Refusal("parts of half a record", lambda: fp.full_batch(1.5), "micro:", "1.5"),
    Refusal("true as a part", lambda: fp.full_batch(True), "micro:", "True"),
]
