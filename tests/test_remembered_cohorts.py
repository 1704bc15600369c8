"""Clients that keep something remember when they were drawn, and later messages may show it.

A cohort of fixed size draws another client in the place of one that is not drawn, and this other one remembers. So a
third party may learn more of two rounds than two independent draws of a cohort would give.
"""

import itertools
import math

import numpy as np
import optax
import pytest
import tiers
from scipy import stats
from small import refused, regression, squared, start

import fedpriv as fp
from fedpriv.privacy import certify_seen
from fedpriv.privacy.drawn import Drawn, Repeated
from fedpriv.privacy.rows import Row
from fedpriv.privacy.sampling import Allocation, Poisson, Who, Why
from fedpriv.proof.cases import Noisy
from fedpriv.proof.pairs import Moved, Times
from fedpriv.proof.row import seen_of

DELTA, MESSAGES = 0.05, (1, -1)


def true_delta(sigma, epsilon, other):
    """Two clients, cohorts of one, two rounds; messages of 1 or -1, those of round 2 by what the client remembers.

    In the other world client i sends `other` in round 1, and one of `other` and its negative in round 2. The rival's
    message of round 2 depends on whether it was drawn before. The worst for each output of round 1, on a grid.
    """
    x = np.linspace(-1 - 7 * sigma, 1 + 7 * sigma, 401)
    step = x[1] - x[0]
    density = {m: stats.norm.pdf(x, m, sigma) for m in (*MESSAGES, 0)}
    best = 0.0
    for rival in MESSAGES:
        with_i = [density[rival] / 2, density[1] / 2]  # by who was drawn
        without = [density[rival] / 2, density[other] / 2]
        most = np.zeros(len(x))
        pairs = [*itertools.product(MESSAGES, repeat=2)]
        replaced = [*itertools.product({other, -other}, repeat=2)]
        for rivals, own, others in itertools.product(pairs, pairs, replaced):
            gap = 0.0
            for drawn in (0, 1):
                ours = (density[rivals[drawn]] + density[own[drawn]]) / 2
                theirs = (density[rivals[drawn]] + density[others[drawn]]) / 2
                gap = gap + with_i[drawn][:, None] * ours
                gap = gap - math.exp(epsilon) * without[drawn][:, None] * theirs
            most = np.maximum(most, np.maximum(gap, 0).sum(1) * step)
        best = max(best, most.sum() * step)
    return best


def heads(sampler, sigma=1.0):
    return fp.fed_per(
        squared,
        head=("b",),
        sampler=sampler,
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.full_batch(),
        mechanism=fp.gaussian(1.0, sigma),
    )


def certified(algorithm, clients, rounds=2, delta=DELTA, view="third_party"):
    return fp.certify(algorithm, start(), regression([2] * clients), rounds, delta, view=view)


def test_two_rounds_of_fixed_cohorts_hide_no_more_than_is_certified():
    """The certificate holds for a client that sends zeros; that of two fresh cohorts would fail for one replaced."""
    sigma = 0.7
    certificate = certified(heads(fp.fixed_size(2, 1), sigma), 2)
    assert certificate.relation == "zero_out"
    assert true_delta(sigma, certificate.epsilon, 0) <= DELTA
    alone = fp.dp_fed_avg(
        squared,
        sampler=fp.fixed_size(2, 1),
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.full_batch(),
        clip_norm=1.0,
        noise_multiplier=sigma,
    )
    assert certified(alone, 2).relation == "replace_one"
    assert true_delta(sigma, certified(alone, 2).epsilon, -1) > DELTA


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [fp.fixed_size(20, 5), fp.poisson(20, 0.25, 8)])
def test_who_takes_part_is_taken_to_be_known_where_one_takes_the_place_of_another(sampler):
    algorithm = heads(sampler, 2.0)
    third, summed = (
        certified(algorithm, 20, 50, 1e-4, view) for view in ("third_party", "server_secagg")
    )
    assert third.relation == "zero_out"
    assert third.epsilon == pytest.approx(summed.epsilon, rel=1e-9)


