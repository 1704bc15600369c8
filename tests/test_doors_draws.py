"""Doors of the proof for draws, units and rows: what comes from outside is certified, and the certificate names it."""

import functools
import math
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from small import refused, regression, start

import fedpriv as fp
from fedpriv.pairs.search import epsilon
from fedpriv.privacy import Seen, Who, certify_seen, declared
from fedpriv.privacy.certificate import Certificate
from fedpriv.privacy.certify import among
from fedpriv.proof.cases import ADJACENCIES, Case, Noisy, Pairs, Why
from fedpriv.proof.certificate import Proposal, prove
from fedpriv.proof.drawn import Drawn
from fedpriv.proof.draws import Sampling, Single
from fedpriv.proof.marks import Sum
from fedpriv.proof.noise import LAWS
from fedpriv.proof.pairs import moved, times
from fedpriv.proof.row import AnyRow, Row, seen_of
from fedpriv.proof.samplings import Everyone, FixedSize, Poisson
from fedpriv.proof.step import Step
from fedpriv.proof.views import NO_SHARE, of_sums

N, SIGMA, ROUNDS, DELTA = 20, 2.0, 3, 1e-4
HERE = "test_doors_draws."
GAUSSIAN, DRAWS = fp.gaussian(1.0, SIGMA), Poisson(N, 0.2)


def found(pair):
    least, witness = epsilon(pair, DELTA)
    return Proposal(least, pair, witness)


def proved(row, propose=found):
    return prove([seen_of(row)], DELTA, row.view, propose)


def plain(drawn, far=1 / SIGMA):
    return Row("third_party", "client", Noisy("gaussian", far), "shares", drawn, ROUNDS)


@pytest.mark.parametrize(
    "drawn", [Everyone(N), Poisson(N, 0.2), Poisson(N, 0.2, 5), FixedSize(N, 4)]
)
def test_a_plain_run_uses_no_door(drawn):
    certificate = certify_seen(
        [declared("third_party", "client", SIGMA, drawn, ROUNDS)], DELTA, "third_party"
    )
    assert certificate.doors == proved(plain(Drawn(drawn))).doors == ()
    assert certificate.epsilon == pytest.approx(proved(plain(Drawn(drawn))).epsilon)


@dataclass(frozen=True)
class Coin(Sampling):
    """All take part, or nobody, by a fair coin that is secret."""

    population: int

    @property
    def most(self):
        return self.population

    def cases_of_one(self, neighbour):
        """*Proof.* By a coin of its own for the unit alone it would be drawn as often."""
        return Why("of it alone") if neighbour == "removed" else (Case(1.0, ((1.0, 0.5),)),)

    def words(self, neighbour):
        return ("the coin is fair",)


def test_draws_from_outside():
    of_view = [declared("server_secagg", "client", SIGMA, Coin(N), ROUNDS)]
    certificate = certify_seen(of_view, DELTA, "server_secagg")
    known = declared("server_secagg", "client", SIGMA, Poisson(N, 0.5), ROUNDS)
    assert certificate.doors == (f"draws: {HERE}Coin",)
    assert certificate.epsilon == certify_seen([known], DELTA, "server_secagg").epsilon
    assert "the coin is fair" in certificate.assumptions
    assert Certificate.from_json(certificate.to_json()).doors == certificate.doors


@dataclass(frozen=True)
class Twins(Single):
    """Two clients of one person, who take part together, or not at all."""

    units = 2

    def cases(self, drawn, neighbour):
        cases = drawn.cases_of_one(neighbour)
        if isinstance(cases, Why):
            return cases
        return tuple(replace(one, law=((2.0, one.rate),)) for one in cases)


def test_a_kind_of_unit_from_outside():
    twins = proved(plain(Drawn(Poisson(N, 0.2), who=Twins())))
    assert twins.doors == (f"unit: {HERE}Twins",)
    assert twins.epsilon == proved(plain(Drawn(Poisson(N, 0.2)), 2 / SIGMA)).epsilon


