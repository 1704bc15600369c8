"""Where kinds of unit differ, what is said of everybody holds for every kind: against explicit pairs."""

import math
from dataclasses import replace

import numpy as np
import optax
import pytest
import tiers
from buffered_runs import DELTA as LATE_DELTA
from buffered_runs import certified as late_certified
from buffered_runs import fed_buff
from correlated_runs import N
from every_algorithm import ENTRIES, traced
from scipy import optimize, stats
from small import refused, squared, start

import fedpriv as fp
from fedpriv.certification.groups import by_group
from fedpriv.certification.unit_kinds import UnitKind
from fedpriv.core.json_values import plain, typed
from fedpriv.experiments.runs.contents import Report
from fedpriv.pairs.search import SET_ASIDE
from fedpriv.privacy import VIEWS, Everyone, Poisson, WithReplacement, certify_seen, declared
from fedpriv.privacy.words import SEVERAL_RUNS

pytestmark = pytest.mark.usefixtures("quick_to_compile")

EPSILONS = np.concatenate([np.linspace(0, 3, 13), np.linspace(3.5, 12, 10)])
X = np.linspace(-30, 40, 140_001)
DIGIT = {"x": np.zeros(3, np.float32), "y": np.float32(0)}


def divergence(one, other):
    """f64[epsilons], by integration of densities on X."""
    step = X[1] - X[0]
    return np.array([np.maximum(0, one - math.exp(e) * other).sum() * step for e in EPSILONS])


def mixture(sigma, law):
    """Of normals around n, of which the probability is p: density on X."""
    return sum(p * stats.norm.pdf(X, n, sigma) for n, p in law)


def both_ways(one, other):
    return np.maximum(divergence(one, other), divergence(other, one))


def below(profile, other):
    """Nowhere above it, but for rounding."""
    return (profile.delta(EPSILONS) <= other.delta(EPSILONS) * (1 + 1e-12)).all()


def gaussian(epsilon, mu):
    return stats.norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * stats.norm.cdf(
        -mu / 2 - epsilon / mu
    )


def holds_for_all(certificate, truths, met=0.999):
    """No kind's truth is above the profile; at each epsilon that of some kind meets it, and no kind's at all."""
    bound, true = certificate.profile().delta(EPSILONS), np.array(list(truths.values()))
    counted = true.max(axis=0) > 1e-9  # the rest is lost in the sums
    assert (true <= bound * (1 + 1e-6) + 1e-12).all()
    assert (true.max(axis=0) >= met * bound)[counted].all()
    assert len(set(true.argmax(axis=0)[counted])) > 1
    assert certificate.profile().epsilon(certificate.delta) == certificate.epsilon
    with refused(f"certificate: of {len(truths)} kinds of unit, and an event is of one"):
        certificate.dp_event()
    assert f"the costliest of {len(truths)} kinds of unit" in certificate.event


def groups(rates, weights, sigma, members, delta, cut=False, **how):
    """DP-FedAvg of such groups, one round."""
    labels = [name for name, n in members.items() for _ in range(n)]
    samplers = {k: fp.poisson(n, rates[k], None if cut else n) for k, n in members.items()}
    algorithm = fp.dp_fed_avg(
        squared,
        sampler=fp.grouped(labels, samplers, weights=weights),
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.full_batch(),
        clip_norm=1.0,
        noise_multiplier=sigma,
    )
    federation = fp.Federation.blank(DIGIT, len(labels), 2)
    return fp.trace_round(algorithm, start(), federation).certify(1, delta, **how)


def test_a_few_who_always_take_part_are_not_hidden_by_many_who_seldom_do():
    """A thousand clients decide epsilon at 1e-5; twenty of them are recognised by 92 in a thousand, and not by 12."""
    members = {"often": 20, "seldom": 1000}
    rates, weights = {"often": 1.0, "seldom": 0.002}, {"often": 0.25, "seldom": 1.0}
    whole = groups(rates, weights, 0.25, members, 1e-5, cut=True)
    seldom, often = whole.of_groups["seldom"], whole.of_groups["often"]
    assert whole.epsilon == seldom.epsilon > often.epsilon
    numbers = whole.operational_numbers()
    assert numbers.true_positive_rates[0] == pytest.approx(
        stats.norm.cdf(stats.norm.ppf(0.01) + 1), rel=1e-3
    )
    assert "at most 93 of 1,000" in whole.in_words()
    assert "at most 12 of 1,000" in seldom.in_words()
    assert numbers.advantage == pytest.approx(2 * stats.norm.cdf(0.5) - 1, rel=1e-6)
    assert numbers.mu >= 1
    at = optimize.brentq(lambda e: gaussian(e, 1.0) - 1e-2, 0, 10)
    assert whole.profile().epsilon(1e-2) == pytest.approx(at, rel=1e-4)
    assert seldom.profile().epsilon(1e-2) == 0
    joined = [text for text in whole.assumptions if "cut down" in text]
    assert joined == [
        "of units of group 'seldom': draws of more than 11 units are cut down uniformly at random"
    ]


