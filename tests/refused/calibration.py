"""Noise, rounds, integers and groups for a target epsilon: what can be refused before anything is searched for."""

import math

from small import blank, sgd, squared, start

import fedpriv as fp
from refused.row import Refusal

COMMON = {"optimizer": sgd, "batches": fp.full_batch()}
TARGET = {"epsilon": 1.0, "delta": 1e-5}
INTEGERS = {"clients": 40, "dimension": 60, "clip_norm": 0.5, "delta": 1e-5, "rounds": 3}
BUDGETS = {"strict": 0.5, "lax": 3.0}


def private(noise, sampler=None):
    sampler = sampler or fp.poisson(60, 0.5, 60)
    return fp.dp_fed_avg(squared, sampler=sampler, clip_norm=1.0, noise_multiplier=noise, **COMMON)


def given():
    return start(), blank(private(1.0), 1)


def noise(make=private, **changes):
    return fp.calibrate_noise(make, *given(), **TARGET | {"rounds": 5} | changes)


def rounds(algorithm=None, **changes):
    return fp.calibrate_rounds(algorithm or private(1.4), *given(), **TARGET | changes)


def together(make):
    return fp.calibrate_together(make, *given(), **TARGET)


def integers(epsilon=2.0, **changes):
    return fp.calibrate_integers(epsilon, **INTEGERS | changes)


def groups(budgets, make=private):
    return fp.calibrate_groups(make, *given(), epsilon=budgets, rounds=20, delta=1e-3)


NOISE = [
    Refusal("noise for epsilon 0", lambda: noise(epsilon=0.0), "epsilon", "0.0"),
    Refusal("noise for any epsilon", lambda: noise(epsilon=math.inf), "epsilon", "inf"),
    Refusal("noise at delta 1", lambda: noise(delta=1.0), "delta", "1.0"),
    Refusal("noise for no rounds", lambda: noise(rounds=0), "rounds", "0"),
    Refusal("no tolerance", lambda: noise(tolerance=0.0), "tolerance", "0.0"),
    Refusal("a tolerance below rounding", lambda: noise(tolerance=1e-17), "tolerance", "1e-17"),
    Refusal("noise towards nobody", lambda: noise(view="phone"), "view", "'phone'"),
    Refusal("an algorithm alone", lambda: noise(private(1.0)), "make", "Algorithm"),
    Refusal("an algorithm in a list's place", lambda: together(private), "runs", "Algorithm"),
]

ROUNDS = [
    Refusal("rounds for less than nothing", lambda: rounds(epsilon=-1.0), "epsilon", "-1.0"),
    Refusal("at most no rounds", lambda: rounds(at_most=0), "at_most", "0"),
    Refusal(
        "rounds by a claim that there is not",
        lambda: rounds(fp.fed_avg(squared, sampler=fp.everyone(60), **COMMON), claimed=True),
        "claimed",
    ),
]

OF_INTEGERS = [
    Refusal("real noise", lambda: integers(noise="gaussian"), "noise", "'gaussian'"),
    Refusal("no clip", lambda: integers(clip_norm=math.inf), "clip_norm", "inf"),
    Refusal("no share left", lambda: integers(honest=0.02), "honest", "0.02", remedy="give 0.025"),
    Refusal("no error at all", lambda: integers(within=1.0), "within", "1.0"),
    Refusal("bits that are a truth value", lambda: integers(bits=True), "bits", "True"),
    Refusal(
        "fewer clients than a sampler draws",
        lambda: integers(clients=5, sampler=fp.fixed_size(50, 10)),
        "clients",
        "5",
        remedy="give 10",
    ),
    Refusal(
        "an accounting in a sampler's place",
        lambda: integers(sampler=fp.everyone(40).accounting),
        "sampler",
        "Everyone",
    ),
]

GROUPS = [
    Refusal("no budgets", lambda: groups({}), "epsilon", "{}"),
    Refusal("a budget twice", lambda: groups({1: 0.5, "1": 3.0}), "epsilon", "1"),
    Refusal("one number for all groups", lambda: groups(1.0), "epsilon", "1.0"),
    Refusal("an infinite budget", lambda: groups({"a": math.inf}), "epsilon['a']", "inf"),
    Refusal("no groups", lambda: groups(BUDGETS, lambda q: private(1.0)), "fp.grouped"),
    Refusal("no algorithm", lambda: groups(BUDGETS, lambda q: 5), "make", "5"),
]

ROWS = [*NOISE, *ROUNDS, *OF_INTEGERS, *GROUPS]
