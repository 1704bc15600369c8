"""What is calibrated or certified together: what can be refused before anything is searched for or traced."""

import math
from functools import partial

from small import blank, regression, sgd, squared, start

import fedpriv as fp

COMMON = {"optimizer": sgd, "batches": fp.full_batch()}
TARGET = {"epsilon": 1.0, "delta": 1e-5}
INTEGERS = {"clients": 40, "dimension": 60, "clip_norm": 0.5, "delta": 1e-5, "rounds": 3}
BUDGETS = {"strict": 0.5, "lax": 3.0}


def private(noise, sampler=None):
    sampler = sampler or fp.poisson(60, 0.5, 60)
    return fp.dp_fed_avg(squared, sampler=sampler, clip_norm=1.0, noise_multiplier=noise, **COMMON)


MADE, GIVEN = private(1.0, fp.everyone(3)), (start(), blank(private(1.0), 1))


def noise(make=private, **changes):
    return partial(fp.calibrate_noise, make, *GIVEN, **TARGET | {"rounds": 5} | changes)


def claimed():
    plain = fp.fed_avg(squared, sampler=fp.everyone(60), **COMMON)
    fp.calibrate_rounds(plain, *GIVEN, **TARGET, claimed=True)


def integers(**changes):
    return partial(fp.calibrate_integers, 2.0, **INTEGERS | changes)


def groups(budgets, make=private):
    how = {"epsilon": budgets, "rounds": 20, "delta": 1e-3}
    return partial(fp.calibrate_groups, make, *GIVEN, **how)


def together(runs):
    return partial(fp.certify_together, runs, start(), regression([3] * 3), 1e-3)


ONE, SEVERAL = "give (algorithm, rounds)", "give a list; for each run give (algorithm, rounds)"
ROWS = [
    ("a tolerance below rounding", noise(tolerance=1e-17), "tolerance", "1e-17"),
    ("an algorithm alone", noise(MADE), "make", "Algorithm"),
    (
        "an algorithm in a list's place",
        lambda: fp.calibrate_together(private, *GIVEN, **TARGET),
        "runs",
        "Algorithm",
    ),
    ("rounds by a claim that there is not", claimed, "claimed", "no claim"),
    ("no share left", integers(honest=0.02), "honest", ("0.02", "give 0.025")),
    (
        "fewer clients than a sampler draws",
        integers(clients=5, sampler=fp.fixed_size(50, 10)),
        "clients",
        ("5", "give 10"),
    ),
    ("an accounting", integers(sampler=fp.everyone(40).accounting), "sampler", "Everyone"),
    ("no budgets", groups({}), "epsilon", "{}"),
    ("a budget twice", groups({1: 0.5, "1": 3.0}), "epsilon", "1"),
    ("one number for all groups", groups(1.0), "epsilon", "1.0"),
    ("an infinite budget", groups({"a": math.inf}), "epsilon['a']", "inf"),
    ("no algorithm", groups(BUDGETS, lambda q: 5), "make", "5"),
    ("no runs", together([]), "runs", ("[]", SEVERAL)),
    ("an algorithm in the place of runs", together(MADE), "runs", ("Algorithm", SEVERAL)),
    ("a number in the place of runs", together(3), "runs", "3"),
    ("one run that is no list", together((MADE, 3)), "runs[0]", ("Algorithm", ONE)),
    ("a number among runs", together([(MADE, 3), 4]), "runs[1]", "4"),
    ("a run without rounds", together([(MADE,)]), "runs[0]", ("type tuple", ONE)),
    ("a run of too much", together([(MADE, 1, start(), 2)]), "runs[0]", ("type tuple", ONE)),
    ("a loss that runs", together([(squared, 3)]), "runs[0][0]", "squared"),
    ("negative rounds", together([(MADE, 3), (MADE, -1)]), "rounds of runs[1]", "-1"),
    ("half a round", together([(MADE, 2.5)]), "rounds of runs[0]", "2.5"),
]
LATE = [("no groups", groups(BUDGETS, lambda q: private(1.0)), "make", "fp.grouped")]
