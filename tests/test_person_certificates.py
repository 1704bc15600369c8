"""Certificates of persons: of several clients, of records at several clients, of records with several owners."""

import math
from dataclasses import replace
from functools import cache
from itertools import product

import jax
import numpy as np
import optax
import pytest
import tiers
from every_algorithm import ENTRIES, PER_CLIENT, traced
from scipy import optimize, stats
from small import FALSE_ALARM, refused, squared, start, table_of

import fedpriv as fp
from fedpriv.attacks.bounds import best_thresholds, lower_bounds
from fedpriv.attacks.mechanism_audit import draw_scores
from fedpriv.certification.persons_held import Held, PersonsHeld, persons_held
from fedpriv.certification.unit_kinds import ANY
from fedpriv.pairs.search import curves_of
from fedpriv.privacy import VIEWS, Poisson
from fedpriv.privacy.certify import pair_of
from fedpriv.privacy.drawn import Drawn, Repeated
from fedpriv.privacy.played import plays_of
from fedpriv.privacy.rows import Row
from fedpriv.privacy.sampling import Who
from fedpriv.proof.cases import Noisy
from fedpriv.proof.row import seen_of

pytestmark = pytest.mark.usefixtures("quick_to_compile")

N, RECORDS, SIGMA, ROUNDS, DELTA = 12, 6, 2.0, 6, 1e-4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N * RECORDS, 3)).astype(np.float32)
TABLE = {"x": X, "y": X.sum(1), "device": np.repeat(np.arange(N), RECORDS)}


def federation(person=None, **how):
    return fp.Federation.from_arrays(TABLE, "device", person=person, **how)


