"""What accountants are asked: draws, releases, certificates, profiles, sensitivities."""

import math
from dataclasses import replace
from functools import partial

import numpy as np

from fedpriv.privacy import (
    Allocation,
    Dropping,
    Everyone,
    FixedSize,
    Poisson,
    Release,
    WithReplacement,
    certify_choice,
    certify_releases,
    joint_multiplier,
    whitened_multiplier,
)
from fedpriv.privacy.integer_sums import IntegerNoise
from fedpriv.privacy.sampling import PersonsDraw
from fedpriv.privacy.strategy_sensitivity import block_sensitivity, sensitivity
from refused.row import Refusal

RARE, FIXED, ALL = Poisson(100, 0.05), FixedSize(100, 5), Everyone(100)
LOST = Dropping(12, 6, 0.25, noise_is_lost=True)
INTEGERS = IntegerNoise("skellam", 10, 9.0, 4, 3)


def release(view="third_party", unit="client", multiplier=1.4, sampling=RARE, rounds=10, **more):
    return Release(view, unit, multiplier, sampling, rounds, **more)


def certified(*releases, delta=1e-5, view="third_party", **more):
    return certify_releases(releases or [release()], delta, view, **more)


def chosen(*settings, best_of=3.0):
    return certify_choice([[each] for each in settings], 1e-5, best_of)


def event_of(noise, sampling):
    made = IntegerNoise(noise, 100, 4.0, 100, 5)
    seen = release(multiplier=made.multiplier, sampling=sampling, noise=noise, integers=made)
    return certified(seen).dp_event()


def profile():
    return certified(release(multiplier=4.0, sampling=ALL)).profile()


DRAWS = [
    Refusal("nobody", lambda: Everyone(0), "population", "0"),
    Refusal("a population that is a truth value", lambda: Everyone(True), "population", "True"),
    Refusal(
        "more than there are", lambda: FixedSize(10, 11), "size", "11", remedy="the population, 10"
    ),
    Refusal("half a unit", lambda: FixedSize(10, 2.5), "size", "2.5"),
    Refusal("a rate of 0", lambda: Poisson(10, 0.0), "rate", "0.0"),
    Refusal("a rate above 1", lambda: Poisson(10, 1.5), "rate", "1.5"),
    Refusal("a rate that is no number", lambda: Poisson(10, math.nan), "rate", "nan"),
    Refusal("no room in a cohort", lambda: Poisson(10, 0.5, 0), "capacity", "0"),
    Refusal("all vanish", lambda: Dropping(12, 6, 1.0), "dropout", "1"),
    Refusal("more vanishing members than there are", lambda: Dropping(12, 13, 0.2), "size", "13"),
    Refusal(
        "more units of a person than there are", lambda: PersonsDraw(RARE, 101), "units", "101"
    ),
    Refusal("blocks of a person", lambda: PersonsDraw(Allocation(20, 4), 2).cases(), "2 units"),
    Refusal("lost shares of a person", lambda: PersonsDraw(LOST, 2).cases(), "2 units"),
]

RELEASES = [
    Refusal("an unknown view", lambda: release("phone"), "view", "'phone'"),
    Refusal("an unknown unit", lambda: release(unit="bit"), "unit", "'bit'"),
    Refusal("less noise than none", lambda: release(multiplier=-1.0), "multiplier", "-1.0"),
    Refusal("noise that is no number", lambda: release(multiplier=math.nan), "multiplier", "nan"),
    Refusal("fewer rounds than none", lambda: release(rounds=-1), "rounds", "-1"),
    Refusal("a rate in the place of a draw", lambda: release(sampling=0.05), "sampling", "0.05"),
    Refusal(
        "real noise of integers",
        lambda: release(multiplier=99.0, sampling=ALL, noise="skellam", integers=INTEGERS),
        "multiplier",
        "99.0",
    ),
    Refusal(
        "local steps among members that vanish",
        lambda: release(sampling=ALL, local_steps=2, participation=LOST),
        "participation",
    ),
    Refusal(
        "lost shares of Laplace noise",
        lambda: release(sampling=LOST, noise="laplace"),
        "noise",
        "'laplace'",
    ),
    Refusal(
        "lost shares of Laplace noise of rounds",
        lambda: release(sampling=ALL, participation=LOST, noise="laplace"),
        "noise",
        "'laplace'",
    ),
    *(
        Refusal(
            f"noise of a sum, by {adder}, towards who sees every message",
            partial(release, "server", sampling=FIXED, adder=adder),
            "view",
            "'server'",
        )
        for adder in ("enclave", "own_summed")
    ),
]

