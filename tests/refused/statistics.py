"""Statistics before training."""

import functools

import numpy as np
from small import regression

import fedpriv as fp

S = fp.statistics
FEDERATION = functools.cache(lambda: regression([2, 3], features=2))


def of(make):
    """That the federation is asked for it."""
    return lambda: make().algorithm(FEDERATION(), noise_multiplier=1.0)


def released(federation=FEDERATION, **options):
    return lambda: S.count().release(federation(), delta=1e-3, **options)


def bounded(*bounds, of="y", **how):
    return lambda: S.mean(of, bounds=bounds, **how)


def binned(bins):
    return lambda: S.histogram("y", bins=bins)


def items(candidates, most=1):
    return lambda: S.heavy_hitters("y", candidates=candidates, most=most)


SHAPES = (np.zeros(3), np.ones(3))
ROWS = [
    ("a count of several", of(lambda: S.count(lambda e: e["x"] > 0)), "where", "[2]"),
    ("bounds too near", bounded(1.7e9, 1.7e9 + 60), "bounds", "1700000000.0"),
    ("bounds too far", bounded(0, 1e39), "bounds", "1e+39"),
    ("bounds in a wrong order", bounded(5, 1), "bounds", "(5, 1)"),
    ("a bound", lambda: S.sum("y", bounds=5), "bounds", "5"),
    ("an endless bound", bounded(0, np.inf), "bounds", "inf"),
    ("bounds of another shape", of(bounded(*SHAPES, of="x")), "bounds", ("float64[3]", "[2]")),
    ("bins too near", binned([1.7e9, 1.7e9 + 1]), "bins", "1700000000.0"),
    ("no bin", binned([]), "bins", "[]"),
    ("a number of bins", binned(10), "bins", "10"),
    ("a wrong order", lambda: S.quantile("y", 0.5, bins=[0, 2, 1]), "bins", "[0, 2, 1]"),
    ("no candidate", items([]), "candidates", "[]"),
    ("a candidate twice", items([1, 1]), "candidates", "[1, 1]"),
    ("text for a candidate", items(["a"]), "candidates", "'a'"),
    ("more than candidates", items([0, 1], most=3), "most", "3"),
    ("a number for a leaf", bounded(0, 1, of=5), "values", "5"),
    ("a leaf that is not there", of(bounded(0, 1, of="height")), "values", "'height'"),
    (
        "a quantile of several",
        of(lambda: S.adaptive_quantile("x", 0.5, start=1.0, rounds=2)),
        "values",
        ("'x'", "one number, not [2]"),
    ),
    ("an axis too many", of(bounded(0, 1, of="x", axis=1)), "axis", "[2]"),
    ("no noise and no budget", released(), "noise_multiplier", "None"),
    ("no federation", released(lambda: 5, noise_multiplier=1.0), "federation", "5"),
]