@cache
def devices(clients):
    """Of so many clients a person."""
    return federation(np.arange(N) // clients)


@cache
def patients(*counts):
    """One person has so many records at the first clients; all other records are others', one each."""
    owner = 1 + np.arange(N * RECORDS)
    for client, count in enumerate(counts):
        owner[client * RECORDS : client * RECORDS + count] = 0
    return federation(owner)


def by_client(sampler=None, noise=SIGMA, **more):
    plain = {"optimizer": lambda t: optax.sgd(0.1), "batches": fp.full_batch()}
    sampler = sampler or fp.poisson(N, 0.25, N)
    private = {"clip_norm": 1.0, "noise_multiplier": noise}
    return fp.dp_fed_avg(squared, sampler=sampler, **private, **plain, **more)


def by_record(cohorts=None, records=None, steps=1, **more):
    local = fp.LocalSteps(
        fp.per_example(squared),
        records=records or fp.poisson(RECORDS, 0.5, RECORDS),
        steps=steps,
        optimizer=lambda t: optax.sgd(0.1),
        mechanism=fp.gaussian(clip_norm=1.0, noise_multiplier=SIGMA),
    )
    return fp.dp_sgd(local, sampler=cohorts or fp.everyone(N), **more)


def certified(algorithm, of, rounds=ROUNDS, delta=DELTA, **how):
    return fp.trace_round(algorithm, start(), of).certify(rounds, delta, **how)


@cache
def of_devices(clients):
    """What its devices cost a person who has so many."""
    return certified(by_client(), devices(clients))


def with_persons(name, *holdings, share=False):
    """The traced round of an algorithm, for a federation whose persons hold this."""
    return traced(name)._replace(persons=PersonsHeld(tuple(holdings), share, False, False))


ONE = Held(PER_CLIENT, PER_CLIENT)


@tiers.every("name", ENTRIES)
def test_a_person_with_one_client_or_record_costs_what_that_costs(name):
    """To the bit: the same pairs, of another unit."""
    unit = traced(name).algorithm.unit
    held = ONE._replace(records=1) if unit == "record" else ONE
    sized = PER_CLIENT if traced(name).public_sizes else None
    of_unit = traced(name).seen(3) if unit == "client" or sized is None else None
    of_person = with_persons(name, (held,)).seen(3)
    of_records = {plays_of(each).of_records for each in of_person}
    assert {each.unit for each in of_person} == {"person"}
    assert of_records == {unit == "record"}
    if of_unit is not None:
        assert tuple(replace(each, unit=unit) for each in of_person) == of_unit


def moved(entry):
    """What is moved farther by more of a person: sums of integers, or of clients' messages, or noisy gradients."""
    return entry.of_integers or (entry.algorithm.unit, bool(entry.noise))


OF_EACH = tiers.one_of_each(ENTRIES, lambda e: (e.noise, e.of_integers, e.algorithm.unit))


@tiers.every("name", OF_EACH, kind=moved)
def test_more_of_a_person_never_costs_less(name):
    """Of every view; or why nothing is certified is said in a line."""
    unit = traced(name).algorithm.unit
    for view in VIEWS:
        least = 0.0
        for several in (1, 2, 3):
            held = (ONE,) * several if unit == "client" else (ONE._replace(records=several),)
            try:
                found = with_persons(name, held).certify(5, 1e-3, view=view).epsilon
            except ValueError as error:
                why = str(error)
            else:
                assert found >= least * (1 - 1e-9)
                least = found
                continue
            assert several > 1
            assert "per_person=1" in why
            assert "\n" not in why
            break


PEOPLE = 4
DRAWN = {
    "poisson": fp.poisson(PEOPLE, 0.25),
    "fixed": fp.fixed_size(PEOPLE, 2),
    "everyone": fp.everyone(PEOPLE),
}


def drawn_by_person(sampler):
    of = devices(N // PEOPLE)
    return by_client(fp.by_person(sampler, of), noise=3 * SIGMA), of


@tiers.every("drawn", DRAWN, kind=lambda sampler: "any")
def test_all_clients_in_one_cohort_or_none_divide_the_multiplier(drawn):
    sampler = DRAWN[drawn]
    both, of = drawn_by_person(sampler)
    single = fp.Federation.blank({"x": X[0], "y": X[0, 0]}, PEOPLE, RECORDS)
    one, other = (
        fp.trace_round(*run) for run in ((both, start(), of), (by_client(sampler), start(), single))
    )
    for view in VIEWS[::2]:
        ours, theirs = (traced.certify(ROUNDS, DELTA, view=view) for traced in (one, other))
        assert ours.epsilon == pytest.approx(theirs.epsilon, rel=1e-6)
        assert (ours.unit, ours.relation) == ("person", theirs.relation)


@pytest.mark.slow
def test_drawing_persons_passes_every_check():
    algorithm, of = drawn_by_person(DRAWN["poisson"])
    fp.check_algorithm(algorithm, start(), of)


def test_a_persons_clients_are_drawn_together():
    of = federation([0, 0, 1, 2, 2, 2, 1, 3, 3, 3, 3, 0])
    sampler = fp.by_person(fp.fixed_size(4, 2), of)
    draw = jax.jit(sampler.draw)
    for seed in range(20):
        drawn = draw(jax.random.key(seed))
        members = np.asarray(drawn.ids)[np.asarray(drawn.mask)]
        owners = np.array([0, 0, 1, 2, 2, 2, 1, 3, 3, 3, 3, 0])[members]
        assert len(set(owners)) == 2
        assert all((owners == p).sum() == [3, 2, 3, 4][p] for p in set(owners))
    assert sampler.expected_size == 6
    assert sampler.accounting.most == 7


def test_the_certificate_is_of_the_person_with_the_most():
    of = federation([0, 0, 0, *range(1, 10)])
    certificate = certified(by_client(), of)
    assert certificate.epsilon == of_devices(3).epsilon
    assert certificate.unit == "person"
    assert any("at most 3 clients of a person" in text for text in certificate.assumptions)
    assert "person" in certificate.in_words()
    assert "person-level" in str(certificate)
    bounded = federation([0, 0, 0, *range(1, 10)], per_person=1)
    sampler = fp.poisson(10, 0.25, 10)
    assert certified(by_client(sampler), bounded).epsilon < certificate.epsilon


def gaussian(eps, apart):
    upper, lower = stats.norm.cdf(np.array([1, -1]) * apart / 2 - eps / apart)
    return upper - np.exp(eps) * lower


def test_records_at_several_clients_are_composed():
    """All patterns of two rounds: which of a person's two clients take part; batches are whole."""
    whole = by_record(fp.poisson(N, 0.3, N), fp.everyone(RECORDS), steps=2)
    ours = certified(whole, patients(2, 1), rounds=2)

    def delta(eps):
        total = 0.0
        for there in product((0, 1), repeat=4):  # client 0 and 1, in round 0 and 1
            chance = math.prod(0.3 if b else 0.7 for b in there)
            square = 2 * (2**2 * (there[0] + there[2]) + 1**2 * (there[1] + there[3]))
            total += chance * gaussian(eps, math.sqrt(square) / SIGMA) if square else 0.0
        return total - DELTA

    assert ours.epsilon == pytest.approx(optimize.brentq(delta, 0, 50), rel=1e-3)
    assert (ours.unit, ours.relation) == ("person", "zero_out")


@pytest.mark.slow
def test_secret_batches_of_several_clients_are_composed():
    """All patterns of a round; of each, losses of the batches' mixtures, which other tests compute on their own."""
    algorithm = by_record(fp.poisson(N, 0.5, N), steps=2)
    ours = certified(algorithm, patients(3, 2), rounds=1).epsilon

    def of_batches(records):
        drawn = Drawn(Poisson(RECORDS, 0.5, RECORDS), Who(records))
        noisy = Noisy("gaussian", 1 / SIGMA)
        return seen_of(Row("third_party", "person", noisy, "own", drawn, Repeated(2), True))

    patterns = [[of_batches(3)], [of_batches(2)], [of_batches(3), of_batches(2)]]
    each = []
    for pattern in patterns:
        pair = pair_of(pattern, "emptied")
        by_losses, *_ = curves_of(pair, DELTA, 1e-14)
        tilts = [direction.tilts for direction in by_losses.witness.directions]
        each.append(list(zip(by_losses.witness.composed(pair), tilts, strict=True)))

    def delta(eps, way):
        both = (
            composed.delta(np.array([eps]), tilts) for composed, tilts in (p[way] for p in each)
        )
        return sum(0.25 * float(one[0]) for one in both) - DELTA

    theirs = max(optimize.brentq(delta, 0, 50, args=(way,)) for way in (0, 1))
    assert ours == pytest.approx(theirs, rel=1e-3)


@pytest.mark.slow
def test_the_costliest_pattern_is_certified():
    owner = 100 + np.arange(N * RECORDS)
    owner[:3], owner[RECORDS : RECORDS + 2], owner[2 * RECORDS : 2 * RECORDS + 2] = 0, 1, 1
    of = federation(owner)
    assert persons_held(of).patterns == ((Held(6, 1),), (Held(6, 2), Held(6, 2)), (Held(6, 3),))
    both = certified(by_record(), of).epsilon
    assert both == max(certified(by_record(), patients(*c)).epsilon for c in ((3,), (2, 2)))


def test_of_many_patterns_a_client_counts_as_the_smallest_that_could_hold_the_records():
    """Which may be more than the smallest of all clients has."""
    patterns = tuple((Held(2500, 1 + i % 15), Held(2501, 1 + i // 15)) for i in range(225))
    many = PersonsHeld((*patterns, (Held(10, 1),)), True, False, False)
    found = many.costliest(True, True)
    assert {held.size for one in found for held in one} == {10, *range(11, 16)}
    assert all(held.records <= held.size for one in found for held in one)
    assert (Held(15, 15), Held(15, 15)) in found
    assert len(found) < 30
    assert many.costliest(True, False) == ((Held(None, 15), Held(None, 15)),)


def test_a_sum_with_the_noise_of_all_is_moved_by_all_clients_of_a_person_at_once():
    """Records at two clients cost what two at one do; a server that sees both messages sees the noise of each."""
    together = {"together": True}
    cohorts = fp.fixed_size(N, N)
    one, two = (
        fp.trace_round(by_record(cohorts, **together), start(), patients(*counts))
        for counts in ((2,), (1, 1))
    )
    adders = {view: {row.adder for row in rows} for view, rows in table_of(two, 1).items()}
    assert adders == {
        "third_party": {"own_summed"},
        "server": {"own"},
        "server_secagg": {"own_summed"},
    }
    for view in ("third_party", "server_secagg"):
        summed, alone = (traced.certify(1, DELTA, view=view).epsilon for traced in (two, one))
        assert summed == pytest.approx(alone, rel=1e-9)


def test_clients_of_several_persons_stay_when_one_is_replaced():
    """A client-level algorithm: its message becomes another, twice as far."""
    shared, whole = patients(1, 1), devices(2)
    everyone = fp.everyone(N)
    ours = certified(by_client(everyone), shared)
    theirs = certified(by_client(everyone, noise=SIGMA / 2), whole)
    assert ours.epsilon == pytest.approx(theirs.epsilon, rel=1e-9)
    assert ours.relation == "replace_one"
    secret = certified(by_client(), shared)
    assert secret.relation == "replace_one"
    assert of_devices(2).epsilon < secret.epsilon < ours.epsilon
    assert any("they stay, and send something else" in text for text in secret.assumptions)


def test_records_of_several_persons_are_zeroed_out():
    owners = np.stack([np.arange(72) % 40, 40 + np.arange(72) % 30], axis=1)
    of = federation(owners, per_person=1)
    certificate = certified(by_record(fp.everyone(of.num_clients)), of)
    assert (certificate.unit, certificate.relation) == ("person", "zero_out")
    assert any("a record may be several persons'" in text for text in certificate.assumptions)
    single = fp.Federation.blank({"x": X[0], "y": X[0, 0]}, of.num_clients, RECORDS)
    theirs = certified(by_record(fp.everyone(of.num_clients)), single)
    assert certificate.epsilon == theirs.epsilon
    assert "set to zero" in certificate.in_words()


AUDITED = {
    "of one size": (by_client(fp.fixed_size(N, 11)), devices(2), "third_party"),
    "records": (by_record(fp.poisson(N, 0.5, N)), patients(3, 2), "third_party"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", AUDITED)
def test_an_audit_of_the_worst_person_is_below_its_certificate_and_near_it(name):
    algorithm, of, view = AUDITED[name]
    rounds, delta = 2, 0.01
    found = fp.trace_round(algorithm, start(), of)
    certified = found.certify(rounds, delta, view=view).epsilon
    scores = draw_scores(found.seen(rounds), view, draws=40_000)
    halves = [
        scores._replace(present=scores.present[half], absent=scores.absent[half])
        for half in (slice(20_000), slice(20_000, None))
    ]
    threshold = best_thresholds(halves[0], delta, runs=20_000)
    surely = lower_bounds(halves[1], delta, significance=FALSE_ALARM, threshold=threshold).least
    assert surely <= certified
    likely = lower_bounds(halves[1], delta, threshold=threshold).least
    assert likely > 0.6 * certified


def test_no_kind_of_person_stands_for_others():
    """One with three records at a client, one with a record at each of two: either may be the costlier."""
    owner = 100 + np.arange(N * RECORDS)
    owner[:3], owner[RECORDS], owner[2 * RECORDS] = 0, 1, 1
    found = fp.trace_round(by_record(), start(), federation(owner))
    assert len(found.kinds) == 2
    with refused("kind: None; units of each kind are seen by themselves"):
        found.seen(ROUNDS)
    with refused("kind: .*units are persons, who may hold more than one"):
        found.certify(ROUNDS, DELTA, kind=ANY)


def test_a_persons_clients_and_records_are_together_only_under_one_adjacency():
    """Without its clients a person's records are not at clients that add their noise."""
    everyone, of = by_client(fp.everyone(N)), devices(2)
    for runs in ([(by_client(), 5), (by_record(), 5)], [(by_record(), 5), (everyone, 5)]):
        with refused("removed: a client stays without a record.* emptied: .* there is no client"):
            fp.certify_together(runs, start(), of, DELTA)
    whole = by_record(records=fp.everyone(RECORDS))
    runs = [(everyone, 5), (whole, 5)]
    for own, in_turn in ((of, runs), (patients(1, 1), runs[::-1])):
        assert fp.certify_together(in_turn, start(), own, DELTA).relation == "zero_out"


def test_clients_that_are_all_one_persons_stay_without_its_records():
    shared = certified(by_record(), patients(RECORDS - 1))
    alone = certified(by_record(), patients(RECORDS))
    assert (shared.relation, alone.relation) == ("add_or_remove", "zero_out")
    assert any("that they are there is not hidden" in text for text in alone.assumptions)


@pytest.mark.slow
def test_runs_and_calibration_are_of_persons_too():
    of = devices(2)
    together = fp.certify_together([(by_client(), 2), (by_client(), 4)], start(), of, DELTA)
    assert together.unit == "person"
    assert together.epsilon == pytest.approx(of_devices(2).epsilon, rel=1e-6)
    budget = {"epsilon": 3.0, "rounds": ROUNDS, "delta": DELTA}
    make = lambda noise: by_client(noise=noise)  # noqa: E731
    found = fp.calibrate_noise(make, start(), of, **budget, tolerance=5e-3)
    assert certified(by_client(noise=found), of).epsilon == pytest.approx(3.0, rel=1e-2)


def test_streamed_persons_are_certified_alike():
    streamed = fp.StreamedFederation.from_arrays(TABLE, "device", person=np.arange(N) // 2)
    assert certified(by_client(), streamed) == of_devices(2)
    sampler = fp.by_person(fp.poisson(6, 0.25), streamed)
    assert certified(by_client(sampler), devices(2)).unit == "person"
    with refused("federation: .*CohortFederation"):  # which does not know of them
        certified(by_client(), streamed.empty())
