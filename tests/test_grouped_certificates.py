"""Groups of clients with budgets of their own: certificates, against pairs computed here, dp-accounting and audits."""

import itertools
import math
from collections import Counter
from dataclasses import replace
from functools import partial

import dp_accounting as dp
import numpy as np
import pytest
import tiers
from correlated_runs import ROUNDS, by_all_patterns, descent, gaussian_epsilon, matrix_of
from dp_accounting.pld import PLDAccountant
from every_algorithm import CLIENTS, ENTRIES, FEDERATION, PARAMS, TRAINING, that
from scipy import optimize, stats
from small import FALSE_ALARM, assert_close, certified, refused, squared, start
from test_unequal_certificates import epsilon_of, replaced_curve

import fedpriv as fp
from fedpriv.attacks.bounds import lower_bounds
from fedpriv.attacks.mechanism_audit import draw_scores
from fedpriv.certification.unit_kinds import UnitKind
from fedpriv.privacy.rows import featured
from fedpriv.privacy.sampling.asked import is_alone

pytestmark = pytest.mark.usefixtures("quick_to_compile")

LABELS = ["a", "b", "b"] * 10
THIRTY = fp.Federation.blank({"x": np.zeros(3, np.float32), "y": np.float32(0)}, 30, 2)


def averaging(sampler, noise=2.0, **how):
    return fp.dp_fed_avg(
        squared, sampler=sampler, **TRAINING, clip_norm=0.5, noise_multiplier=noise, **how
    )


def of_groups(sampler, rounds, delta, view="third_party", **how):
    """Name -> certificate, and that of all."""
    traced = fp.trace_round(averaging(sampler, **how), start(), THIRTY)
    whole = traced.certify(rounds, delta, view=view)
    assert whole.epsilon == max(each.epsilon for each in whole.of_groups.values())
    assert whole.basis == "constructed"
    return whole.of_groups, whole


def pld(event):
    return PLDAccountant(value_discretization_interval=5e-4).compose(event)


POISSON = {"a": fp.poisson(10, 0.2, 10), "b": fp.poisson(20, 0.5, 20)}
COUNTS = {"weights": {"a": 0.5, "b": 1.0}, "clip_scales": {"a": 1.0, "b": 0.8}}


def test_poisson_groups_have_the_epsilons_of_dp_accounting():
    """Each of its own draw and its own weight times clip scale, whatever the others have."""
    found, whole = of_groups(fp.grouped(LABELS, POISSON, **COUNTS), 12, 1e-4)
    for name, rate, noise in (("a", 0.2, 2 / 0.5), ("b", 0.5, 2 / np.float32(0.8))):
        event = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(float(noise)))
        own = pld(dp.SelfComposedDpEvent(event, 12)).get_epsilon(1e-4)
        assert found[name].epsilon == pytest.approx(own, rel=1e-3)
        theirs, relation, accountant = found[name].dp_event()
        assert accountant == "PLD"
        other = PLDAccountant(relation, value_discretization_interval=5e-4).compose(theirs)
        assert other.get_epsilon(1e-4) == pytest.approx(own, rel=1e-3)
    assert (whole.epsilon, whole.relation) == (found["b"].epsilon, "add_or_remove")


@pytest.mark.slow
def test_fixed_sizes_have_the_epsilons_of_own_pairs():
    fixed = {"a": fp.fixed_size(10, 2), "b": fp.fixed_size(20, 10)}
    found, whole = of_groups(fp.grouped(LABELS, fixed, **COUNTS), 10, 1e-3, noise=4.0)
    for name, rate, noise in (("a", 0.2, 8.0), ("b", 0.5, 5.0)):
        own = epsilon_of(replaced_curve(rate, noise), 10, 1e-3)
        assert found[name].epsilon == pytest.approx(own, rel=1e-3)
    assert whole.relation == "replace_one"


def mixture_epsilon(rounds, rate, multiplier, delta):
    """Of a view that knows who takes part: the mean over a binomial of Gaussian curves."""
    n = np.arange(1, rounds + 1)
    chance, mu = stats.binom.pmf(n, rounds, rate), np.sqrt(n) / multiplier

    def excess(e):
        each = stats.norm.cdf(mu / 2 - e / mu) - np.exp(e) * stats.norm.cdf(-mu / 2 - e / mu)
        return chance @ each - delta

    return optimize.brentq(excess, 0, 200)


