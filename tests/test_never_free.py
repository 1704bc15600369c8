"""What was once counted as too little, or as nothing: each is refused, or costs what it shows."""

from dataclasses import dataclass

import numpy as np
import pytest
from small import refused, start
from test_person_certificates import DELTA, RECORDS, N, by_client, by_record, federation, patients

import fedpriv as fp
from fedpriv.experiments.search.best_of import _choice
from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.privacy import Allocation, Case, Everyone, Poisson, Sampling, certify_seen, declared
from fedpriv.privacy.drawn import Drawn
from fedpriv.privacy.noisy_integers import NoisyIntegers
from fedpriv.privacy.sampling import AcrossGroups, Who

PAIR = federation(np.array([0, 0, *range(1, N - 1)]))
LABELS = [*"ab"] * 6
APART = {"a": fp.poisson(6, 0.25, 6), "b": fp.poisson(6, 0.5, 6)}


def certified(sampler, of=PAIR):
    return fp.trace_round(by_client(sampler), start(), of).certify(5, DELTA)


def test_what_has_no_pair_is_not_free_beside_others():
    own = {"participation": Allocation(20, 4, 8)}
    none = declared("third_party", "client", 5.0, Poisson(20, 0.2, 6), 1, **own)
    other = declared("third_party", "client", 0.5, Everyone(20), 1)
    with refused("nothing is proved of all of it"):
        certify_seen([none, other], DELTA, "third_party")


@pytest.mark.parametrize("drawn", [fp.poisson(N, 0.25, 6), fp.fixed_size(N, 6)])
def test_groups_of_one_draw_are_not_independent(drawn):
    with refused("one draw of all groups"):
        certified(fp.grouped(LABELS, drawn))


@pytest.mark.parametrize("then", [fp.poisson(N, 0.25, 4), fp.everyone(N)])
def test_the_groups_of_an_opening_are_not_those_of_what_follows(then):
    with refused("its parts have other groups"):
        certified(fp.Opening(fp.grouped(LABELS, APART), 2, then))


@pytest.mark.parametrize("other", [by_record(records=fp.everyone(RECORDS)), by_client()])
def test_runs_of_other_groups_are_not_certified_together(other):
    runs = [(other, 5), (by_client(fp.grouped(LABELS, APART)), 1)]
    with refused("a person's clients are in groups, or take turns, in some of them"):
        fp.certify_together(runs, start(), patients(5, 3), DELTA)


def test_points_of_other_groups_are_no_choice():
    traced = [
        fp.trace_round(by_client(fp.grouped([*labels], APART)), start(), federation())
        for labels in ("ab" * 6, "abbbbbbaaaaa")
    ]
    (one, other) = traced
    with refused("others are drawn by other groups"):
        _choice([(one, 5), (other, 5)], DELTA, 4.0)
    choice = _choice([(one, 5)], DELTA, 4.0)
    for kind in one.kinds:
        own = one.certify(5, DELTA, best_of=4.0, kind=kind)
        assert choice.of_groups[kind.group].epsilon == own.epsilon
    assert choice.epsilon == max(own.epsilon for own in choice.of_groups.values())
    assert choice.basis == "constructed"


@dataclass(frozen=True)
class Odd(Sampling):
    """Cases of somebody's own, which may not look at whom they are asked of."""

    population: int
    told: tuple[Case, ...]
    most = property(lambda self: self.population)

    def cases(self, neighbour, who):
        return self.told

    def words(self, neighbour):
        return ()


@pytest.mark.parametrize(
    "told",
    [(Case(1.0, ((1.0, 0.25),)),), (Case(0.5, ((1.0, 1.0),)), Case(0.5, ((1.0, 1.0),), 3.0))],
)
def test_cases_that_forget_of_whom_they_speak_are_refused(told):
    """Of two units as of one; or of a distance that a view that is told them would not see."""
    with refused("Odd.cases"):
        declared("third_party", "client", 2.0, Odd(12, told), 3)


def test_integers_of_units_in_several_groups_are_one_longer_sum():
    noise = NoisyIntegers(IntegerNoise("skellam", 1, 1.0, 4, 3))
    of_all = Drawn(Everyone(6), Who(units=2), True, True)
    groups = Drawn(AcrossGroups(((Everyone(3), 1, 1.0),) * 2, True), Who(), True, True)
    assert groups.pairs(noise).zeroed == of_all.pairs(noise).zeroed