RATES = {"a": 0.01, "b": 0.2, "c": 1.0}
WEIGHTS = {"a": 1.0, "b": 0.45, "c": 0.2}
SIGMA = 0.3


@pytest.mark.slow
def test_of_three_groups_the_largest_at_each_point():
    """Explicit neighbours: a client there, or not; and the attacker's errors by the likelihood ratio."""
    whole = groups(RATES, WEIGHTS, SIGMA, dict.fromkeys("abc", 4), 1e-4)
    still, truths, rate = mixture(SIGMA, [(0, 1)]), {}, np.array([1e-3, 0.01, 0.1, 0.5])
    missed = whole.profile().false_negative_rate(rate)
    for name, q in RATES.items():
        there = mixture(SIGMA, [(0, 1 - q), (WEIGHTS[name], q)])
        truths[name] = both_ways(there, still)
        for p, null in ((there, still), (still, there)):
            order = np.argsort(null / np.maximum(p, 1e-300), kind="stable")
            false, true = (np.cumsum(each[order]) * (X[1] - X[0]) for each in (null, p))
            assert (missed <= 1 - np.interp(rate, false, true) + 1e-5).all()
        own = whole.of_groups[name].profile()
        assert below(own, whole.profile())
        np.testing.assert_allclose(own.delta(EPSILONS), truths[name], rtol=1e-3, atol=1e-9)
    holds_for_all(whole, truths)


@tiers.every("view", ["server", "server_secagg"])
def test_of_three_groups_towards_a_server(view):
    """It knows who takes part, and in clear sees one's own share of the noise, of twelve."""
    whole = groups(RATES, WEIGHTS, 2 * SIGMA, dict.fromkeys("abc", 4), 1e-4, view=view)
    share = math.sqrt(12) if view == "server" else 1
    truths = {n: q * gaussian(EPSILONS, share * WEIGHTS[n] / 2 / SIGMA) for n, q in RATES.items()}
    holds_for_all(whole, truths)


def test_groups_that_are_alike_have_one_curve_and_its_event():
    whole = groups({"a": 0.2, "b": 0.2}, None, 1.0, {"a": 4, "b": 4}, 1e-4)
    alone = whole.of_groups["a"]
    assert len(whole.compositions) == 1
    assert (whole.event, whole.dp_event()) == (alone.event, alone.dp_event())


def by_record(records, cohorts, sigma=2.0):
    gradients = fp.per_example(squared)
    local = fp.LocalSteps(gradients, records, 1, lambda t: optax.sgd(0.1), fp.gaussian(1.0, sigma))
    return fp.dp_sgd(local, sampler=cohorts)


def hospitals(sizes, *patients):
    """Each patient has (client, number of records) for some; all other records are of one patient each."""
    total = sum(sizes)
    table = {"x": np.ones((total, 3), np.float32), "y": np.zeros(total, np.float32)}
    begins = np.cumsum([0, *sizes])
    owner = 1000 + np.arange(total)
    for number, held in enumerate(patients):
        for client, records in held.items():
            owner[begins[client] : begins[client] + records] = number
            begins = begins + records * (np.arange(len(begins)) == client)
    clients = np.split(np.arange(total), np.cumsum(sizes)[:-1])
    return fp.Federation.from_arrays(table, clients, person=owner)