CERTIFICATES = [
    Refusal("delta 0", lambda: certified(delta=0.0), "delta", "0.0"),
    Refusal("delta 1", lambda: certified(delta=1.0), "delta", "1.0"),
    Refusal("a certificate of an unknown view", lambda: certified(view="phone"), "view", "'phone'"),
    Refusal("a view that sees nothing", lambda: certified(view="server"), "view", "'server'"),
    *(
        Refusal(f"{h} honest", partial(certified, honest=h), "honest", str(h))
        for h in (0.0, -0.5, 1.1, math.nan)
    ),
    Refusal(
        "two units", lambda: certified(release(), release(unit="record")), "unit", "'client', 'rec"
    ),
    Refusal(
        "two adjacencies",
        lambda: certified(release(), release(sampling=FIXED)),
        "sampling",
        "['FixedSize', 'Poisson']",
        remedy="draw all cohorts the same way",
    ),
    *(
        Refusal(
            f"draws with replacement beside {other}",
            lambda other=other: certified(
                release(sampling=WithReplacement(100, 1, 0.01)), release(sampling=other)
            ),
            "sampling",
            "zero-out",
        )
        for other in (RARE, FIXED)
    ),
    Refusal("the best of half a run", lambda: certified(best_of=0.5), "best_of", "0.5"),
    Refusal(
        "the best run towards a server",
        lambda: certified(release("server"), view="server", best_of=3),
        "view",
        "'server'",
    ),
    Refusal(
        "the best run with Laplace noise",
        lambda: certified(release(noise="laplace"), best_of=3),
        "best_of",
        "3",
    ),
    Refusal(
        "the best run of blocks",
        lambda: certified(release(sampling=Allocation(100, 10)), best_of=2.0),
        "best_of",
        "2",
    ),
    Refusal(
        "the best run of lost shares",
        lambda: certified(release(sampling=LOST), best_of=2.0),
        "best_of",
        "2",
    ),
    Refusal("the best of one", lambda: chosen(release(), best_of=1.0), "best_of", "1.0"),
    Refusal(
        "a choice among two adjacencies",
        lambda: chosen(release(), release(sampling=FIXED)),
        "relation",
        "['add_or_remove', 'replace_one']",
    ),
    *(
        Refusal(
            f"an event of {noise} noise, of {drawn}",
            lambda noise=noise, drawn=drawn: event_of(noise, drawn),
            "integers",
            "noise_multiplier=2",
        )
        for noise, drawn in (("skellam", ALL), ("discrete_gaussian", ALL))
    ),
]

PROFILES = [
    Refusal("a negative epsilon", lambda: profile().delta(-1.0), "epsilon", "-1.0"),
    Refusal("the epsilon at 0", lambda: profile().epsilon(0.0), "delta", "0.0"),
    Refusal(
        "more false positives than there are",
        lambda: profile().false_negative_rate(1.5),
        "false_positive_rate",
        "1.5",
    ),
    Refusal(
        "a profile of a certificate from a file",
        lambda: replace(certified(), compositions=()).profile(),
        "certificate",
        "read from a file",
    ),
]

SENSITIVITIES = [
    Refusal("no separation", lambda: sensitivity(np.eye(2), 0), "separation", "0"),
    Refusal("never", lambda: sensitivity(np.eye(2), 1, 0), "most", "0"),
    Refusal("a vector", lambda: sensitivity(np.ones(2), 1), "strategy", "float64[2]"),
    Refusal("not finite", lambda: sensitivity(np.full((2, 2), np.nan), 1), "strategy"),
    Refusal("no rounds", lambda: sensitivity(np.ones((2, 0)), 1), "strategy"),
    Refusal("blocks of no rounds", lambda: block_sensitivity(np.eye(2), 0), "block", "0"),
    Refusal("blocks of a vector", lambda: block_sensitivity(np.ones(2), 1), "strategy"),
    Refusal("negative noise", lambda: whitened_multiplier(-1.0, 1.0), "noise_std", "-1.0"),
    Refusal("nothing to clip to", lambda: whitened_multiplier(1.0, 0.0), "clip_norm", "0.0"),
    Refusal(
        "an infinite map", lambda: whitened_multiplier([1.0], 1.0, [[math.inf]]), "transform", "inf"
    ),
    Refusal(
        "a map of another size",
        lambda: whitened_multiplier([1.0, 1.0], 1.0, [[1.0]]),
        "transform",
        "[[1.0]]",
    ),
    Refusal("a negative multiplier", lambda: joint_multiplier([-1]), "multiplier", "-1"),
]

ROWS = [*DRAWS, *RELEASES, *CERTIFICATES, *PROFILES, *SENSITIVITIES]
