"""Rows of records, and of persons who hold them: all draws of a client's records with all cohorts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import optax
from golden.rows import Row
from small import squared, start

import fedpriv as fp

CLIENTS, PLACES, ROUNDS = 6, 8, 4
EQUAL, UNEQUAL = (PLACES,) * CLIENTS, (8, 2, 5, 4, 3, 8)
GROUPS = [["x", "y", "y", "x", "y", "y", "y", "y"][:size] for size in UNEQUAL]
HALVES = ["a", "b"] * 3  # of the clients
FIXED = fp.fixed_size(CLIENTS, 3)
HALF = {"a": fp.poisson(3, 0.5, 3), "b": fp.poisson(3, 0.25, 3)}

RECORDS: dict[str, Any] = {
    "everyone": fp.everyone(PLACES),
    "fixed size": fp.fixed_size(PLACES, 3),
    "poisson, never cut": fp.poisson(PLACES, 0.25, PLACES),
    "poisson, sometimes cut": fp.poisson(PLACES, 0.25, 3),
    "poisson, mostly cut": fp.poisson(PLACES, 0.5, 2),
    "with replacement": fp.with_replacement([1.0] * PLACES, 3),
    "public sizes, batch": fp.PublicSizes(UNEQUAL, batch=3),
    "public sizes, rate": fp.PublicSizes(UNEQUAL, rate=0.25),
    "public groups, batch": fp.PublicGroups(GROUPS, batch={"x": 1, "y": 2}),
    "public groups, rate": fp.PublicGroups(GROUPS, rate={"x": 0.5, "y": 0.1}),
}
COHORTS: dict[str, Any] = {
    "everyone": fp.everyone(CLIENTS),
    "fixed size": FIXED,
    "poisson, never cut": fp.poisson(CLIENTS, 0.5, CLIENTS),
    "poisson, mostly cut": fp.poisson(CLIENTS, 0.5, 2),
    "with replacement": fp.with_replacement([1.0] * CLIENTS, 3),
    "dropping, lost": fp.dropping(FIXED, 0.25, "lost"),
    "fixed order": fp.fixed_order(CLIENTS, 3),
    "cyclic poisson": fp.cyclic_poisson(CLIENTS, 2, 0.5, 3),
    "random allocation": fp.random_allocation(CLIENTS, 2, CLIENTS),
    "groups of poisson": fp.grouped(HALVES, HALF),
    "opening": fp.Opening(fp.everyone(CLIENTS), 2, FIXED),
}
STEPS: dict[str, tuple[fp.Mechanism, int, bool]] = {
    "own gaussian, K 1": (fp.gaussian(0.5, 2.0), 1, False),
    "own gaussian, K 5": (fp.gaussian(0.5, 3.0), 5, False),
    "own laplace, K 3": (fp.laplace(0.5, 12.0), 3, False),
    "summed gaussian": (fp.gaussian(0.5, 2.0), 1, True),
    "summed discrete gaussian": (fp.discrete_gaussian(0.5, 2.0, bits=18), 1, True),
}
"""The mechanism, the local steps of a round, and whether the cohort takes its steps together."""
UNITS = ("record", "person of 1", "person of 3", "person of 3, apart")
HONEST = (1.0, 1.0, 0.5)
DELTAS = (1e-5, 1e-2, 1e-9)


@cache
def federation(unit: str, sizes: tuple[int, ...]) -> fp.Federation:
    """One person has 3 records: at the first client, or 2 there and 1 at the third; all others have one each."""
    ends = np.cumsum(sizes)
    rows = np.split(np.arange(ends[-1]), ends[:-1])
    x = np.arange(ends[-1] * 3, dtype=np.float32).reshape(-1, 3)
    person = np.arange(ends[-1])
    third = ends[1] if unit == "person of 3, apart" else 2
    if unit.startswith("person of 3"):
        person[[1, third]] = 0
    persons = None if unit == "record" else person
    return fp.Federation.from_arrays({"x": x, "y": x[:, 0]}, rows, person=persons)


@cache
def traced(records: str, cohorts: str, steps: str, unit: str) -> Any:
    """The round of DP-SGD with these, traced once."""
    mechanism, count, together = STEPS[steps]
    local = fp.LocalSteps(
        fp.per_example(squared), RECORDS[records], count, lambda t: optax.sgd(0.1), mechanism
    )
    algorithm = fp.dp_sgd(local, sampler=COHORTS[cohorts], together=together)
    sizes = UNEQUAL if records.startswith("public") else EQUAL
    return fp.trace_round(algorithm, start(), federation(unit, sizes))


def certified(
    records: str, cohorts: str, steps: str, unit: str, delta: float, **options: Any
) -> fp.Certificate:
    """Of all rounds."""
    return traced(records, cohorts, steps, unit).certify(ROUNDS, delta, **options)


def rows() -> Iterator[Row]:
    """Every draw of records with all cohorts; all other levels by turns, so that every pair of any two comes."""
    for i, records in enumerate(RECORDS):
        for j, cohorts in enumerate(COHORTS):
            steps = [*STEPS][(i + j) % 5]
            view = fp.privacy.VIEWS[(i + 2 * j) % 3]
            unit = UNITS[(i + i // 4 + j // 2) % 4]
            if cohorts == "groups of poisson" or (records.startswith("public groups") and j % 4):
                unit = "record"  # groups are not certified for persons
            honest, delta = HONEST[(i + j) % 3], DELTAS[(i // 3 + j) % 3]
            words = f"records by {records} x cohorts by {cohorts} x {steps} x {unit} x {view}"
            name = f"{words} x {honest:g} honest x delta {delta:g}"
            options = {"view": view, "honest": honest}
            yield Row(name, partial(certified, records, cohorts, steps, unit, delta, **options))