@tiers.every("kind", ["fixed", "poisson", "dropping"])
def test_servers_know_the_cohort(kind):
    """The share of a client that a server sees is one of the whole cohort, not of the group."""
    samplers, most, rates = {
        "poisson": (POISSON, 30, (0.2, 0.5)),
        "fixed": ({"a": fp.fixed_size(10, 2), "b": fp.fixed_size(20, 10)}, 12, (0.2, 0.5)),
        "dropping": (
            {
                "a": fp.dropping(fp.fixed_size(10, 2), 0.25),
                "b": fp.dropping(fp.fixed_size(20, 10), 0.5),
            },
            12,
            (0.15, 0.25),
        ),
    }[kind]
    for view, share in (("server", most), ("server_secagg", 1)):
        found, _ = of_groups(fp.grouped(LABELS, samplers, **COUNTS), 8, 1e-3, view)
        for (name, multiplier), rate in zip((("a", 4.0), ("b", 2.5)), rates, strict=True):
            own = mixture_epsilon(8, rate, multiplier / math.sqrt(share), 1e-3)
            assert found[name].epsilon == pytest.approx(own, rel=1e-3), (name, view)


def patterns(group):
    """[(chance, who takes part)] of a group of three, by Poisson draws or of fixed size."""
    kind, number = group
    if kind == "fixed":
        subsets = list(itertools.combinations(range(3), number))
        return [(1 / len(subsets), s) for s in subsets]
    if kind == "cut":  # to one of those who join
        each = patterns(("poisson", number))
        return [(p / max(len(s), 1), (i,)) for p, s in each for i in s] + [each[0]]
    each = [s for k in range(4) for s in itertools.combinations(range(3), k)]
    return [(number ** len(s) * (1 - number) ** (3 - len(s)), s) for s in each]


SMALL = [
    ((("fixed", 1), ("fixed", 2)), 0.999),
    ((("poisson", 0.3), ("poisson", 0.6)), 0.999),
    ((("cut", 0.3), ("cut", 0.6)), 0.0),
]


@pytest.mark.slow
@pytest.mark.parametrize("given", SMALL)
def test_explicit_neighbours_of_two_small_groups(given):
    """All draws of six clients: no pair exceeds its group's curve, and some pair meets it."""
    drawn, met = given
    sigma, weights = 1.5, {"a": 0.5, "b": 1.0}
    x = np.linspace(-14, 14, 14_001)
    samplers = {
        name: fp.fixed_size(3, number)
        if kind == "fixed"
        else fp.poisson(3, number, 1 if kind == "cut" else 3)
        for name, (kind, number) in zip("ab", drawn, strict=True)
    }
    sampler = fp.grouped(["a"] * 3 + ["b"] * 3, samplers, weights=weights)
    six = fp.Federation.blank({"x": np.zeros(3, np.float32), "y": np.float32(0)}, 6, 2)
    traced = fp.trace_round(averaging(sampler, sigma), start(), six)
    certificates = {delta: traced.certify(1, delta).of_groups for delta in (0.1, 0.03, 0.01)}

    def density(of_a, of_b):
        chances = Counter()
        for (p, s), (q, t) in itertools.product(*map(patterns, drawn)):
            chances[0.5 * sum(of_a[i] for i in s) + sum(of_b[i] for i in t)] += p * q
        return sum(chance * stats.norm.pdf(x, at, sigma) for at, chance in chances.items())

    replaced = drawn[0][0] == "fixed"
    for name in "ab":
        closest = 0.0
        bounds = {found[name].epsilon: delta for delta, found in certificates.items()}
        for theirs, others in itertools.product(
            [(0, 0), (-1, -1), (1, -1)], [(0, 0, 0), (1, -1, 1)]
        ):
            pair = []
            for unit in (1.0, -1.0 if replaced else 0.0):
                own = (unit, *theirs)
                pair.append(density(own, others) if name == "a" else density(others, own))
            for one, other in (pair, pair[::-1]):
                for epsilon, bound in bounds.items():
                    true = np.trapezoid(np.maximum(0, one - math.exp(epsilon) * other), x)
                    assert true <= bound * (1 + 1e-6)
                    closest = max(closest, true / bound)
        assert closest > met


@tiers.every("name", ["by group", "at once"])
def test_correlated_noise_is_that_of_each_groups_own_rounds(name):
    """Cohorts in a fixed order: a whole run is one Gaussian release, of each group's own separation and weight."""
    matrix, weights = matrix_of("blt"), {"a": 0.25, "b": 1.0}
    turns = {"a": fp.fixed_order(10, 5), "b": fp.fixed_order(20, 5)}
    sampler, separation = {
        "at once": (fp.fixed_order(30, 10), {"a": 3, "b": 3}),
        "by group": (turns, {"a": 2, "b": 4}),
    }[name]
    sampler = fp.grouped(LABELS, sampler, weights=weights)
    algorithm = descent(fp.correlated(fp.gaussian(0.5, 3.0), matrix), sampler)
    found = fp.trace_round(algorithm, start(), THIRTY).certify(ROUNDS, 1e-5).of_groups
    for group, apart in separation.items():
        mu = weights[group] * by_all_patterns(matrix.strategy(ROUNDS), apart) / 3.0
        assert_close(found[group].epsilon, gaussian_epsilon(mu, 1e-5), 1e-6)


