"""Rows of algorithms, and of several runs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import every_algorithm
from golden.clients import GAUSSIAN, SAMPLINGS, averaging, federation
from golden.rows import Row
from small import start

import fedpriv as fp

VIEWS = fp.privacy.VIEWS
HONEST = dict(zip(VIEWS, (1.0, 1.0, 0.5), strict=True))


def algorithms() -> Iterator[Row]:
    """Every registered algorithm towards every view."""
    for name in every_algorithm.ENTRIES:
        for view, honest in HONEST.items():

            def make(name: str = name, view: Any = view, honest: float = honest) -> fp.Certificate:
                traced = every_algorithm.traced(name)
                return traced.certify(5, 1e-5, view=view, honest=honest)

            yield Row(f"algorithm: {name} x {view} x {honest:g} honest", make)


MEANS = {
    "everyone": averaging(SAMPLINGS["everyone"], fp.gaussian(0.5, 6.0)),
    "poisson": averaging(SAMPLINGS["poisson, never cut"], GAUSSIAN),
    "fixed size": averaging(SAMPLINGS["fixed size"], GAUSSIAN),
    "laplace": averaging(SAMPLINGS["poisson, never cut"], fp.laplace(0.5, 12.0)),
    "bare": averaging(SAMPLINGS["everyone"], fp.unprotected("for a row")),
    "skellam": averaging(SAMPLINGS["poisson, never cut"], fp.skellam(0.5, 2.0, bits=18)),
    "fixed order": averaging(SAMPLINGS["fixed order"], GAUSSIAN),
}
TOGETHER = {
    "two parts of one": [("poisson", 3), ("poisson", 4)],
    "everyone, then poisson": [("everyone", 1), ("poisson", 5)],
    "everyone, then fixed size": [("everyone", 1), ("fixed size", 5)],
    "three at once": [("poisson", 4)] * 3,
    "two noises": [("poisson", 3), ("laplace", 3)],
    "integers beside": [("poisson", 3), ("skellam", 3)],
    "one is bare": [("poisson", 3), ("bare", 1)],
    "poisson and fixed size": [("poisson", 3), ("fixed size", 3)],
    "turns and everyone": [("fixed order", 6), ("everyone", 1)],
}


def together() -> Iterator[Row]:
    """Several runs on the same clients."""
    for i, (name, runs) in enumerate(TOGETHER.items()):
        given = [(MEANS[which], rounds) for which, rounds in runs]
        for view in dict.fromkeys(("third_party", VIEWS[i % 3])):
            options: Any = {"view": view, "honest": HONEST[view]}
            make = partial(fp.certify_together, given, start(), federation(None), 1e-4, **options)
            yield Row(f"together: {name} x {view} x {HONEST[view]:g} honest", make)
    mean = fp.statistics.mean(lambda example: example["y"], bounds=(0.0, 1.0))
    statistic = mean.algorithm(federation(None), noise_multiplier=8.0)
    runs = [(statistic, 1), (MEANS["poisson"], 5)]
    yield Row(
        "together: a statistic, then training",
        partial(fp.certify_together, runs, start(), federation(None), 1e-4),
    )


def best_of() -> Iterator[Row]:
    """The best of runs of a random number."""
    for name in ("everyone", "poisson", "fixed size", "laplace", "skellam", "fixed order"):
        make = partial(fp.certify, MEANS[name], start(), federation(None), 6, 1e-5, best_of=3.0)
        yield Row(f"best of 3 runs: {name}", make)


def rows() -> Iterator[Row]:
    """All of them."""
    yield from algorithms()
    yield from together()
    yield from best_of()
