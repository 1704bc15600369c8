"""Statistics before training."""

import functools

import numpy as np
from small import regression

import fedpriv as fp
from refused.row import Refusal

S = fp.statistics
FEDERATION = functools.cache(lambda: regression([2, 3], features=2))


def of(make):
    """That the federation is asked for it."""
    return lambda: make().algorithm(FEDERATION(), noise_multiplier=1.0)


def released(federation=FEDERATION, **options):
    return lambda: S.count().release(federation(), delta=1e-3, **options)


def items(candidates, most=1):
    return lambda: S.heavy_hitters("y", candidates=candidates, most=most)


ROWS = [
    Refusal("a count of several", of(lambda: S.count(lambda e: e["x"] > 0)), "where:", "[2]"),
    Refusal(
        "bounds too near",
        lambda: S.mean("y", bounds=(1.7e9, 1.7e9 + 60)),
        "bounds:",
        "1700000000.0",
    ),
    Refusal("bounds too far", lambda: S.mean("y", bounds=(0, 1e39)), "bounds:", "1e+39"),
    Refusal("bounds in a wrong order", lambda: S.mean("y", bounds=(5, 1)), "bounds:", "(5, 1)"),
    Refusal("a bound", lambda: S.sum("y", bounds=5), "bounds:", "5"),
    Refusal("an endless bound", lambda: S.mean("y", bounds=(0, np.inf)), "bounds:", "inf"),
    Refusal(
        "bounds of another shape",
        of(lambda: S.mean("x", bounds=(np.zeros(3), np.ones(3)))),
        "bounds:",
        "[2]",
    ),
    Refusal(
        "bins too near", lambda: S.histogram("y", bins=[1.7e9, 1.7e9 + 1]), "bins:", "1700000000.0"
    ),
    Refusal("no bin", lambda: S.histogram("y", bins=[]), "bins:", "[]"),
    Refusal("a number of bins", lambda: S.histogram("y", bins=10), "bins:", "10"),
    Refusal("bins in a wrong order", lambda: S.quantile("y", 0.5, bins=[0, 2, 1]), "bins:", ""),
    Refusal("no candidate", items([]), "candidates:", "[]"),
    Refusal("a candidate twice", items([1, 1]), "candidates:", "1"),
    Refusal("text for a candidate", items(["a"]), "candidates:", "'a'"),
    Refusal("more than candidates", items([0, 1], most=3), "most:", "3"),
    Refusal("a share above 1", lambda: S.quantile("y", 1.5, bins=[0, 1]), "q:", "1.5"),
    Refusal("a number for a leaf", lambda: S.mean(5, bounds=(0, 1)), "values:", "5"),
    Refusal(
        "a leaf that is not there",
        of(lambda: S.mean("height", bounds=(0, 1))),
        "values:",
        "'height'",
    ),
    Refusal(
        "a quantile of several",
        of(lambda: S.adaptive_quantile("x", 0.5, start=1.0, rounds=2)),
        "values:",
        "",
    ),
    Refusal("an axis too many", of(lambda: S.mean("x", bounds=(0, 1), axis=1)), "axis:", "[2]"),
    Refusal("no noise and no budget", released(), "noise_multiplier:", "None"),
    Refusal(
        "a number for a federation",
        released(lambda: 5, noise_multiplier=1.0),
        "federation:",
        "5",
    ),
    Refusal("persons", released(noise_multiplier=1.0, unit="person"), "unit:", "'person'"),
]
