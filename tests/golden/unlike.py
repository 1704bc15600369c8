"""Rows of unlike units: groups, clients and persons that are drawn, or count, differently."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import optax
from golden.clients import SAMPLINGS, averaging
from golden.rows import Row
from small import squared, start

import fedpriv as fp

EXAMPLE = {"x": np.zeros(3, np.float32), "y": np.float32(0)}


def blank(clients: int, records: int = 2) -> fp.Federation:
    """A federation of shapes alone."""
    return fp.Federation.blank(EXAMPLE, clients, records)


@cache
def unlike_clients(noise: float, **samplers: Any) -> Any:
    """Traced for groups of clients; each as (members, sampler, weight)."""
    labels = [name for name, (members, _, _) in samplers.items() for _ in range(members)]
    drawn = {name: sampler for name, (_, sampler, _) in samplers.items()}
    weights = {name: weight for name, (_, _, weight) in samplers.items()}
    sampler = fp.grouped(labels, drawn, weights=weights)
    algorithm = averaging(sampler, fp.gaussian(0.5, noise))
    return fp.trace_round(algorithm, start(), blank(len(labels)))


GROUPS = {
    "seldom and often": (
        0.25,
        {"a": (1000, fp.poisson(1000, 0.002), 1.0), "b": (20, fp.poisson(20, 1.0), 0.25)},
    ),
    "three rates": (
        2.0,
        {
            "a": (50, fp.poisson(50, 0.02, 50), 1.0),
            "b": (30, fp.poisson(30, 0.2, 30), 0.7),
            "c": (10, fp.poisson(10, 0.9, 10), 0.4),
        },
    ),
    "two sizes": (
        4.0,
        {"a": (50, fp.fixed_size(50, 1), 1.0), "b": (10, fp.fixed_size(10, 9), 0.5)},
    ),
    "turns": (
        2.0,
        {"a": (9, fp.fixed_order(9, 3), 1.0), "b": (8, fp.fixed_order(8, 4), 0.5)},
    ),
}


def dp_sgd(
    records: Any, clients: int, noise: float = 2.0, steps: int = 2, cohorts: Any = None
) -> fp.Algorithm:
    """DP-SGD at each client."""
    local = fp.LocalSteps(
        fp.per_example(squared),
        records,
        steps,
        lambda t: optax.sgd(0.1),
        fp.gaussian(0.5, noise),
    )
    return fp.dp_sgd(local, sampler=cohorts or fp.everyone(clients))


def of_sizes(sizes: tuple[int, ...], person: Any = None) -> fp.Federation:
    """Clients of so many records, whose owners are `person`'s."""
    total = sum(sizes)
    rows = np.split(np.arange(total), np.cumsum(sizes)[:-1])
    x = np.arange(total * 3, dtype=np.float32).reshape(-1, 3)
    return fp.Federation.from_arrays({"x": x, "y": x[:, 0]}, rows, person=person)


def rows() -> Iterator[Row]:
    """Units that are drawn, or count, differently: what is said of all of them is said in one certificate."""
    for name, (noise, samplers) in GROUPS.items():
        for delta in (1e-2, 1e-5):

            def make(
                noise: float = noise, samplers: Any = samplers, delta: float = delta
            ) -> fp.Certificate:
                return unlike_clients(noise, **samplers).certify(1, delta)

            yield Row(f"groups of clients: {name} x delta {delta:g}", make)

    for label, records in {
        "batch": fp.PublicSizes((400, 10, 25), batch=5),
        "rate": fp.PublicSizes((400, 10, 25), rate=0.1),
    }.items():
        for delta in (1e-2, 1e-5):
            make = partial(
                fp.certify,
                dp_sgd(records, 3),
                start(),
                of_sizes((400, 10, 25)),
                3,
                delta,
                each_client=True,
            )
            yield Row(f"clients of public sizes: {label} x delta {delta:g}", make)
    groups = [["x", "y", "y", "y"] * 3, ["y"] * 8, ["x"] * 5]
    for label, numbers in {
        "rate": {"rate": {"x": 0.02, "y": 0.5}},
        "batch": {"batch": {"x": 1, "y": 4}},
    }.items():
        for delta in (1e-2, 1e-5):
            make = partial(
                fp.certify,
                dp_sgd(fp.PublicGroups(groups, **numbers), 3),
                start(),
                of_sizes((12, 8, 5)),
                3,
                delta,
                each_client=True,
            )
            yield Row(f"groups of records: {label} x delta {delta:g}", make)
    yield from _unlike_persons()


def _unlike_persons() -> Iterator[Row]:
    """Of records at clients of unlike sizes, and of clients."""
    owners = np.arange(410)
    owners[:20] = 0  # 20 records at the client of 400; all others have one
    sizes = fp.PublicSizes((400, 10), batch=5)
    for delta in (1e-2, 1e-5):
        make = partial(
            fp.certify, dp_sgd(sizes, 2, 4.0), start(), of_sizes((400, 10), owners), 3, delta
        )
        yield Row(f"persons of unlike records: public sizes x delta {delta:g}", make)
    some = np.array([0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8])
    rows = np.arange(24).reshape(12, 2)
    x = np.arange(72, dtype=np.float32).reshape(-1, 3)
    for name in ("poisson, never cut", "poisson, sometimes cut", "fixed size", "fixed order"):
        of = fp.Federation.from_arrays({"x": x, "y": x[:, 0]}, list(rows), person=some)
        algorithm = averaging(SAMPLINGS[name], fp.gaussian(0.5, 3.0))
        make = partial(fp.certify, algorithm, start(), of, 6, 1e-4)
        yield Row(f"persons of 1 to 3 clients: {name}", make)
