"""Arguments of another kind than is needed are refused in a line that says what to give."""

import numpy as np
import optax
import pytest
from small import squared, start

import fedpriv as fp
from fedpriv.mechanisms.clipping import flat
from fedpriv.mechanisms.noise import isotropic

COMMON = {
    "sampler": fp.everyone(2),
    "optimizer": lambda t: optax.sgd(0.1),
    "batches": fp.full_batch(),
}


@pytest.mark.parametrize(
    ("clipping", "noise", "said"),
    [
        (flat(), isotropic, r"noise: got the function isotropic, .*fp.noise.isotropic\(\)"),
        (flat, isotropic(), r"clipping: got the function flat, .*fp.clipping.flat\(\)"),
        (flat(), 2.0, "noise: got 2.0; give such as"),
        (isotropic(), isotropic(), "clipping: got a Noise; give such as"),
    ],
)
def test_parts_of_a_mechanism(clipping, noise, said):
    with pytest.raises(ValueError, match=said):
        fp.mechanism(clipping, noise, clip_norm=1.0, noise_multiplier=1.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "got None; give such as fp.gaussian"),
        (fp.gaussian, "got the function gaussian, not what it returns"),
    ],
)
def test_no_mechanism(given, said):
    """Neither for clients' messages nor for records' gradients."""
    of_clients = fp.fed_avg(squared, mechanism=given, **COMMON)
    local = fp.LocalSteps(
        fp.per_example(squared), fp.everyone(2), 1, COMMON["optimizer"], mechanism=given
    )
    example = {"x": np.zeros(3, np.float32), "y": np.float32(0)}
    for algorithm in (of_clients, fp.dp_sgd(local, sampler=COMMON["sampler"])):
        with pytest.raises(ValueError, match=f"mechanism: {said}"):
            fp.certify(algorithm, start(), fp.Federation.blank(example, 2, 2), 1, 1e-3)


@pytest.mark.parametrize("given", [20, fp.ByExamples])
def test_no_weighting(given):
    sparse = {"sparsifier": fp.select_rand_k(0.5), "mechanism": fp.gaussian(1.0, 1.0)}
    for make, options in ((fp.fed_avg, {}), (fp.fed_avg_sparse, sparse)):
        with pytest.raises(ValueError, match=r"weighting: got .*; give such as fp\.ByExamples"):
            make(squared, weighting=given, **options, **COMMON)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: fp.proximal(0.1, 0.3), "optimizer: got 0.1; give such as optax.sgd"),
        (lambda: fp.proximal(optax.sgd, 0.3), "optimizer: got the function sgd, not what it"),
        (lambda: fp.proximal(optax.sgd(0.1), "0.3"), "mu: got '0.3'; give such as 0.1"),
        (lambda: fp.ByExamples(cap=None), "cap: got None; give such as cap=20"),
        (lambda: fp.ByExamples(20, mean="1"), "mean: got '1'; give such as"),
    ],
)
def test_no_numbers_and_no_optimiser(make, said):
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.parametrize("given", [2, None, fp.epochs])
def test_no_batches(given):
    with pytest.raises(ValueError, match=r"batches: got .*; give such as fp\.epochs"):
        fp.fed_avg(squared, **COMMON | {"batches": given})
