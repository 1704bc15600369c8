"""Pairs: laws of random trees, dp-accounting's distributions of them, and what is no pair."""

import json
import math

import numpy as np
import pytest
from random_pairs import beside_dp_accounting, larger, trees

from fedpriv.experiments.accounting.verifying import LEAST_DELTA
from fedpriv.pairs.blocks import Block
from fedpriv.pairs.divergences import Orders
from fedpriv.pairs.end_of_run import Best, Slack
from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.pairs.large_losses import DirectionApart
from fedpriv.pairs.pieces import together
from fedpriv.pairs.search import by_divergences, by_losses, epsilon
from fedpriv.pairs.separations import Rounded, epsilon_of_mixture
from fedpriv.pairs.several import moved
from fedpriv.pairs.theirs import by_dp_accounting
from fedpriv.pairs.written import read_pair, read_witness, written
from fedpriv.proof.pairs import NOTHING, SEEN, All, Moved, Times, Told, times, told
from fedpriv.proof.verify import Direction, Exact, Grid, delta, deltas

FEW = list(trees(seed=1, count=4, several=False))
POISSON = Moved("gaussian", ((0.7, 0.02),))
ROUNDING = 1e-8
"""How far apart, relative, two ways to compute one epsilon may be: other trees are rounded otherwise."""


def same(a, b, at):
    ours, theirs = epsilon(a, at).epsilon, epsilon(b, at).epsilon
    return math.isclose(ours, theirs, rel_tol=ROUNDING, abs_tol=1e-9)


class TestLaws:
    @pytest.mark.parametrize(("pair", "at"), FEW)
    def test_one_of_something_is_it(self, pair, at):
        assert told([(1.0, pair)]) == pair
        assert all(same(other, pair, at) for other in (Told(((1.0, pair),)), All((pair,))))
        assert same(Times(pair, 1), together([pair]), at)

    @pytest.mark.parametrize(("pair", "at"), FEW)
    def test_order_does_not_count(self, pair, at):
        assert same(All((pair, POISSON)), All((POISSON, pair)), at)
        assert same(All((pair, NOTHING)), pair, at)

    @pytest.mark.parametrize(("pair", "at"), FEW)
    def test_what_is_larger_costs_more(self, pair, at):
        more = larger(pair, np.random.default_rng(5))
        assert epsilon(more, at).epsilon >= epsilon(pair, at).epsilon * (1 - ROUNDING)

    @pytest.mark.parametrize(("pair", "at"), FEW)
    def test_a_half_of_the_time_is_less_and_twice_is_more(self, pair, at):
        half = Told(((0.5, pair), (0.5, NOTHING)))
        costs = [epsilon(each, at).epsilon for each in (half, pair, Times(pair, 2))]
        assert costs == sorted(costs)

    def test_a_sure_move_is_the_gaussian(self):
        once = Moved("gaussian", ((0.7, 1.0),))
        exact = epsilon_of_mixture(np.array([10 * 0.7**2]), np.ones(1), 0.0, 1e-5)
        assert epsilon(Times(once, 10), 1e-5).epsilon == pytest.approx(exact, rel=1e-11)
        nearly = Moved("gaussian", ((0.7, 1 - 1e-12),))  # on a grid
        assert epsilon(Times(nearly, 10), 1e-5).epsilon == pytest.approx(exact, rel=1e-4)

    def test_equal_ones_are_counted(self):
        assert together([POISSON, Times(POISSON, 2), NOTHING]) == Times(POISSON, 3)
        assert together([]) == times(POISSON, 0) == NOTHING


class TestAnyWitness:
    """A bound holds for every witness; a worse one only makes it larger."""

    @pytest.mark.parametrize(("pair", "at"), FEW[:3])
    def test_another_grid_or_tilt_never_shows_more(self, pair, at):
        rng = np.random.default_rng(3)
        pair = All((pair, POISSON))  # so that there is a grid
        value, witness = by_losses(pair, at)
        truth = by_dp_accounting(pair, at, 1e-3).optimistic
        for _ in range(5):
            ways = tuple(
                Direction(tuple(tuple(t * rng.uniform(0.2, 5) for t in own) for own in way.tilts))
                for way in witness.directions
            )
            other = Grid(witness.interval * rng.uniform(1, 30), 10 ** rng.uniform(-30, -4), ways)
            assert delta(pair, value, witness) <= at
            assert delta(pair, truth * (1 - 1e-3), other) > at

    def test_it_falls_in_epsilon(self):
        pair = Times(POISSON, 50)
        at = np.linspace(0.0, 3.0, 20)
        for witness in (by_losses(pair, 1e-6).witness, Orders((4.0,))):
            bounds = deltas(pair, at, witness)
            assert (np.diff(bounds) <= 1e-15).all()
            assert (bounds >= 0).all()
            assert (bounds <= 1).all()

    def test_nothing_and_everything(self):
        for witness in (Exact(), Orders((2.0,))):
            assert delta(NOTHING, 0.0, witness) == 0
            assert delta(SEEN, 100.0, witness) == 1
        assert epsilon(Told(((1e-7, SEEN), (1 - 1e-7, NOTHING))), 1e-6).epsilon == 0
        assert epsilon(Told(((1e-5, SEEN), (1 - 1e-5, POISSON))), 1e-6).epsilon == math.inf

    def test_a_strange_witness_is_refused(self):
        pair = Times(POISSON, 5)
        one = Direction(((1.0,),))
        for witness in (Grid(1e-3, 0.0, (one,)), Grid(1e-12, 0.0, (one, one)), Exact()):
            with pytest.raises(ValueError, match=r": .*; |interval: "):
                delta(pair, 1.0, witness)
        blocks = Block("gaussian", 5, ((1.0, 0.5, 0),))
        with pytest.raises(ValueError, match="no such law of this pair is known"):
            delta(blocks, 1.0, Orders((2.0,)))


