"""Rows of budgets: the noise, rounds, numbers of groups and integers that an epsilon allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import every_algorithm
from golden.clients import GAUSSIAN, SAMPLINGS, averaging, federation
from golden.rows import Row
from golden.runs import MEANS
from golden.unlike import blank, dp_sgd
from small import start

import fedpriv as fp


def poisson_of(noise: float) -> fp.Algorithm:
    return averaging(SAMPLINGS["poisson, never cut"], fp.gaussian(0.5, noise))


def fixed_of(noise: float) -> fp.Algorithm:
    return averaging(SAMPLINGS["fixed size"], fp.gaussian(0.5, noise))


def laplace_of(noise: float) -> fp.Algorithm:
    return averaging(SAMPLINGS["everyone"], fp.laplace(0.5, noise))


def bare_of(noise: float) -> fp.Algorithm:
    return MEANS["bare"]


def claimed_of(noise: float) -> fp.Algorithm:
    return every_algorithm.MAKERS["dp_fed_avg"](noise_multiplier=noise)


def calibrated() -> Iterator[Row]:
    """Noise, rounds and runs for a budget."""
    of: dict[str, tuple[Callable[[float], fp.Algorithm], dict[str, Any]]] = {
        "poisson": (poisson_of, {}),
        "poisson, secure aggregation, 0.5 honest": (
            poisson_of,
            {"view": "server_secagg", "honest": 0.5},
        ),
        "fixed size": (fixed_of, {}),
        "laplace, everyone": (laplace_of, {}),
        "bare": (bare_of, {}),
    }
    for name, (make, options) in of.items():
        found = partial(
            fp.calibrate_noise,
            make,
            start(),
            federation(None),
            epsilon=2.0,
            rounds=6,
            delta=1e-4,
            **options,
        )
        yield Row(f"calibrated noise: {name}", found)
    yield Row(
        "calibrated noise: claimed",
        partial(
            fp.calibrate_noise,
            claimed_of,
            every_algorithm.PARAMS,
            every_algorithm.FEDERATION,
            epsilon=2.0,
            rounds=6,
            delta=1e-4,
            claimed=True,
        ),
    )
    for name in ("poisson", "fixed size", "everyone", "fixed order", "skellam", "bare"):
        yield Row(
            f"calibrated rounds: {name}",
            partial(
                fp.calibrate_rounds,
                MEANS[name],
                start(),
                federation(None),
                epsilon=6.0,
                delta=1e-4,
                at_most=200,
            ),
        )

    def runs(noise: float) -> list[tuple[fp.Algorithm, int]]:
        return [(MEANS["everyone"], 1), (poisson_of(noise), 5)]

    for epsilon in (1.0, 4.0):
        yield Row(
            f"calibrated together: epsilon {epsilon:g}",
            partial(
                fp.calibrate_together, runs, start(), federation(None), epsilon=epsilon, delta=1e-4
            ),
        )


LABELS = ["strict", "lax"] * 15


def by_rate(q: dict[str, float]) -> fp.Algorithm:
    return averaging(fp.grouped(LABELS, {g: fp.poisson(15, q[g]) for g in q}), GAUSSIAN)


def by_weight(w: dict[str, float]) -> fp.Algorithm:
    drawn = dict.fromkeys(w, fp.poisson(15, 0.4))
    return averaging(fp.grouped(LABELS, drawn, weights=w), GAUSSIAN)


def by_clip_scale(s: dict[str, float]) -> fp.Algorithm:
    return averaging(fp.grouped(LABELS, fp.fixed_order(30, 6), clip_scales=s), GAUSSIAN)


def by_record(q: dict[str, float]) -> fp.Algorithm:
    return dp_sgd(fp.PublicGroups([["strict", "lax"]] * 30, rate=q), 30)


def calibrated_groups() -> Iterator[Row]:
    """A number of each group for its own budget."""
    for name, make in {
        "rates": by_rate,
        "weights": by_weight,
        "clip scales": by_clip_scale,
        "rates of records": by_record,
    }.items():
        yield Row(
            f"calibrated groups: {name}",
            partial(
                fp.calibrate_groups,
                make,
                start(),
                blank(30),
                epsilon={"strict": 0.5, "lax": 2.0},
                rounds=10,
                delta=1e-3,
            ),
        )


INTEGERS: dict[str, dict[str, Any]] = {
    "dimension 1": {"epsilon": 20.0, "clients": 1000, "dimension": 1, "rounds": 5, "within": 1.2},
    "dimension 2": {"epsilon": 5.0, "clients": 100, "dimension": 2, "rounds": 5},
    "dimension 130": {"epsilon": 5.0, "clients": 100, "dimension": 130, "rounds": 5},
    "dimension 1000, skellam": {
        "epsilon": 5.0,
        "clients": 100,
        "dimension": 1000,
        "rounds": 5,
        "noise": "skellam",
    },
    "dimension 1, skellam": {
        "epsilon": 2.0,
        "clients": 100,
        "dimension": 1,
        "noise": "skellam",
    },
    "18 bits": {"epsilon": 5.0, "clients": 100, "dimension": 1000, "rounds": 5, "bits": 18},
    "too few bits": {"epsilon": 5.0, "clients": 100, "dimension": 1000, "rounds": 5, "bits": 4},
    "fixed size": {
        "epsilon": 2.0,
        "clients": 50,
        "dimension": 130,
        "rounds": 10,
        "sampler": fp.fixed_size(500, 50),
        "view": "third_party",
    },
    "poisson, skellam": {
        "epsilon": 2.0,
        "clients": 80,
        "dimension": 130,
        "rounds": 10,
        "sampler": fp.poisson(500, 0.1, 80),
        "view": "third_party",
        "noise": "skellam",
        "bits": 20,
    },
    "0.5 honest": {"epsilon": 5.0, "clients": 100, "dimension": 130, "rounds": 5, "honest": 0.5},
}


def integers(**given: Any) -> tuple[dict[str, Any], fp.Certificate]:
    """What was found, and its certificate."""
    found = fp.calibrate_integers(**{"clip_norm": 1.0, "delta": 1e-5} | given)
    numbers = ("bits", "noise_multiplier", "scale", "squared_norm", "share_deviation")
    more = ("noise_deviation", "error_ratio", "wrap_probability")
    return {name: getattr(found, name) for name in (*numbers, *more)}, found.certificate


def rows() -> Iterator[Row]:
    """All of them."""
    yield from calibrated()
    yield from calibrated_groups()
    for name, given in INTEGERS.items():
        yield Row(f"calibrated integers: {name}", partial(integers, **given))