@dataclass(frozen=True)
class Twice(AnyRow):
    """Every sum is released a second time, with noise of its own."""

    once: Row
    is_empty = attained = False
    reason, releases, event = "", (), "twice"
    view, unit = "third_party", "client"

    @property
    def noisy(self):
        return self.once.noisy

    @property
    def drawn(self):
        return self.once.drawn

    def counted(self, honest):
        return Twice(self.once.counted(honest))

    def pairs(self):
        far = self.noisy.far * 2**0.5
        pair = times(moved("gaussian", [(far, 1.0)]), self.once.rounds)
        return Pairs(*[pair] * len(ADJACENCIES))

    def words(self, neighbour, honest):
        return ("both sums have fresh noise",)


def test_a_row_of_the_table_from_outside():
    once = plain(Drawn(Everyone(N)))
    twice, louder = proved(Twice(once)), proved(plain(Drawn(Everyone(N)), 2**0.5 / SIGMA))
    assert twice.doors == (f"row: {HERE}Twice",)
    assert twice.epsilon == louder.epsilon
    assert "both sums have fresh noise" in twice.assumptions


def test_pairs_that_are_not_those_of_a_row_are_named():
    seen = seen_of(plain(Drawn(Everyone(N))))
    less = seen_of(plain(Drawn(Everyone(N)), far=0.1 / SIGMA)).pairs
    changes = ({"rows": ()}, {"pairs": less}, {"view": "server"}, {"unit": "record"})
    for changed in (replace(seen, **change) for change in changes):
        doors = prove([changed], DELTA, changed.view, found).doors
        assert doors == ("row: declared by its pairs",)
    assert seen == replace(seen, words={})
    assert prove([among(seen, "zeroed")], DELTA, "third_party", found).doors == ()


def test_what_shows_nothing_costs_nothing_and_goes_with_all():
    nothing = seen_of(plain(Drawn(Poisson(N, 0.2)), far=0.0))
    certificate = prove([nothing], DELTA, "third_party", None)
    assert certificate.epsilon == 0
    assert certificate.assumptions == ("nothing about the unit is released",)
    row = plain(Drawn(FixedSize(N, 4)))  # which has no kind of neighbours in common with it
    both = prove([nothing, seen_of(row)], DELTA, "third_party", found)
    assert both.epsilon == proved(row).epsilon


def test_a_number_that_is_not_shown_is_refused():
    row = plain(Drawn(Poisson(N, 0.2)))
    with refused("its witness does not show it"):
        proved(row, lambda pair: found(pair)._replace(epsilon=0.5 * found(pair).epsilon))
    with refused("give the pair, or what from outside bounds it"):
        proved(row, lambda pair: found(moved("gaussian", [(0.1, 1.0)])))


def test_draws_that_are_not_plain_have_no_plain_row():
    class InBlocks(Coin):
        block = 3

    with refused("a block of rounds"):
        proved(plain(Drawn(InBlocks(N))))


def test_sums_of_which_one_is_not_plain_have_no_plain_row():
    plain, others = (
        Sum("here", 0, Step(GAUSSIAN, DRAWS, "shares"), None),
        [
            Sum("there", 0, Step(GAUSSIAN, DRAWS, "server"), None),
            Sum("there", 0, Step(GAUSSIAN._replace(clip_norm=2.0), DRAWS, "shares"), None),
            Sum("there", 0, Step(fp.laplace(1.0, SIGMA), DRAWS, "shares"), None),
        ],
    )
    assert [row.reason for row in of_sums([plain, plain], DRAWS, ROUNDS)] == [""] * 3
    bare, loud = fp.unprotected("a test"), fp.laplace(1.0, SIGMA)
    for used, reasons in ((bare, ["a test"] * 3), (loud, ["", NO_SHARE, ""])):
        rows = of_sums([Sum("here", 0, Step(used, DRAWS, "shares"), None)], DRAWS, ROUNDS)
        assert [row.reason for row in rows] == reasons
    for other, why in zip(others, ("adder", "mechanism", "differ in their kind"), strict=True):
        for sums in ([plain, other], [other, plain]):
            with refused(why):
                of_sums(sums, DRAWS, ROUNDS)


