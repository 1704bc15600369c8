"""One law of all samplings: no neighbours are farther apart than their pair, for each kind of neighbour, and of whom.

Small populations, of which every draw is written out by its probability; what the view is told beside a sum, too.
"""

import math
from itertools import combinations, product

import numpy as np
import pytest
from pair_curves import bound
from rush_hour_cases import RushHours
from scipy.stats import norm

from fedpriv.pairs.blocks import Block
from fedpriv.pairs.grids import cell_width
from fedpriv.privacy import Allocation, Dropping, Everyone, FixedSize, Poisson, Who, Why
from fedpriv.privacy.drawn import Drawn
from fedpriv.privacy.sampling import ADJACENCIES, PROVED, ByPersons, WithReplacement
from fedpriv.privacy.sampling.across_groups import AcrossGroups
from fedpriv.proof.cases import Noisy
from fedpriv.proof.composed import Composed, tree_of
from fedpriv.proof.losses import curve

N, SIGMA, EPSILONS = 4, 1.25, np.array([0.0, 0.3, 1.0])
LINE, PLANE = np.arange(-11, 11, 0.01), np.arange(-8, 8, 0.1)


# Each draws among some members: (chance, the cohort of each round); a member that is drawn twice is there twice.


def everyone(members):
    yield 1.0, (tuple(members),)


def fixed(size):
    def draw(members):
        every = list(combinations(members, min(size, len(members))))
        yield from ((1 / len(every), (cohort,)) for cohort in every)

    return draw


def joining(rate, capacity=N):
    def draw(members):
        for bits in product((0, 1), repeat=len(members)):
            there = [i for i, joins in zip(members, bits, strict=True) if joins]
            chance = rate ** len(there) * (1 - rate) ** (len(members) - len(there))
            kept = list(combinations(there, min(capacity, len(there))))
            yield from ((chance / len(kept), (cohort,)) for cohort in kept)

    return draw


def with_replacement(size):
    def draw(members):
        each = list(product(members, repeat=size))
        yield from ((1 / len(each), (cohort,)) for cohort in each)

    return draw


def staying(size, vanish):
    def draw(members):
        for chance, (cohort,) in fixed(size)(members):
            for stays, (left,) in joining(1 - vanish)(cohort):
                yield chance * stays, (left,)

    return draw


def in_one_round(block, capacity=N):
    def draw(members):
        for rounds in product(range(block), repeat=len(members)):
            there = [
                [i for i, r in zip(members, rounds, strict=True) if r == t] for t in range(block)
            ]
            each = [list(combinations(c, min(capacity, len(c)))) for c in there]
            for cohorts in product(*each):
                yield 1 / math.prod(map(len, each)) / block ** len(members), cohorts

    return draw