@pytest.mark.slow
def test_poisson_cohorts_that_are_not_cut_hide_as_much_as_without_memory():
    uncut = fp.poisson(20, 0.25, 20)
    remembering = certified(heads(uncut, 2.0), 20, 50, 1e-4)
    (seen, *_) = fp.trace_round(heads(uncut, 2.0), start(), regression([2] * 20)).seen(50)
    plain = certify_seen(
        [fp.privacy.declared("third_party", "client", 2.0, Poisson(20, 0.25), 50)],
        1e-4,
        "third_party",
    )
    assert remembering.relation == plain.relation == "add_or_remove"
    assert remembering.epsilon == pytest.approx(plain.epsilon, rel=1e-9)
    assert seen.pairs.removed == Times(Moved("gaussian", ((0.5, 0.25),)), 50)
    seldom = certified(heads(fp.poisson(40, 0.1, 20), 2.0), 40, 50, 1e-4)
    assert seldom.relation == "add_or_remove"
    assert seldom.epsilon < certified(heads(fp.fixed_size(40, 4), 2.0), 40, 50, 1e-4).epsilon


@pytest.mark.slow
def test_blocks_of_clients_that_remember():
    """As without memory where nobody is left out; where many are, as if it were known who takes part."""
    seldom, often = (
        certified(heads(fp.random_allocation(20, 4, capacity), 2.0), 20, 48, 1e-4)
        for capacity in (20, 5)
    )
    blocks = [fp.privacy.declared("third_party", "client", 2.0, Allocation(20, 4), 12)]
    plain = certify_seen(blocks, 1e-4, "third_party")
    assert seldom.epsilon == pytest.approx(plain.epsilon, rel=1e-9)
    assert (seldom.relation, often.relation) == ("add_or_remove", "zero_out")
    summed = certified(heads(fp.random_allocation(20, 4, 5), 2.0), 20, 48, 1e-4, "server_secagg")
    assert often.epsilon == pytest.approx(summed.epsilon, rel=1e-9)


def test_a_client_that_displaces_one_that_remembers_counts_as_seen():
    """Of 20 clients that join with 0.25 at most 15 are taken: E[q B / (K + 1); K >= B], by hand."""
    drawn = Drawn(Poisson(20, 0.25, 15), Who(remembers=True))
    fits, displaced = drawn.by.cases("removed", drawn.who)
    law = stats.binom(19, 0.25)
    several = np.arange(15, 20)
    seen = float(law.pmf(several) @ (0.25 * 15 / (several + 1)))
    assert fits.far == 1
    assert math.isinf(displaced.far)
    assert displaced.chance * displaced.rate == pytest.approx(seen)
    noisy = Noisy("gaussian", 1 / 2.0)
    once = seen_of(Row("third_party", "client", noisy, "shares", drawn, Repeated(1)))
    certificate = certify_seen([once], 2 * seen, "third_party")
    assert 0 < certificate.epsilon < math.inf
    assert certificate.accountant == "PLD"
    assert certify_seen([once], seen / 2, "third_party").epsilon == math.inf
    assert isinstance(Poisson(20, 0.25, 8).cases("removed", drawn.who), Why)  # too often


ADDED = (
    "sampling: .*removed: who takes part is taken to be known, among whom one .* would be missing"
)


@tiers.every("name", ["cut", "fixed"])
@tiers.every("hidden_first", [True, False])
def test_a_client_cannot_be_removed_where_a_view_knows_who_takes_part(name, hidden_first):
    """Of 12 clients 11 take part, and all but the removed one send -1: the sum moves by 2, or shows who is missing.

    One that sends zeros moves it by 1 in the same cohorts: counted so, no epsilon of added or removed clients holds.
    """
    hidden = fp.poisson(12, 0.25)
    shown = {"fixed": fp.fixed_size(12, 11), "cut": fp.poisson(12, 0.9, 6)}[name]
    first, then = (hidden, shown) if hidden_first else (shown, hidden)
    with refused(ADDED):
        certified(heads(fp.Opening(first, 3, then)), 12, rounds=6)
    runs = [(heads(sampler), 3) for sampler in (first, then)]
    with refused(ADDED):
        fp.certify_together(runs, start(), regression([2] * 12), DELTA)


@pytest.mark.slow
def test_what_composes_where_a_view_knows_who_takes_part():
    """A client that is replaced takes part when it did before; one of all clients may be added or removed."""
    remembered, fresh = heads(fp.fixed_size(12, 4)), fp.fixed_size(12, 4)
    alone = fp.dp_fed_avg(
        squared,
        sampler=fresh,
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.full_batch(),
        clip_norm=1.0,
        noise_multiplier=1.0,
    )
    runs = [(remembered, 3), (alone, 3)]
    both = fp.certify_together(runs, start(), regression([2] * 12), DELTA)
    assert both.relation == "replace_one"
    opened = certified(heads(fp.Opening(fp.everyone(12), 1, fp.poisson(12, 0.25))), 12)
    assert opened.relation == "add_or_remove"
