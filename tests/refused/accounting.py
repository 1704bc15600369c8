"""What accountants are asked: draws, what is seen, certificates, profiles, sensitivities."""

import math
from dataclasses import replace
from functools import partial

import numpy as np

from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.privacy import (
    Allocation,
    Certificate,
    Dropping,
    Everyone,
    FixedSize,
    Poisson,
    WithReplacement,
    certify_choice,
    certify_seen,
    declared,
    joint_multiplier,
    whitened_multiplier,
)
from fedpriv.privacy.drawn import Drawn, Repeated
from fedpriv.privacy.rows import Row
from fedpriv.privacy.sampling import Who
from fedpriv.privacy.strategy_sensitivity import block_sensitivity, sensitivity
from fedpriv.proof.cases import Noisy
from fedpriv.proof.row import seen_of

RARE, FIXED, ALL = Poisson(100, 0.05), FixedSize(100, 5), Everyone(100)
LOST = Dropping(12, 6, 0.25, noise_is_lost=True)
TWICE = WithReplacement(100, 1, 0.01)
BLOCKS = Allocation(20, 4)
INTEGERS = IntegerNoise("skellam", 10, 9.0, 4, 3)


def seen(view="third_party", unit="client", multiplier=1.4, sampling=RARE, rounds=10, **more):
    return declared(view, unit, multiplier, sampling, rounds, **more)


def certified(*all_seen, delta=1e-5, view="third_party", **more):
    return certify_seen(all_seen or [seen()], delta, view, **more)


def best(of=3.0, **more):
    return certified(seen(**more), best_of=of)


def laplace(**by):
    return certified(seen(noise="laplace", **by))


def of_a_person(sampling, known=False):
    """With two units."""
    drawn = Drawn(sampling, Who(2, lost=sampling.lossy), known)
    row = Row("third_party", "person", Noisy("gaussian"), "shares", drawn, Repeated(10))
    return certified(seen_of(row))


def chosen(*settings, best_of=3.0):
    return certify_choice([[each] for each in settings], 1e-5, best_of)


def event_of(noise):
    made = IntegerNoise(noise, 100, 4.0, 100, 5)
    shown = seen(multiplier=made.multiplier, sampling=ALL, noise=noise, integers=made)
    return certified(shown).dp_event()


def profile():
    return certified(seen(multiplier=4.0, sampling=ALL)).profile()


def of_integers():
    seen(multiplier=99.0, sampling=ALL, noise="skellam", integers=INTEGERS)


def steps_of_who_vanishes():
    seen(sampling=FIXED, local_steps=2, participation=LOST)


def read_back(old="", new=""):
    """The certificate that is written, of which this is another."""
    return Certificate.from_json(certified().to_json().replace(old, new))


def without_compositions():
    return replace(certified(), compositions=()).profile()