def test_all_are_drawn_where_nobody_is_left_out():
    draws = (Everyone(N), FixedSize(N, N), Poisson(N, 1.0), Poisson(N, 1.0, N))
    some = (FixedSize(N, N - 1), Poisson(N, 0.9), Poisson(N, 1.0, N - 1))
    assert [by.everyone for by in (*draws, *some)] == [True] * 4 + [False] * 3


def test_a_draw_that_is_cut_has_the_library_s_name_for_one_unit_that_is_removed():
    cut, noisy = Poisson(N, 0.2, 5), Noisy("gaussian", 0.5)

    def named(by, neighbour, who):
        pair = by.pair(by.cases(neighbour, who), neighbour, noisy, who)
        return getattr(pair, "made_by", None)

    assert named(cut, "removed", Who()) == (N, 0.2, 5)
    assert named(cut, "removed", Who(units=2)) is None
    assert named(cut, "zeroed", Who()) is None
    assert named(Poisson(N, 0.2), "removed", Who()) is None


@pytest.mark.parametrize("number", [0, -1, 2.5, "20", None, math.nan])
@pytest.mark.parametrize(
    ("make", "field"),
    [
        (Everyone, "population"),
        (lambda x: FixedSize(x, 1), "population"),
        (lambda x: FixedSize(N, x), "size"),
        (lambda x: Poisson(x, 0.2), "population"),
        (lambda x: Poisson(N, x), "rate"),
        (lambda x: Poisson(N, 0.2, x or 0), "capacity"),
    ],
)
def test_numbers_of_plain_draws(make, field, number):
    assert isinstance(getattr(make(np.int32(1)), field), int | float)
    with refused(f"{field}: "):
        make(number)


class Loud(Everyone):
    """It says that a unit moves sums by little."""

    def cases_of_one(self, neighbour):
        return (Case(1.0, ((1.0, 1.0),), 0.01),)


class Often(FixedSize):
    """It says that units are drawn more often than those of a uniform subset."""

    uniform = False

    def cases_of_one(self, neighbour):
        cases = super().cases_of_one(neighbour)
        return cases if isinstance(cases, Why) else (Case(1.0, ((1.0, 0.9),)),)


def test_what_inherits_from_ours_is_taken_at_its_word_everywhere():
    with refused("who is told moves the sum by its number alone"):
        declared("third_party", "client", SIGMA, Loud(N), ROUNDS)
    person, client = Who(units=2), Who()
    assert isinstance(Often(N, 4).cases("zeroed", person), Why)
    assert Often(N, 4).cases("zeroed", client)[0].rate == 0.9


@pytest.mark.parametrize("law", [LAWS["laplace"], "laplace"])
def test_of_other_noise_than_gaussian_a_share_is_not_known(law):
    noisy = Noisy(law, 1.0)
    assert noisy.kind == "laplace"
    assert noisy.left(0.5) is noisy.share(3) is None


class Kept(Drawn):
    """As the plain one."""


class Shown(Seen):
    """As the plain one."""


def test_pairs_and_draws_of_a_class_from_outside_are_named():
    row = plain(Kept(Everyone(N)))
    assert proved(row).doors == (f"draws: {HERE}Kept",)
    shown = Shown(**{f.name: getattr(seen_of(row), f.name) for f in fields(Seen)})
    doors = prove([shown], DELTA, "third_party", found).doors
    assert doors == (f"row: {HERE}Shown", f"draws: {HERE}Kept")


def test_a_wrapper_is_named_by_what_it_is():
    used = fp.gaussian(1.0, SIGMA)

    @functools.wraps(fp.gaussian)
    def clip(u):
        return used.clip(u)

    clip.__module__, clip.__wrapped__ = "fedpriv.proof.bound", None
    wrapped = used._replace(clip=clip)

    def round(key, state, cohort):
        total, metrics, _ = cohort.sum(lambda key, shard: state.params, key, mechanism=wrapped)
        return state._replace(params=total, round=state.round + 1), metrics

    algorithm = fp.Algorithm(fp.start, round, fp.everyone(6))
    traced = fp.trace_round(algorithm, start(), regression([4] * 6))
    certificate = traced.certify(ROUNDS, DELTA)
    assert "mechanism: declared" in certificate.doors
    assert certificate.basis == "declared"