TREES = [
    pytest.param(*case, marks=[pytest.mark.slow] if number >= 4 else [])
    for number, case in enumerate(trees(seed=2, count=44, several=False))
]


@pytest.mark.parametrize(("pair", "at"), TREES)
def test_dp_accounting(pair, at):
    above, ratio = beside_dp_accounting(pair, at)
    assert above >= 0
    assert ratio <= 1.01


@pytest.mark.slow
def test_small_deltas_are_not_dp_accountings_to_check():
    """Its optimistic epsilon lies above ours there, and at 1e-10 does not: why no second opinion is asked for below."""
    pair = Times(Moved("gaussian", ((1.0, 0.01),)), 1000)
    for at, holds in ((LEAST_DELTA, True), (1e-13, False)):
        assert (by_dp_accounting(pair, at).optimistic <= by_losses(pair, at).epsilon) == holds


def test_divergences_are_dp_accountings():
    """Of a tree, by hand: log-means, sums, and the conversion of Canonne, Kamath and Steinke."""
    from dp_accounting import GaussianDpEvent
    from dp_accounting.rdp import RdpAccountant

    half = Told(((0.5, Times(Moved("gaussian", ((0.5, 1.0),)), 3)), (0.5, NOTHING)))
    value, witness = by_divergences(Times(half, 4), 1e-5)
    (order,) = witness.orders
    once = RdpAccountant([order]).compose(GaussianDpEvent(2.0), 3).rdp[0]
    mean = 4 * math.log(0.5 + 0.5 * math.exp((order - 1) * once)) / (order - 1)
    shown = mean + math.log1p(-1 / order) - math.log(1e-5 * order) / (order - 1)
    assert value == pytest.approx(shown, rel=1e-9)


PAIRS = [
    POISSON,
    Moved("laplace", ((0.5, 0.1),), True),
    moved("gaussian", ((0.5, 0.1), (1.0, 0.01)), True, 0.2),
    Moved("gaussian", ((math.inf, 0.1),)),
    Told(((0.5, POISSON), (0.5, NOTHING)), (10, 0.1, 3)),
    Block("gaussian", 3, ((0.5, 0.5, 0), (0.5, 1.0, 1))),
    Times(All((POISSON, SEEN)), 7),
    Best((POISSON, NOTHING), 3.0),
    Slack(Moved(IntegerNoise("skellam", 3, 2.0, 5, 4), ((2.0, 0.5),)), 1e-9, 1e-20),
]


@pytest.mark.parametrize("pair", PAIRS)
def test_json_and_back(pair):
    text = json.dumps(written(pair))
    assert read_pair(json.loads(text)) == pair
    assert hash(read_pair(json.loads(text))) == hash(pair)


def test_a_witness_in_json_and_back():
    ways = (DirectionApart(((1.5, 2.0), (3.0,)), 1e-9), Direction(((1.0,),)))
    for witness in (Exact(), Rounded(), Grid(1e-4, 1e-20, ways), Orders((1.5, 63.0))):
        assert read_witness(json.loads(json.dumps(written(witness)))) == witness


