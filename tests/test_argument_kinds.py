"""Arguments of another kind than is needed are refused in a line that says what to give."""

import optax
import pytest
from small import squared

import fedpriv as fp
from fedpriv.core.arguments import check_path
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
        (flat(), isotropic, r"noise: the function isotropic, .*fp.noise.isotropic\(\)"),
        (flat, isotropic(), r"clipping: the function flat, .*fp.clipping.flat\(\)"),
        (flat(), 2.0, "noise: 2.0; give one such as"),
        (isotropic(), isotropic(), "clipping: .* Noise; give one such as"),
    ],
)
def test_parts_of_a_mechanism(clipping, noise, said):
    with pytest.raises(ValueError, match=said):
        fp.mechanism(clipping, noise, clip_norm=1.0, noise_multiplier=1.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "None; give one such as fp.gaussian"),
        (fp.gaussian, "the function gaussian, not what it returns"),
    ],
)
def test_no_mechanism(given, said):
    """Neither for clients' messages nor for records' gradients."""
    local = fp.LocalSteps(
        fp.per_example(squared), fp.everyone(2), 1, COMMON["optimizer"], mechanism=given
    )
    for make in (
        lambda: fp.fed_avg(squared, mechanism=given, **COMMON),
        lambda: fp.dp_sgd(local, sampler=COMMON["sampler"]),
    ):
        with pytest.raises(ValueError, match=f"mechanism: {said}"):
            make()


@pytest.mark.parametrize("given", [20, fp.ByExamples])
def test_no_weighting(given):
    sparse = {"sparsifier": fp.papers.select_rand_k(0.5), "mechanism": fp.gaussian(1.0, 1.0)}
    for make, options in ((fp.fed_avg, {}), (fp.papers.fed_avg_sparse, sparse)):
        with pytest.raises(ValueError, match=r"weighting: .*; give one such as fp\.ByExamples"):
            make(squared, weighting=given, **options, **COMMON)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: fp.proximal(0.1, 0.3), "optimizer: 0.1; give an optimiser, such as optax.sgd"),
        (lambda: fp.proximal(optax.sgd, 0.3), "optimizer: the function sgd, not what it"),
        (lambda: fp.proximal(optax.sgd(0.1), "0.3"), "mu: '0.3'; give a finite number"),
        (lambda: fp.ByExamples(cap=None), "cap: None; give a finite number"),
        (lambda: fp.ByExamples(20, mean="1"), "mean: '1'; give a number"),
    ],
)
def test_no_numbers_and_no_optimiser(make, said):
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.parametrize("given", [2, None, fp.epochs])
def test_no_batches(given):
    with pytest.raises(ValueError, match=r"batches: .*; give one such as fp\.epochs"):
        fp.fed_avg(squared, **COMMON | {"batches": given})


@pytest.mark.parametrize("path", [3, None, b"runs", "a\0b", ["runs"]])
def test_no_path(path):
    with pytest.raises(ValueError, match=r"^folder: .*; give a folder$"):
        check_path("folder", path, "give a folder")