def all_of_a_person(of_persons, of_one):
    def draw(members):
        persons = sorted({i // of_one for i in members})
        for chance, (drawn,) in of_persons(persons):
            yield chance, (tuple(i for i in members if i // of_one in drawn),)

    return draw


def of_groups(*draws):
    def draw(members):
        each = [of([i for i in members if i % len(draws) == g]) for g, of in enumerate(draws)]
        for parts in product(*map(list, each)):
            yield math.prod(p for p, _ in parts), (tuple(i for _, (c,) in parts for i in c),)

    return draw


def rush_hour(rate, rush):
    def draw(members):
        yield rush, (tuple(members),)
        yield from ((chance * (1 - rush), cohort) for chance, cohort in joining(rate)(members))

    return draw


def by_persons(drawn, most):
    return ByPersons(drawn, N, most, 2, True, "")


SAMPLINGS = {
    "everyone": (Everyone(N), everyone),
    "fixed size": (FixedSize(N, 2), fixed(2)),
    "fixed size of all": (FixedSize(N, N), fixed(N)),
    "joining": (Poisson(N, 0.4), joining(0.4)),
    "joining, cut": (Poisson(N, 0.4, 2), joining(0.4, 2)),
    "joining, hardly ever cut": (Poisson(N, 0.003, 3), joining(0.003, 3)),
    "with replacement": (WithReplacement(N, 2, 1 / N), with_replacement(2)),
    "vanishing": (Dropping(N, 3, 0.4), staying(3, 0.4)),
    "vanishing of all": (Dropping(N, N, 0.4), staying(N, 0.4)),
    "vanishing with noise": (Dropping(N, 3, 0.4, True), staying(3, 0.4)),
    "all vanishing with noise": (Dropping(N, N, 0.4, True), staying(N, 0.4)),
    "blocks": (Allocation(N, 2), in_one_round(2)),
    "blocks, cut": (Allocation(N, 2, 2), in_one_round(2, 2)),
    "blocks of one round": (Allocation(N, 1, 3), in_one_round(1, 3)),
    "persons joining": (by_persons(Poisson(2, 0.4), N), all_of_a_person(joining(0.4), 2)),
    "persons of fixed size": (by_persons(FixedSize(2, 1), 2), all_of_a_person(fixed(1), 2)),
    "groups": (
        AcrossGroups(((Poisson(2, 0.4), 1, 1.0), (Poisson(2, 0.3, 1), 1, 1.0))),
        of_groups(joining(0.4), joining(0.3, 1)),
    ),
    "rush hours": (RushHours(N, 0.3, 0.25), rush_hour(0.3, 0.25)),
}
FLAGS = [{}, {"remembers": True}, {"stays": True}, {"lost": True}]
WHO = [Who(units, **flags) for units in (1, 2) for flags in FLAGS]
SEEN = {
    "everyone": "zeroed removed emptied replaced",
    "fixed size": "zeroed replaced",
    "joining": "zeroed removed emptied",
    "with replacement": "zeroed",
    "vanishing": "zeroed replaced",
    "blocks": "zeroed removed",
    "persons joining": "zeroed removed emptied",
    "rush hours": "zeroed removed emptied",
}
"""Of which neighbours something is proved, of a unit by itself."""


def pair_of(name, neighbour, who):
    """What is certified; of units that are zeroed, towards who knows who is drawn."""
    sampling, _ = SAMPLINGS[name]
    drawn = Drawn(sampling, who, known=neighbour == "zeroed")
    return drawn.pairs(Noisy("gaussian", 1 / SIGMA)).of(neighbour)


def told(sampling, neighbour, who, units):
    """What a view is told of the cohorts, beside their sums."""
    cases = sampling.cases(neighbour, who)
    others_stay = not isinstance(cases, Why) and any(
        getattr(case, "in_place", False) for case in cases
    )

    def of(cohorts):
        others = tuple(tuple(i for i in c if i not in units) for c in cohorts)
        size = tuple(map(len, cohorts)) if who.lost else ()
        if neighbour == "zeroed" or (neighbour == "replaced" and not sampling.secret):
            return cohorts
        known = who.remembers or others_stay or not sampling.secret
        return size, others if known else ()

    return of


def law_of(draws, sends, tell, size):
    """{what is told: density of the sums}; a share of the noise is lost with each that is missing of `size`."""
    found = {}
    for chance, cohorts in draws:
        axis = LINE if len(cohorts) == 1 else PLANE
        density = np.array(chance)
        for cohort in cohorts:
            left = len(cohort) / size if size else 1.0
            if left == 0:  # nothing is released
                continue
            mean = sum(sends[i] for i in cohort)
            density = np.multiply.outer(density, norm.pdf(axis, mean, SIGMA * math.sqrt(left)))
        found[tell(cohorts)] = found.get(tell(cohorts), 0.0) + density
    return found


def farthest(name, neighbour, who):
    """The largest divergences, f64[2, epsilons], of both directions, over what the others send."""
    sampling, draw = SAMPLINGS[name]
    everybody, units = range(N), range(who.units)
    there = everybody if neighbour != "removed" else range(who.units, N)
    tell = told(sampling, neighbour, who, units)
    size = sampling.most if who.lost else 0
    worst = np.zeros((2, len(EPSILONS)))
    for others in product((-1.0, 0.0, 1.0), repeat=N - who.units):
        for instead in (-1.0, 0.0) if neighbour == "replaced" else (0.0,):
            mine, other = (dict(enumerate((*[x] * who.units, *others))) for x in (1.0, instead))
            p, q = law_of(draw(everybody), mine, tell, size), law_of(draw(there), other, tell, size)
            worst = np.maximum(worst, [divergences(p, q), divergences(q, p)])
    return worst


def divergences(p, q):
    """f64[epsilons]."""
    total = np.zeros(len(EPSILONS))
    for told, density in p.items():
        step = {0: 1.0, 1: LINE[1] - LINE[0], 2: (PLANE[1] - PLANE[0]) ** 2}[np.ndim(density)]
        other = q.get(told, 0.0)
        total += [np.maximum(density - a * other, 0.0).sum() * step for a in np.exp(EPSILONS)]
    return total


def certified(pair):
    """f64[2, epsilons]."""
    if isinstance(pair, Block):
        width = cell_width(pair)
        trees = [Composed(tree_of(pair, width, 0.0, way), width) for way in (0, 1)]
        return np.array([bound(tree, EPSILONS) for tree in trees])
    return np.array([curve(pair, EPSILONS, with_it) for with_it in (True, False)])


@pytest.mark.parametrize("neighbour", ADJACENCIES)
@pytest.mark.parametrize("name", SAMPLINGS)
def test_no_neighbours_are_farther_apart_than_their_pair(name, neighbour):
    """And some are as far, where those who are told of it lose nothing by what others do."""
    sampling, _ = SAMPLINGS[name]
    for who in WHO:
        pair = pair_of(name, neighbour, who)
        in_part = isinstance(sampling, ByPersons | AcrossGroups) and who.units < 2
        if isinstance(pair, Why) or who.lost > sampling.lossy or in_part:
            continue
        explicit, proved = farthest(name, neighbour, who), certified(pair)
        grid = 1e-3 if sampling.block else 1e-4
        assert (explicit <= proved * (1 + grid) + 1e-5).all(), who
        others_told = neighbour == "emptied" and isinstance(sampling, Poisson)
        if others_told or (sampling.attained and neighbour == "zeroed"):
            np.testing.assert_allclose(explicit, proved, rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("name", SEEN)
def test_of_what_is_proved_of_a_unit(name):
    known = [n for n in ADJACENCIES if not isinstance(pair_of(name, n, Who()), Why)]
    assert known == SEEN[name].split()


def test_all_samplings_are_here():
    assert {type(sampling) for sampling, _ in SAMPLINGS.values()} == {*PROVED, RushHours}
