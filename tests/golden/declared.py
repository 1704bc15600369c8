"""Rows of pure accounting: published numbers, and the ends of the ranges of epsilon and delta."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from golden.rows import Row

import fedpriv as fp


class Seen(NamedTuple):
    """What a view sees of a unit in so many rounds, in plain values.

    Attributes:
      multiplier: of the noise over what zeroing out the unit moves.
      drawn: how the units of a round, or records of a local step, are drawn, and the numbers that say it.
      rounds: how many.
      more: `noise`, `adder`, `local_steps`, and `participation`, which is as `drawn`.
    """

    multiplier: float
    drawn: tuple[Any, ...]
    rounds: int = 1
    more: dict[str, Any] = {}  # noqa: RUF012 - a field, read only


class Case(NamedTuple):
    """A certificate of what is seen."""

    seen: Sequence[Seen]
    delta: float
    view: Literal["third_party", "server", "server_secagg"] = "third_party"
    unit: str = "client"
    honest: float = 1.0
    best_of: float = 1.0


def certified(case: Case) -> fp.Certificate:
    """The only place where plain values become what fedpriv accounts for."""
    seen = [
        fp.privacy.declared(
            case.view,  # type: ignore[arg-type]
            case.unit,  # type: ignore[arg-type]
            each.multiplier,
            _sampling(each.drawn),
            each.rounds,
            **{k: _sampling(v) if k == "participation" else v for k, v in each.more.items()},
            honest=case.honest,
        )
        for each in case.seen
    ]
    return fp.privacy.certify_seen(seen, case.delta, case.view, best_of=case.best_of)


def _sampling(drawn: tuple[Any, ...]) -> fp.privacy.Sampling:
    kinds = {
        "everyone": fp.privacy.Everyone,
        "poisson": fp.privacy.Poisson,  # population, rate, capacity
        "fixed size": fp.privacy.FixedSize,  # population, size
        "with replacement": fp.privacy.WithReplacement,  # population, size, largest rate
        "dropping": fp.privacy.Dropping,  # population, size, rate, whether noise is lost
        "allocation": fp.privacy.Allocation,  # population, block, capacity
    }
    name, *numbers = drawn
    return kinds[name](*numbers)  # type: ignore[return-value]


EVERYONE, SMP, HUNDREDTH = ("everyone", 100), 6000**-1.1, ("poisson", 10_000, 0.01)
SIXTIETH, CUT, FIXED = (
    ("poisson", 6000, 1 / 60),
    ("poisson", 6000, 1 / 60, 140),
    ("fixed size", 6000, 100),
)
LAPLACE = {"noise": "laplace"}
SCAFFOLD = {"adder": "own", "local_steps": 50}
FIFTH = ("poisson", 100, 0.2)

PUBLISHED = {
    "Fed-SMP, poisson": Case([Seen(1.4, SIXTIETH, 180)], SMP),
    "Fed-SMP, poisson, 0.9 honest": Case([Seen(1.4, SIXTIETH, 180)], SMP, honest=0.9),
    "Fed-SMP, capacity 140": Case([Seen(1.4, CUT, 180)], SMP),
    "Fed-SMP, fixed size": Case([Seen(1.4, FIXED, 180)], SMP),
    "Fed-SMP, fixed size, secure aggregation": Case([Seen(1.4, FIXED, 180)], SMP, "server_secagg"),
    "Fed-SMP, poisson, secure aggregation": Case([Seen(1.4, SIXTIETH, 180)], SMP, "server_secagg"),
    "Fed-SMP, everyone": Case([Seen(20.0, ("everyone", 6000), 180)], SMP, "server"),
    "DP-SCAFFOLD, first setting": Case(
        [Seen(120.0, ("fixed size", 4000, 800), 20_000, {"adder": "own"})], 2.5e-6, unit="record"
    ),
    "DP-SCAFFOLD, third setting": Case(
        [Seen(60.0, ("fixed size", 800, 160), 5000, {"adder": "own"})], 1 / 48_000, unit="record"
    ),
    "DP-SCAFFOLD, participation": Case(
        [
            Seen(
                120.0,
                ("fixed size", 4000, 800),
                400,
                {**SCAFFOLD, "participation": ("fixed size", 100, 20)},
            )
        ],
        2.5e-6,
        unit="record",
    ),
    **{
        f"zCDP {rho:g}": Case([Seen((2 * rho) ** -0.5, EVERYONE)], 1e-10)
        for rho in (0.1507, 0.01434, 0.81)
    },
    "tree, squared sensitivity 79": Case([Seen(7 / 79**0.5, EVERYONE)], 1e-10),
    "100 rounds of 1 of 100": Case([Seen(0.05, ("fixed size", 100, 1), 100)], 0.02, "server"),
    "20 steps of one draw": Case(
        [
            Seen(
                1.0,
                ("everyone", 20),
                1,
                {"local_steps": 20, "participation": ("fixed size", 20, 1)},
            )
        ],
        1e-3,
        "server",
    ),
    "Opacus, 2249 steps": Case([Seen(1.5, ("poisson", 10_000, 0.04), 2249)], 1e-5),
    "Opacus, 2250 steps": Case([Seen(1.5, ("poisson", 10_000, 0.04), 2250)], 1e-5),
    "Opacus, noise for epsilon 8": Case([Seen(1.28997, ("poisson", 10_000, 0.04), 2000)], 1e-5),
    "dp-accounting, gaussian": Case([Seen(0.5, FIFTH, 3)], 0.155933),
    "dp-accounting, laplace": Case([Seen(0.5, FIFTH, 3, LAPLACE)], 1e-14),
    "dp-accounting, truncated": Case(
        [Seen(1.0, ("poisson", 4, 0.5, 2), 3), Seen(1.0, ("poisson", 3, 0.5, 2), 2)], 1e-6
    ),
    "TF Privacy, once an epoch": Case([Seen(1.0, ("everyone", 10_000), 5)], 1e-6),
    "TF Privacy, two per user": Case([Seen(0.5, ("everyone", 10_000), 5)], 1e-6),
    "TF Privacy, poisson": Case([Seen(1.0, ("poisson", 10_000, 0.0064), 782)], 1e-6),
    "TF Privacy, two passes": Case([Seen(0.7, ("everyone", 10_000), 2)], 1e-5),
    "TF Privacy, two kinds": Case(
        [Seen(0.4, ("poisson", 10_000, 1e-4), 40_000), Seen(2.0, ("poisson", 10_000, 0.1), 100)],
        1e-5,
    ),
    "prv_accountant, one kind": Case([Seen(100.0, EVERYONE, 10_000)], 4.7122e-5),
    "prv_accountant, two kinds": Case(
        [Seen(10.0, EVERYONE, 50), Seen(5.0, EVERYONE, 50)], 0.0164557
    ),
    "Abadi et al., 100 epochs": Case([Seen(4.0, HUNDREDTH, 10_000)], 1e-5),
    "Abadi et al., 400 epochs": Case([Seen(4.0, HUNDREDTH, 40_000)], 1e-5),
}
MIXED = {
    "laplace, poisson": Case([Seen(3.0, SIXTIETH, 50, LAPLACE)], 1e-6),
    "laplace, everyone": Case([Seen(30.0, EVERYONE, 20, LAPLACE)], 1e-6),
    "laplace, fixed size": Case([Seen(6.0, ("fixed size", 600, 10), 20, LAPLACE)], 1e-6),
    "laplace, cut": Case([Seen(6.0, ("poisson", 100, 0.2, 20), 20, LAPLACE)], 1e-6),
    "laplace, own, known draws": Case(
        [
            Seen(
                3.0,
                EVERYONE,
                50,
                {"noise": "laplace", "adder": "own", "participation": ("poisson", 100, 0.1)},
            )
        ],
        1e-5,
    ),
    "laplace, with replacement": Case(
        [Seen(9.0, ("with replacement", 100, 5, 0.03), 20, LAPLACE)], 1e-4, "server"
    ),
    "laplace, dropping, lost": Case(
        [Seen(9.0, ("dropping", 100, 5, 0.03, True), 20, LAPLACE)], 1e-4
    ),
    "steps by poisson in poisson rounds": Case(
        [
            Seen(
                2.0,
                ("poisson", 80, 0.1),
                30,
                {"local_steps": 20, "participation": ("poisson", 50, 0.2)},
            )
        ],
        1e-5,
        unit="record",
    ),
    "steps of fixed size in rounds of fixed size": Case(
        [
            Seen(
                2.0,
                ("fixed size", 80, 8),
                30,
                {"local_steps": 20, "participation": ("fixed size", 50, 10)},
            )
        ],
        1e-5,
        unit="record",
    ),
    "two kinds": Case([Seen(1.4, SIXTIETH, 180), Seen(20.0, ("everyone", 6000), 3)], SMP),
    "three kinds": Case(
        [
            Seen(1.4, SIXTIETH, 100),
            Seen(2.0, ("poisson", 6000, 1 / 30), 50),
            Seen(20.0, ("everyone", 6000), 3),
        ],
        SMP,
    ),
    "fixed size and everyone": Case([Seen(2.4, FIXED, 30), Seen(8.0, ("everyone", 6000), 3)], SMP),
    "poisson and fixed size": Case([Seen(1.4, SIXTIETH, 3), Seen(1.4, FIXED, 3)], SMP),
    "tiny epsilon": Case([Seen(1e3, ("poisson", 10**8, 1e-5), 1000)], 1e-9),
    "no rounds": Case([Seen(1.4, SIXTIETH, 0)], SMP),
    "no noise": Case([Seen(0.0, SIXTIETH, 3)], SMP),
    "hidden": Case([Seen(math.inf, SIXTIETH, 3)], SMP),
    "too little noise": Case([Seen(1e-5, SIXTIETH, 3)], SMP),
    "no delta": Case([Seen(1.4, SIXTIETH, 3)], 0.0),
}
DRAWN = {
    "everyone": ("everyone", 100),
    "poisson": ("poisson", 1000, 0.02),
    "poisson, cut": ("poisson", 1000, 0.02, 30),
    "fixed size": ("fixed size", 1000, 20),
    "allocation": ("allocation", 1000, 20),
    "dropping, lost": ("dropping", 1000, 20, 0.1, True),
}
NOISES, DELTAS = (0.3, 3.0, 300.0), (1e-2, 1e-5, 1e-9, 1e-30)
BEST_OF = {
    "everyone": ("everyone", 100),
    "poisson": ("poisson", 1000, 0.02),
    "poisson, cut": ("poisson", 1000, 0.02, 30),
    "fixed size": ("fixed size", 1000, 20),
    "allocation": ("allocation", 1000, 20),
    "with replacement": ("with replacement", 100, 5, 0.03),
}


def rows() -> Iterator[Row]:
    """All of them, by name."""
    cases = {f"published: {name}": case for name, case in PUBLISHED.items()}
    cases |= {f"mixed: {name}": case for name, case in MIXED.items()}
    for name, drawn in DRAWN.items():
        for noise in NOISES:
            for delta in DELTAS:
                thin = name not in ("everyone", "poisson") and delta in (1e-2, 1e-9)
                if thin or (noise == 300.0 and delta == 1e-2):
                    continue  # dear, and says what its neighbours say
                cases[f"range: {name} x noise {noise:g} x delta {delta:g}"] = Case(
                    [Seen(noise, drawn, 10)], delta
                )
    for name, drawn in BEST_OF.items():
        cases[f"best of 3: {name}"] = Case([Seen(3.0, drawn, 10)], 1e-5, best_of=3.0)
    cases["best of 3: laplace"] = Case([Seen(9.0, EVERYONE, 10, LAPLACE)], 1e-5, best_of=3.0)
    cases["best of 3: laplace, poisson"] = Case([Seen(9.0, FIFTH, 10, LAPLACE)], 1e-5, best_of=3.0)
    cases["best of 3: server"] = Case([Seen(3.0, EVERYONE, 10)], 1e-5, "server", best_of=3.0)
    for name, case in cases.items():
        yield Row(name, partial(certified, case))