@pytest.mark.slow
def test_of_patients_by_records_the_largest_at_each_point():
    """Twenty of the 400 records of a client, or one of ten: batches of five, all of whose others are alike.

    What is proved of several records is no pair of this kind, and so not met; a single one meets it near 0.
    """
    sizes, sigma = (400, 10), 4.0
    algorithm = by_record(fp.PublicSizes(sizes, batch=5), fp.everyone(2), sigma)
    run = algorithm, start(), hospitals(sizes, {0: 20})
    whole, traced_round = fp.certify(*run, 1, 1e-5), fp.trace_round(*run)
    still, truths = mixture(sigma, [(0, 1)]), {}
    assert (whole.unit, whole.relation) == ("person", "replace_one")
    for kind in traced_round.kinds:
        ((size, records, _),) = kind.held
        drawn = stats.hypergeom(size, records, 5)
        there = mixture(sigma, [(2 * j, drawn.pmf(j)) for j in range(6)])
        truths[size, records] = both_ways(there, still)
        own = traced_round.certify(1, 1e-5, kind=kind)
        assert own.epsilon <= whole.epsilon
        assert below(own.profile(), whole.profile())
        if own.epsilon == whole.epsilon:
            costliest = own.profile().delta(EPSILONS)
    assert truths.keys() == {(400, 20), (10, 1)}
    holds_for_all(whole, truths, met=0)
    assert truths[10, 1][0] == pytest.approx(whole.profile().delta(0.0), rel=1e-3)
    assert truths[10, 1][0] > 1.9 * costliest[0]
    assert any(text.startswith("whose each client and record is") for text in whole.assumptions)


@pytest.mark.slow
def test_of_patients_statistics_and_training_that_knows_sizes():
    """The statistics do not; twenty records are more than the smallest client has."""
    sizes, of = (400, 10), hospitals((400, 10), {0: 20})
    mean = fp.statistics.mean_and_variance("x", bounds=(0.0, 1.0))
    statistic = mean.algorithm(of, noise_multiplier=60.0, unit="record")
    training = by_record(fp.PublicSizes(sizes, batch=5), fp.everyone(2), 4.0)
    both = fp.certify_together([(statistic, 1), (training, 1)], start(), of, 1e-5)
    alone = fp.certify(training, start(), of, 1, 1e-5)
    assert len(both.compositions) == len(alone.compositions) == 2
    assert both.profile().epsilon(1e-5) == both.epsilon
    assert below(alone.profile(), both.profile())
    assert below(fp.certify(statistic, start(), of, 1, 1e-5).profile(), both.profile())


def test_of_patients_by_clients_the_one_with_most_covers_all():
    """So there is one kind: its curve is above that of fewer clients everywhere."""
    table = {"x": np.ones((24, 3), np.float32), "y": np.zeros(24, np.float32)}
    clients = np.arange(24).reshape(12, 2)
    of = fp.Federation.from_arrays(table, clients, person=[0, 0, 0, 1, 1, *range(2, 9)])
    algorithm = fp.dp_fed_avg(
        squared,
        sampler=fp.poisson(12, 0.2, 12),
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.full_batch(),
        clip_norm=1.0,
        noise_multiplier=1.5,
    )
    found = fp.trace_round(algorithm, start(), of).certify(1, 1e-6)
    bound = found.profile().delta(EPSILONS)
    still = mixture(1.5, [(0, 1)])
    for clients_of_one in (1, 2, 3):
        drawn = stats.binom(clients_of_one, 0.2)
        there = mixture(1.5, [(j, drawn.pmf(j)) for j in range(clients_of_one + 1)])
        true = both_ways(there, still)
        assert (true <= bound * (1 + 1e-6) + 1e-12).all()
    np.testing.assert_allclose(bound, true, rtol=1e-3, atol=1e-9)


LATE = [
    fp.FreeClients(N, buffer=3),
    fp.grouped([*"aabb"] * 3, {"a": fp.poisson(6, 0.02), "b": fp.poisson(6, 0.9)}),
]


@tiers.every("sampler", LATE, kind=lambda sampler: "any")
def test_of_late_classes_the_largest_at_each_point(sampler):
    """Classes of speed, and groups whose answers are late: of each its own curve, of all the largest."""
    laws = {"slow": fp.delays.constant(3), "fast": fp.delays.constant(1)}
    law = fp.delays.by_class(["slow"] * 3 + ["fast"] * (N - 3), laws)
    law = law if isinstance(sampler, fp.FreeClients) else fp.delays.constant(1)
    whole = late_certified(fed_buff(sampler, law))
    own = [each.profile() for each in whole.of_groups.values()]
    assert len(own) == 2
    assert all(below(each, whole.profile()) for each in own)
    largest = np.max([each.delta(EPSILONS) for each in own], axis=0)
    np.testing.assert_allclose(whole.profile().delta(EPSILONS), largest, rtol=1e-3)
    assert whole.profile().epsilon(LATE_DELTA) == whole.epsilon