OTHERS = {
    "with replacement": (fp.with_replacement([1, 2] * 5, 3), fp.with_replacement([1] * 20, 4)),
    "cut": (fp.poisson(10, 0.4, 5), fp.poisson(20, 0.1, 4)),
    "dropping": (fp.dropping(fp.fixed_size(10, 4), 0.2), fp.fixed_size(20, 8)),
    "cyclic": (fp.cyclic_poisson(10, 2, 0.5), fp.cyclic_poisson(20, 4, 0.25)),
    "allocation": (fp.random_allocation(10, 4), fp.poisson(20, 0.5)),
    "availability": (fp.random_availability(10, 3, 2, 0.5), fp.everyone(20)),
}


@tiers.every("name", OTHERS)
def test_a_group_costs_what_its_sampler_costs_alone(name):
    """Whatever draws the other; a weight of 1/2 is twice the noise. Towards a third party, and behind an aggregator."""
    samplers = dict(zip("ab", OTHERS[name], strict=True))
    weights = {"a": 0.5, "b": 1.0}
    traced = fp.trace_round(
        averaging(fp.grouped(LABELS, samplers, weights=weights)), start(), THIRTY
    )
    for group, sampler in samplers.items():
        alone = averaging(sampler, 2 / weights[group])
        for view in ("third_party", "server_secagg"):
            found = traced.certify(6, 1e-3, view=view).of_groups[group]
            expected = certified(alone, 6, 1e-3, view=view)
            assert found.epsilon == pytest.approx(expected.epsilon, rel=1e-9)
            assert found.relation == expected.relation


def halves(sampler):
    """The same draws in two groups of three, but for who is drawn together."""
    drawn = sampler.accounting
    if drawn.full:
        own = fp.everyone(3) if drawn.everyone else fp.fixed_size(3, 2)
        return fp.grouped([*"aaabbb"], {"a": own, "b": own}), fp.fixed_size(6, 4)
    own = fp.poisson(3, 0.5, 3)
    return fp.grouped([*"aaabbb"], {"a": own, "b": own}), fp.poisson(6, 0.5, 6)


NOISY = {name: ENTRIES[name] for name in that(lambda entry: entry.noise)}


OF_EACH = tiers.one_of_each(NOISY, lambda e: (e.noise, e.of_integers, e.algorithm.unit))


@tiers.every("name", OF_EACH, kind=lambda entry: entry.noise)
def test_groups_that_are_alike_cost_what_one_draw_costs(name):
    """Of every view; nothing is claimed of groups, and none of the algorithms knows of them."""
    make = ENTRIES[name].make
    by_group, at_once = halves(make().sampler)
    if make().sampler.accounting.everyone:
        at_once = make().sampler
    found, expected = (
        fp.trace_round(make(sampler=drawn), PARAMS, FEDERATION) for drawn in (by_group, at_once)
    )
    if name != "dp_sgd_wav":  # whose claim is of records, whoever takes part
        assert found.algorithm.claim(5, 1e-3) is None
    for view in fp.privacy.VIEWS:
        one, other = (traced.certify(5, 1e-3, view=view) for traced in (found, expected))
        assert one.epsilon == pytest.approx(other.epsilon, rel=1e-9)
        assert (one.relation, one.basis) == (other.relation, other.basis)
        assert one.of_groups["a"].epsilon == one.of_groups["b"].epsilon


REAL = {name: entry for name, entry in NOISY.items() if not entry.of_integers}


@tiers.every("name", REAL)
def test_half_a_weight_is_twice_the_noise(name):
    """Of every mechanism of floats; not where a client adds noise to what it sends, which is weighted along."""
    sampler = fp.grouped([*"aaabbb"], fp.everyone(CLIENTS), weights={"a": 0.5, "b": 1.0})
    traced = fp.trace_round(ENTRIES[name].make(sampler=sampler), PARAMS, FEDERATION)
    half, whole = ([*map(featured, traced._rows(5, UnitKind(group=group)))] for group in "ab")
    factor = 1 if ENTRIES[name].noise == "own" or traced.algorithm.unit == "record" else 2
    for one, other in zip(half, whole, strict=True):
        assert one.noisy.multiplier == pytest.approx(factor * other.noisy.multiplier)
        assert replace(one, used=None) == replace(other, noisy=one.noisy, used=None)


