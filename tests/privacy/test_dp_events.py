"""An event that a certificate hands over is computed by the accountant of dp-accounting that is named beside it."""

from dataclasses import replace

import pytest
import tiers
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from drawn_by_hand import seen_by_hand
from small import refused

from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.privacy import (
    Allocation,
    Certificate,
    Dropping,
    Everyone,
    FixedSize,
    Poisson,
    Who,
    WithReplacement,
    certify_seen,
    declared,
)
from fedpriv.privacy.certify import among, certify_choice
from fedpriv.privacy.drawn import Drawn
from fedpriv.privacy.played import plays_of

DELTA = 1e-5
ACCOUNTANTS = {"PLD": PLDAccountant, "RDP": RdpAccountant}
PLD, RDP = ACCOUNTANTS
LOOSER = {"cut": 1e-3, "often cut": 0.2}
"""How far dp-accounting's privacy losses are above ours at most; it takes a unit replaced where a cohort is cut."""
TOLD, REPLACED = "told which of several cases", "a unit is replaced, and not by a uniform subset"


def release(multiplier, sampling, rounds, view="third_party", unit="client", **more):
    return declared(view, unit, multiplier, sampling, rounds, **more)


def laplace(multiplier, sampling, rounds):
    return release(multiplier, sampling, rounds, noise="laplace")


def persons(multiplier, sampling, rounds, **more):
    return seen_by_hand(Drawn(sampling, Who(units=3)), multiplier, rounds, unit="person", **more)


def integers(kind, view="server_secagg"):
    noise = IntegerNoise(kind, 10, 30.0, 60, 100)
    return release(noise.multiplier, ALL, 3, view, noise=kind, integers=noise)


POISSON, FIXED, ALL = Poisson(100, 0.1), FixedSize(100, 10), Everyone(100)
REMEMBERING = Drawn(Poisson(100, 0.1, 40), Who(remembers=True))
CUT = Drawn(Poisson(100, 0.1, 12))
LOCAL = release(3.0, ALL, 4, "server", "record", local_steps=5, participation=Everyone(7))
WITHIN = release(2.0, POISSON, 3, unit="record", participation=FIXED)
BEST = {"best_of": 5.0}

COMPUTED = {
    "several draws": (PLD, [release(1.4, POISSON, 6), release(2.0, Poisson(100, 0.2), 3)]),
    "several": (PLD, [release(1.4, POISSON, 6), release(4.0, ALL, 3)]),
    "fixed size and everyone": (RDP, [release(2.4, FIXED, 30), release(8.0, ALL, 3)]),
    "everyone": (PLD, [release(3.0, ALL, 20)]),
    "a server that knows that all take part": (PLD, [release(3.0, FixedSize(9, 9), 9, "server")]),
    "local steps": (PLD, [LOCAL]),
    "Poisson": (PLD, [release(1.4, POISSON, 10)]),
    "Poisson, a record taken away": (
        PLD,
        [among(release(1.4, POISSON, 10, unit="record"), "emptied")],
    ),
    "Laplace": (PLD, [laplace(10.0, ALL, 10)]),
    "Laplace, sampled": (PLD, [laplace(4.0, POISSON, 10)]),
    "honest members": (PLD, [release(4.0, POISSON, 10, honest=0.5)]),
    "persons": (PLD, [persons(4.0, POISSON, 10)]),
    "cut": (PLD, [release(1.4, Poisson(100, 0.1, 25), 3)]),
    "often cut": (PLD, [release(1.4, Poisson(100, 0.1, 12), 30)]),
    "never cut": (PLD, [release(1.4, Poisson(6000, 1 / 60, 674), 5)]),
    "fixed size": (RDP, [release(2.0, FIXED, 30)]),
    "fixed size that is all": (RDP, [release(3.0, FixedSize(9, 9), 9)]),
    "the best run": (RDP, [release(1.4, POISSON, 30)], BEST),
    "the best run, of fixed size": (RDP, [release(4.0, FIXED, 30)], BEST),
    "nothing": (PLD, [release(2.0, ALL, 0)]),
    "everything": (PLD, [release(0.0, ALL, 3)]),
}
REFUSED = {
    "known cohorts": (TOLD, [release(2.0, POISSON, 3, "server")]),
    "with replacement": (TOLD, [release(2.0, WithReplacement(100, 4, 0.02), 3)]),
    "cut, and it remembers": (TOLD, [seen_by_hand(REMEMBERING, 2.0, 3)]),
    "cut, and it stays": (TOLD, [among(seen_by_hand(CUT, 2.0, 3), "emptied")]),
    "draws within draws": (TOLD, [WITHIN]),
    "persons, cut": (TOLD, [persons(4.0, Poisson(100, 0.1, 12), 5)]),
    "persons, and Laplace": ("several units may be", [persons(4.0, POISSON, 5, noise="laplace")]),
    "Laplace of fixed size": (REPLACED, [laplace(9.0, FIXED, 3)]),
    "dropping": (REPLACED, [release(2.0, Dropping(100, 10, 0.2), 3)]),
    "persons of fixed size": (REPLACED, [persons(4.0, FIXED, 10)]),
    "Poisson, one replaced": (
        REPLACED,
        [among(seen_by_hand(Drawn(POISSON, Who(stays=True)), 2.0, 3), "replaced")],
    ),
    "blocks": ("one round of a block", [release(2.0, Allocation(100, 4), 3)]),
    "discrete Gaussians": ("of integers", [integers("discrete_gaussian")]),
    "Skellam": ("of integers", [integers("skellam")]),
    "cut, and Laplace": ("cohorts are cut", [laplace(4.0, Poisson(100, 0.1, 25), 3)]),
    "the best run of cut ones": (
        "none of its accountants computes all",
        [release(1.4, Poisson(100, 0.1, 25), 30)],
        BEST,
    ),
    "the best run, of integers": ("of integers", [integers("skellam", "third_party")], BEST),
}