@pytest.mark.slow
def test_a_client_with_records_of_several_groups_has_the_largest_of_their_curves():
    """By `each_client`, and in runs that are certified together."""
    wards = [["x"] * 20 + ["y"] * 2, ["y"] * 12]
    of = hospitals((22, 12)).replace(persons=None)
    algorithm = by_record(fp.PublicGroups(wards, batch={"x": 8, "y": 1}), fp.everyone(2), 3.0)
    first, second = fp.certify(algorithm, start(), of, 2, 1e-3, each_client=True).of_clients
    both = fp.certify_together([(algorithm, 1), (algorithm, 1)], start(), of, 1e-3)
    for whole in (first, both):
        assert len(whole.of_groups) == 2
        assert all(below(own.profile(), whole.profile()) for own in whole.of_groups.values())
        assert whole.profile().epsilon(1e-3) == whole.epsilon
    assert [*second.of_groups] == ["y"]
    assert all(SEVERAL_RUNS in own.assumptions for own in (both, *both.of_groups.values()))


def of_groups_seen(groups):
    """Of groups that are each seen once, by (multiplier, sampling)."""
    seen = {
        name: declared("third_party", "client", m, drawn, 1) for name, (m, drawn) in groups.items()
    }
    return by_group(
        {
            UnitKind(group=name): certify_seen([each], 1e-3, "third_party")
            for name, each in seen.items()
        }
    )


def test_no_number_is_of_units_of_two_adjacencies():
    """What is proved of a unit that is added is not proved of one that is replaced."""
    with refused("groups: .*certified under different adjacencies; draw all groups the same way"):
        of_groups_seen({"a": (2.0, Poisson(10, 0.5)), "b": (2.0, WithReplacement(10, 2, 0.1))})


def test_a_kind_of_which_nothing_is_seen_does_not_speak_for_the_others():
    """Also where epsilon is 0 for all: what is assumed of those who are seen stands in the certificate."""
    whole = of_groups_seen({"a": (math.inf, Everyone(10)), "b": (1e4, Everyone(10))})
    seen = whole.of_groups["b"]
    assert whole.epsilon == seen.epsilon == 0 < whole.profile().delta(0.0)
    assert whole.accountant == seen.accountant != "none"
    assert any("in which group a unit is" in text for text in whole.assumptions)


def test_one_kind_that_nothing_hides_leaves_nobody_a_curve():
    """Its reason is that of all; the others keep their own."""
    whole = of_groups_seen({"a": (0.0, Everyone(10)), "b": (2.0, Everyone(10))})
    assert whole.epsilon == whole.profile().epsilon(0.5) == math.inf
    assert whole.assumptions[0].startswith("not private: ")
    assert whole.of_groups["b"].profile().epsilon(1e-3) == whole.of_groups["b"].epsilon < math.inf


def test_a_run_of_before_does_not_show_one_kinds_curve_for_everybody():
    """Its folder is read; what it says of an attacker is left out, and the reader is told."""
    whole = of_groups_seen({"a": (4.0, Everyone(10)), "b": (2.0, Everyone(10))})
    epsilons = {"third_party": {n: c.epsilon for n, c in whole.of_groups.items()}}
    certified, numbers = {"third_party": whole}, {"third_party": whole.operational_numbers()}
    now = Report(1, None, certified, {}, numbers, epsilons, of_all_kinds=True)
    read = typed(Report, plain(now))
    assert read.operational == now.operational
    assert read.in_words("third_party") == whole.in_words()
    before = {name: value for name, value in plain(now).items() if name != "of_all_kinds"}
    read = typed(Report, before)
    assert read.certified["third_party"].epsilon == whole.epsilon
    assert read.operational == {}
    assert "may be more for others" in read.in_words("third_party")
    of_one_kind = replace(now, group_epsilons={}, of_all_kinds=False)
    assert of_one_kind.operational == numbers


OF_EACH = tiers.one_of_each(ENTRIES, lambda e: (e.noise, e.of_integers, e.algorithm.unit))


@tiers.every("name", OF_EACH, kind=lambda entry: (bool(entry.noise), entry.of_integers))
def test_a_profile_has_the_certificates_epsilon_at_its_delta(name):
    """But for what is set aside of delta for integer noise, and not needed."""
    delta = 1e-2 if traced(name).algorithm.unit == "client" else 1e-6
    aside = SET_ASIDE if ENTRIES[name].of_integers else 0.0
    for view in VIEWS:
        found = traced(name).certify(3, delta, view=view)
        profile = found.profile()
        assert profile.epsilon(delta) == found.epsilon
        if 0 < found.epsilon < math.inf:
            at = float(profile.delta(found.epsilon))
            assert (
                delta * (1 - aside - 1e-5) <= at <= delta
            )  # pure noise: steep, as epsilon is rounded