NO_PAIRS = {
    "a move too small for a curve": {"moved": {"noise": "gaussian", "law": [[1e-10, 1.0]]}},
    "a move too large for a square": {"moved": {"noise": "gaussian", "law": [[1e10, 1.0]]}},
    "a number no float holds": {"moved": {"noise": "gaussian", "law": [[10**400, 1.0]]}},
    "a cut draw of one number": {
        "told": {"cases": [[1.0, {"all": {"of": []}}]], "made_by": [1]}
    },
    "more draws than whole numbers": {
        "times": {"of": {"times": {"of": {"moved": {"noise": "gaussian", "law": [[1, 1]]}}, "n": 2**40}}, "n": 2**40}
    },
    "an unknown kind": {"shifted": {}},
    "two kinds": {"moved": {}, "all": {}},
    "no noise": {"moved": {"law": [[1.0, 1.0]]}},
    "unknown noise": {"moved": {"noise": "cauchy", "law": [[1.0, 1.0]]}},
    "no law": {"moved": {"noise": "gaussian", "law": []}},
    "a negative move": {"moved": {"noise": "gaussian", "law": [[-1.0, 1.0]]}},
    "moves that fall": {"moved": {"noise": "gaussian", "law": [[1.0, 0.1], [0.5, 0.1]]}},
    "more than certain": {"moved": {"noise": "gaussian", "law": [[1.0, 0.7], [2.0, 0.7]]}},
    "seen beside moved": {"moved": {"noise": "gaussian", "law": [[1.0, 0.5], ["inf", 0.5]]}},
    "a text for a number": {"moved": {"noise": "gaussian", "law": [["1", 1.0]]}},
    "a chance that is true": {"moved": {"noise": "gaussian", "law": [[1.0, True]]}},
    "not a number": {"moved": {"noise": "gaussian", "law": [[math.nan, 1.0]]}},
    "a chance that is no number": {"moved": {"noise": "gaussian", "law": [[1.0, math.nan]]}},
    "a subset that is rarer than its members": {
        "moved": {"noise": "gaussian", "law": [[1.0, 0.5]], "replaced": True, "subset": 0.1}
    },
    "cases that are too few": {"told": {"cases": [[0.5, {"all": {"of": []}}]]}},
    "a case that is no pair": {"told": {"cases": [[1.0, 3]]}},
    "half a time": {"times": {"of": {"all": {"of": []}}, "n": 1.5}},
    "no time": {"times": {"of": {"all": {"of": []}}, "n": 0}},
    "too often": {"times": {"of": {"all": {"of": []}}, "n": 2**53 + 1}},
    "slack inside": {"times": {"of": {"slack": {"of": {"all": {"of": []}}, "apart": 0, "off": 0}}, "n": 2}},
    "a best inside": {"all": {"of": [{"best": {"of": [{"all": {"of": []}}], "mean": 2}}]}},
    "no witness inside": {"all": {"of": [{"exact": {}}]}},
    "a field too many": {"all": {"of": [], "less": True}},
    "a text": "all",
    "nothing": None,
    "all of a number": {"all": {"of": 5}},
    "all of one pair": {"all": {"of": {"all": {"of": []}}}},
}  # fmt: skip


@pytest.mark.parametrize("value", NO_PAIRS.values(), ids=NO_PAIRS)
def test_what_is_no_pair(value):
    with pytest.raises(ValueError, match=r"^[^\n]+: [^\n]+$"):
        read_pair(value)


def test_a_block_in_a_told_case_counts():
    block = Block("gaussian", 5, ((1.0, 2.0, 0),))
    half = Told(((0.5, block), (0.5, NOTHING)))
    witness = by_losses(half, 1e-2).witness
    of_block = by_losses(block, 1e-2).witness
    ways = [way.tilts for way in of_block.directions]
    assert delta(half, 0.5, witness) == pytest.approx(
        0.5 * delta(block, 0.5, of_block), rel=1e-3
    ), ways


def test_numbers_of_draws_that_no_integer_holds():
    rare = Told(((0.5, Moved("gaussian", ((1e-9, 1.0),))), (0.5, Moved("gaussian", ((1e6, 1.0),)))))
    for pair in (Times(rare, 7), Times(rare, 2**53)):
        with pytest.raises(ValueError, match="no such law"):
            delta(pair, 1.0, Rounded())


def test_many_equal_cases_are_one():
    """Of which a file may have more than there is room for values."""
    seen = Moved("gaussian", ((1000.0, 1.0),))
    many = Told(((1 / 10_001, seen),) * 10_001)
    assert delta(many, 1.0, Exact()) == 1.0
    assert delta(Told(((1 / 10_001, NOTHING),) * 10_001), 0.0, Exact()) == 0.0


def test_laplace_noise_of_far_apart_moves():
    """Of which the larger is seldom: no less than that of the smaller."""
    pair, smaller = moved("laplace", ((1.0, 0.5), (1e9, 1e-12))), Moved("laplace", ((1.0, 0.5),))
    witness = Grid(1e-3, 1e-11, (Direction(((1.0,),)),) * 2)
    assert delta(pair, 0.0, witness) >= 0.999 * delta(smaller, 0.0, witness) > 0.19


def test_slack_has_no_largest_epsilon():
    pair = Slack(Moved("gaussian", ((60.0, 1.0),)), 0.0, 1e-310)
    assert delta(pair, 5000.0, Exact()) == 1.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Orders((1.0000000001,)),
        lambda: Orders(()),
        lambda: Direction(((5e-324,),)),
        lambda: Direction(((1e300,),)),
        lambda: Grid(1e-3, 0.0, (Exact(),)),
        lambda: Grid(math.nan, 0.0, ()),
        lambda: Slack(POISSON, 400.0, 0.0),
    ],
)
def test_a_witness_out_of_range_is_refused(make):
    with pytest.raises(ValueError, match=r"^[^\n]+; give [^\n]+$"):
        make()


def test_a_pair_of_many_levels_is_refused():
    deep = {"all": {"of": []}}
    for _ in range(100):
        deep = {"all": {"of": [deep]}}
    with pytest.raises(ValueError, match="levels at most"):
        read_pair(deep)