def certified(releases, options=None):
    return certify_seen(releases, DELTA, releases[0].view, **(options or {}))


def told_apart_by(entry):
    """Who computes it, how units are drawn first, the noise, and whether a run is chosen."""
    named, (first, *_), *options = entry
    drawn = plays_of(first).drawn
    cut = getattr(drawn, "can_be_cut", False)
    return named, type(drawn), cut, drawn.everyone, plays_of(first).noise, options == [BEST]


@tiers.every("name", COMPUTED, kind=told_apart_by)
def test_an_event_is_computed_to_what_is_promised(name):
    """Privacy losses are rounded up by both, on grids of their own; dp-accounting's has steps of 1e-3 here."""
    named, *given = COMPUTED[name]
    certificate = certified(*given)
    event, relation, accountant = certificate.dp_event()
    assert accountant == named
    assert Certificate.from_json(certificate.to_json()).dp_event() == (event, relation, accountant)
    grid = {"value_discretization_interval": 1e-3} if accountant == PLD else {}
    how = ACCOUNTANTS[accountant](neighboring_relation=relation, **grid)
    found, promised = how.compose(event).get_epsilon(DELTA), certificate.epsilons.get(accountant)
    if promised is None:
        assert found == certificate.epsilon in (0.0, float("inf"))
    elif accountant == RDP:
        assert found == pytest.approx(promised, rel=1e-6)
    else:
        assert promised <= found <= promised * (1 + LOOSER.get(name, 1e-4))


@tiers.every("name", REFUSED, kind=lambda entry: (entry[0], plays_of(entry[1][0]).kind))
def test_what_no_accountant_computes_is_refused(name):
    """In a line that says why, and what to do."""
    why, *given = REFUSED[name]
    certificate = certified(*given)
    assert 0 < certificate.epsilon < float("inf")
    with refused(f"dp-accounting has no event for .*: .*{why}.*; check it with fp.verify"):
        certificate.dp_event()


def test_settings_and_kinds_of_unit_have_an_event_each():
    settings = [[release(sigma, POISSON, 30)] for sigma in (1.4, 1.2)]
    with refused("runs have settings of their own; give that of one setting"):
        certify_choice(settings, DELTA, 3.0).dp_event()
    one = certified([release(3.0, ALL, 20)])
    with refused("of 2 kinds of unit, and an event is of one; give that of each, "):
        replace(one, compositions=2 * one.compositions).dp_event()
    groups = replace(one, compositions=2 * one.compositions, of_groups={"a": one, "b": one})
    with refused("give that of each group"):
        groups.dp_event()