ROWS = [
    (
        "more than there are",
        lambda: FixedSize(10, 11),
        "size",
        ("11", "at most the population, 10"),
    ),
    ("blocks of a person", lambda: of_a_person(BLOCKS), "sampling", ("2 units", "per_person=1")),
    ("lost shares of a person", lambda: of_a_person(LOST), "sampling", ("2 units", "per_person=1")),
    ("blocks of one who is known", lambda: of_a_person(BLOCKS, True), "sampling", "2 units"),
    ("lost shares of one who is known", lambda: of_a_person(LOST, True), "sampling", "2 units"),
    ("a rate in the place of a draw", lambda: seen(sampling=0.05), "sampling", "0.05"),
    ("real noise of integers", of_integers, "multiplier", ("99.0", "4.743416")),
    ("steps of members that vanish", steps_of_who_vanishes, "participation", "type Dropping"),
    ("two units", lambda: certified(seen(), seen(unit="record")), "unit", "'client'"),
    ("a view that sees nothing", lambda: certified(view="server"), "view", "'server'"),
    (
        "the best run towards a server",
        lambda: certified(seen("server"), view="server", best_of=3),
        "view: 'server'",
        "leave best_of out",
    ),
    ("the best run with Laplace noise", lambda: best(noise="laplace"), "best_of", "3"),
    ("the best run of blocks", lambda: best(2.0, sampling=Allocation(100, 10)), "best_of", "2"),
    ("the best run of lost shares", lambda: best(2.0, sampling=LOST), "best_of", "2"),
    ("the best of one", lambda: chosen(seen(), best_of=1.0), "best_of", "1.0"),
    ("a negative epsilon", lambda: profile().delta(-1.0), "epsilon", "-1.0"),
    (
        "more false positives than there are",
        lambda: profile().false_negative_rate(1.5),
        "false_positive_rate",
        "1.5",
    ),
    ("a profile of what was read", without_compositions, "certificate", "read from a file"),
    ("half a certificate", lambda: Certificate.from_json("{"), "certificate", ("'{'", "JSON")),
    ("a certificate of later", lambda: read_back('"version": 1', '"version": 2'), "version", "2"),
    ("a pair of another kind", lambda: read_back("moved", "mowed"), "compositions.pair", "mowed"),
    ("a draw of nobody", lambda: read_back('"n": 10', '"n": 0'), "compositions.pair: n", "0"),
    ("a pair as a witness", lambda: read_back("grid", "all"), "compositions.witness", "all"),
    ("never", lambda: sensitivity(np.eye(2), 1, 0), "most", "0"),
    ("blocks of no rounds", lambda: block_sensitivity(np.eye(2), 0), "block", "0"),
    ("negative noise", lambda: whitened_multiplier(-1.0, 1.0), "noise_std", "-1.0"),
    ("a negative multiplier", lambda: joint_multiplier([-1]), "multiplier", "-1"),
]
for by in ({"sampling": LOST}, {"sampling": ALL, "participation": LOST}):
    lost = partial(laplace, **by)
    ROWS.append((f"lost shares of Laplace noise, {[*by]}", lost, "sampling", "no longer Laplace"))
for adder in ("enclave", "own_summed"):
    shown = partial(seen, "server", sampling=FIXED, adder=adder)
    ROWS.append((f"noise of a sum, by {adder}, towards who sees all", shown, "view", "'server'"))
ANOTHER = "another unit takes the place of one that is not there"
HIDDEN, SHOWN = (
    "how many units there are is hidden",
    "how often each unit is drawn is taken to be known",
)
for one, other, reasons in (
    (RARE, FIXED, (f"removed: {ANOTHER}", f"replaced: {HIDDEN}")),
    (TWICE, RARE, ("zeroed: that it is secret", f"replaced: {SHOWN}")),
    (TWICE, FIXED, (f"and {ANOTHER}", f"replaced: {SHOWN}")),
):
    two = partial(certified, seen(sampling=one), seen(sampling=other))
    ROWS.append((f"{one} and {other}", two, "sampling", reasons))
for noise in ("skellam", "discrete_gaussian"):
    said = (f"10 x {noise}", "of integers")
    ROWS.append((f"an event of {noise} noise", partial(event_of, noise), "certificate", said))
for matrix in (np.ones(2), np.full((2, 2), np.nan), np.ones((2, 0))):
    shape = f"float64{[*matrix.shape]}"
    ROWS.append((shape, partial(sensitivity, matrix, 1), "strategy", shape))
for noise, transform in (([1.0], [[math.inf]]), ([1.0, 1.0], [[1.0]])):
    mapped = partial(whitened_multiplier, noise, 1.0, transform)
    ROWS.append((f"a map of {transform}", mapped, "transform", f"{transform}"))
LATE = [
    (
        "a choice among two adjacencies",
        lambda: chosen(seen(), seen(sampling=FIXED)),
        "relation",
        "['add_or_remove', 'replace_one']",
    ),
]
