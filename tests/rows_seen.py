"""What each view sees of an algorithm of `small.squared`, and samplers and mechanisms to try them with."""

from typing import NamedTuple

import numpy as np
import optax
from small import sgd, squared, traced

import fedpriv as fp
from fedpriv import clipping, noise
from fedpriv.privacy.rows import featured

CLIENTS, RECORDS, D = 6, 4, 4  # four parameters: no padding of Haar coefficients
C, SIGMA, ROUNDS = 0.5, 1.2, 9
COMMON = {"optimizer": sgd, "batches": fp.full_batch()}
PRIVATE = {"clip_norm": C, "noise_multiplier": SIGMA}
GAUSSIAN, LAPLACE = fp.gaussian(C, SIGMA), fp.laplace(C, SIGMA)
HAAR = fp.mechanism(clipping.flat(), noise.haar_noise(D), **PRIVATE)
BY_TENSOR = fp.mechanism(clipping.separately(2), noise.isotropic(), **PRIVATE)
FALLING = fp.dynamic(GAUSSIAN, rounds=8, clip_decay=2.0, noise_decay=3.0, parts=4)
PIECES = [(2, SIGMA), (2, SIGMA / 3**0.25), (2, SIGMA / 3**0.5), (3, SIGMA / 3**0.75)]

SAMPLERS = {
    "everyone": fp.everyone(CLIENTS),
    "fixed_size": fp.fixed_size(CLIENTS, 3),
    "poisson": fp.poisson(CLIENTS, 0.5, CLIENTS),
    "cut": fp.poisson(CLIENTS, 0.5, 2),
    "with_replacement": fp.with_replacement([1, 1, 1, 1, 1, 2], 4),
}
MOST = {
    "everyone": 6,
    "fixed_size": 3,
    "poisson": 6,
    "cut": 2,
    "with_replacement": 4,
}
"""The largest cohort."""


def rows(algorithm, rounds=ROUNDS, records=RECORDS):
    """View -> the rows of the table of views, of an algorithm of `squared`."""
    made = traced(algorithm, records)
    (kind,) = made.kinds
    found = [featured(row) for row in made._rows(rounds, kind)]
    return {view: [row for row in found if row.view == view] for view in fp.privacy.VIEWS}


def seen(algorithm, rounds=ROUNDS):
    """View -> [(rounds, multiplier)], in order; and all that is the same for all rows of a view."""
    found = rows(algorithm, rounds)
    parts = {
        view: [(row.repeated.rounds, row.noisy.multiplier) for row in each]
        for view, each in found.items()
    }
    rest = {}
    for view, each in found.items():
        kinds = {
            (
                row.unit,
                row.noisy.kind,
                row.adder,
                row.repeated.steps,
                row.drawn.by,
                row.repeated.among,
            )
            for row in each
        }
        assert len(kinds) == 1
        rest[view] = Kind(*kinds.pop(), sorted({row.reason for row in each}))
    return parts, rest


class Kind(NamedTuple):
    """What a row has beside its multiplier and its number of rounds."""

    unit: str
    noise: str
    adder: str
    local_steps: int
    sampling: object
    participation: object
    reasons: list


def assert_parts(found, third_party, server, behind):
    """[(rounds, multiplier)] of each view."""
    for view, expected in zip(fp.privacy.VIEWS, (third_party, server, behind), strict=True):
        assert [n for n, _ in found[view]] == [n for n, _ in expected]
        np.testing.assert_allclose([m for _, m in found[view]], [m for _, m in expected])


def scaled(parts, factor):
    return [(n, m * factor) for n, m in parts]


BATCHES = {
    "everyone": fp.everyone(RECORDS),
    "fixed_size": fp.fixed_size(RECORDS, 2),
    "poisson": fp.poisson(RECORDS, 0.5, RECORDS),
    "cut": fp.poisson(RECORDS, 0.5, 3),
    "with_replacement": fp.with_replacement([1] * RECORDS, 5),
}


def local(records=BATCHES["fixed_size"], steps=3, used=GAUSSIAN, unit="record", **more):
    optimizer = more.pop("optimizer", optax.sgd(0.1))
    return fp.LocalSteps(
        fp.per_example(squared), records, steps, lambda t: optimizer, used, unit, **more
    )