def test_noise_of_ones_own_is_weighted_along():
    """So a weight does not count where each client adds it, and the noises of all are not added up."""
    sampler = {"a": fp.fixed_size(10, 5), "b": fp.fixed_size(20, 10)}
    make = partial(fp.papers.ldp_fed_avg, squared, **TRAINING, mechanism=fp.gaussian(0.5, 2.0))
    for weights, factor in ((None, math.sqrt(15)), ({"a": 0.5, "b": 1.0}, 1.0)):
        algorithm = make(sampler=fp.grouped(LABELS, sampler, weights=weights))
        traced = fp.trace_round(algorithm, start(), THIRTY)
        for kind in traced.kinds:
            seen = {r.view: r.noisy.multiplier for r in traced._rows(2, kind)}
            assert seen["server"] == 2.0
            assert seen["third_party"] == pytest.approx(2.0 * factor)


ONE_DRAW = {
    "everyone": fp.everyone(30),
    "fixed": fp.fixed_size(30, 1),
    "dropping": fp.dropping(fp.fixed_size(30, 4), 0.2),
    "poisson": fp.poisson(30, 0.1, 30),
    "cut": fp.poisson(30, 0.1, 4),
    "with replacement": fp.with_replacement([1] * 30, 2),
    "allocation": fp.random_allocation(30, 5),
}


@pytest.mark.parametrize("name", ONE_DRAW)
def test_noises_of_different_loudness_hide_nobody_who_may_stand_for_another(name):
    """A weight makes a member's own noise quieter, a clip scale does not: so one draw of both is known, or refused."""
    numbers = {"weights": {"a": 0.5, "b": 1.0}, "clip_scales": {"a": 1.0, "b": 0.5}}
    drawn = ONE_DRAW[name]
    if not is_alone(drawn.accounting.of_a_round):
        with refused("a client may stand in the place of one that counts otherwise"):
            fp.grouped(LABELS, drawn, **numbers)
        return
    algorithm = fp.papers.ldp_fed_avg(
        squared,
        **TRAINING,
        mechanism=fp.gaussian(0.5, 2.0),
        sampler=fp.grouped(LABELS, drawn, **numbers),
    )
    traced = fp.trace_round(algorithm, start(), THIRTY)
    for kind in traced.kinds:
        assert all(row.drawn.by.everyone for row in traced._rows(2, kind))


@pytest.mark.slow
def test_the_audit_of_the_worst_group_is_below_its_certificate_and_near_it():
    """A bound above a true epsilon has probability 1e-6; 60 % of the certificate are found at 95 % confidence."""
    sampler = fp.grouped(LABELS, POISSON, **COUNTS)
    traced = fp.trace_round(averaging(sampler, 2.0), start(), THIRTY)
    certificates = traced.certify(8, 1e-2).of_groups
    assert certificates["b"].epsilon > 3 * certificates["a"].epsilon
    for kind in traced.kinds:
        scores = draw_scores(traced.seen(8, kind), "third_party", draws=20_000)
        certificate = certificates[kind.group]
        assert lower_bounds(scores, 1e-2, FALSE_ALARM).least <= certificate.epsilon
        if kind.group == "b":
            assert lower_bounds(scores, 1e-2).least > 0.6 * certificate.epsilon
    with refused("kind: None; units of each kind are seen by themselves; give one of `kinds`"):
        traced.seen(30)


def test_several_runs_of_one_grouping_are_counted_by_group():
    """Each group's epsilon is of all runs together; runs of other groups are refused."""
    first = averaging(fp.grouped(LABELS, POISSON), 4.0)
    second = averaging(fp.grouped(LABELS, fp.everyone(30), weights={"a": 0.5, "b": 0.25}), 40.0)
    whole = fp.certify_together([(first, 5), (second, 3)], start(), THIRTY, 1e-3)
    for group, rate, loud in (("a", 0.2, 80.0), ("b", 0.5, 160.0)):
        event = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(4.0))
        both = dp.SelfComposedDpEvent(event, 5), dp.SelfComposedDpEvent(dp.GaussianDpEvent(loud), 3)
        own = pld(dp.ComposedDpEvent(list(both))).get_epsilon(1e-3)
        assert whole.of_groups[group].epsilon == pytest.approx(own, rel=1e-3)
    other = averaging(fp.grouped(LABELS[::-1], POISSON), 4.0)
    with refused("others are drawn by other groups"):
        fp.certify_together([(first, 5), (other, 3)], start(), THIRTY, 1e-3)
