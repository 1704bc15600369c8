"""Certificates where members vanish after they were drawn: own mixtures, explicit neighbours, limits."""

import itertools
import math

import numpy as np
import optax
import pytest
import tiers
from scipy.stats import binom, norm
from small import certified, refused, squared

import fedpriv as fp
from fedpriv.pairs.search import by_losses
from fedpriv.privacy import Dropping, Everyone, FixedSize, Who, certify_seen, declared
from fedpriv.privacy.certify import pair_of

N, S, P, SIGMA, DELTA = 12, 6, 0.3125, 3.0, 1e-3  # P is a multiple of 2^-32
PLAIN = {"optimizer": lambda t: optax.sgd(0.1), "batches": fp.full_batch()}
X = np.linspace(-30, 30, 60_001)
CELL = X[1] - X[0]


def release(sampling, view="third_party", steps=1, multiplier=SIGMA, **more):
    return declared(view, "client", multiplier, sampling, steps, **more)


def epsilon_of(*releases, delta=DELTA, **more):
    return certify_seen(releases, delta, releases[0].view, **more).epsilon


def dp_fed_avg(sampler, noise_multiplier=SIGMA, **more):
    private = {"clip_norm": 1.0, "noise_multiplier": noise_multiplier}
    return fp.dp_fed_avg(squared, sampler=sampler, **PLAIN, **private, **more)


def found(sampler, view="third_party", rounds=3, delta=DELTA, **more):
    return certified(dp_fed_avg(sampler), rounds, delta, view=view, **more)


FIXED, ALL = fp.fixed_size(N, S), fp.everyone(N)


def hockey_stick(p, q, epsilon):
    """Of densities on X."""
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum() * CELL)


def gaussian_delta(epsilon, mu):
    return norm.sf(epsilon / mu - mu / 2) - math.exp(epsilon) * norm.sf(epsilon / mu + mu / 2)


# Third parties, cohorts of fixed size: one unit is replaced


def test_where_noise_is_lost_it_is_the_mixture_over_who_stays():
    """One round, integrated case by case: k of s stay, 2 C over noise of sqrt(k / s)."""
    epsilon = found(fp.dropping(FIXED, P, "lost"), rounds=1).epsilon
    delta = 0.0
    for k in range(1, S + 1):
        far = 2 / SIGMA * math.sqrt(S / k)
        with_it = (1 - k / N) * norm.pdf(X) + k / N * norm.pdf(X, far)
        delta += binom.pmf(k, S, 1 - P) * hockey_stick(with_it, norm.pdf(X), epsilon)
    assert delta == pytest.approx(DELTA, rel=1e-3)


def test_where_noise_is_whole_it_is_thinned():
    epsilon = found(fp.dropping(FIXED, P), rounds=1).epsilon
    rate = (1 - P) * S / N
    with_it = (1 - rate) * norm.pdf(X) + rate * norm.pdf(X, 2 / SIGMA)
    assert hockey_stick(with_it, norm.pdf(X), epsilon) == pytest.approx(DELTA, rel=1e-3)
    smaller, thinned = (
        by_losses(pair_of([release(drawn, steps=10)], "replaced"), DELTA).epsilon
        for drawn in (FixedSize(20, 7), Dropping(20, 10, 0.3))
    )
    assert smaller == pytest.approx(thinned, rel=1e-9)


def test_the_thinned_bound_is_attained():
    """By one of two clients that sends 1 against -1, where the other sends -1; p as small as can be."""
    n, s, p, sigma = 2, 1, 1e-6, 2.0
    epsilon = epsilon_of(release(Dropping(n, s, p), multiplier=sigma), delta=0.01)
    stays = 1 - p
    with_it = stays * (norm.pdf(X, 1, sigma) + norm.pdf(X, -1, sigma)) / 2 + p * norm.pdf(
        X, 0, sigma
    )
    without = stays * norm.pdf(X, -1, sigma) + p * norm.pdf(X, 0, sigma)
    assert hockey_stick(with_it, without, epsilon) == pytest.approx(0.01, rel=1e-3)


# Views that know who stays, and everyone


@pytest.mark.parametrize(
    ("sampler", "view", "n", "s"),
    [
        (fp.dropping(FIXED, P, "lost"), "server_secagg", N, S),
        (fp.dropping(fp.everyone(4), P, "lost"), "third_party", 4, 4),
        (fp.dropping(fp.everyone(4), P, "lost"), "server_secagg", 4, 4),
    ],
)
def test_the_mixture_over_all_patterns(sampler, view, n, s):
    """Three rounds: in each nobody sees the unit, or it stays with k - 1 others."""
    certificate = found(sampler, view)
    assert certificate.relation == "zero_out"
    cases = [(binom.pmf(k, s, 1 - P) * k / n, s / k / SIGMA**2) for k in range(1, s + 1)]
    cases.append((1 - sum(chance for chance, _ in cases), 0.0))
    delta = 0.0
    for rounds in itertools.product(cases, repeat=3):
        chance, precision = math.prod(c for c, _ in rounds), sum(x for _, x in rounds)
        if precision:
            delta += chance * gaussian_delta(certificate.epsilon, math.sqrt(precision))
    assert delta == pytest.approx(DELTA, rel=1e-3)
    assert delta <= DELTA


@pytest.mark.slow
def test_many_rounds_keep_to_the_mixture():
    """A hundred rounds, against patterns that are drawn: within five deviations (a false alarm once in 2e6)."""
    epsilon = found(fp.dropping(FIXED, P, "lost"), "server_secagg", rounds=100, delta=0.05).epsilon
    rng = np.random.default_rng(0)
    stay = rng.binomial(S, 1 - P, (30_000, 100))
    there = rng.random(stay.shape) < stay / N
    precision = np.sum(there * S / np.maximum(stay, 1), 1) / SIGMA**2
    each = gaussian_delta(epsilon, np.sqrt(precision))
    assert abs(each.mean() - 0.05) < 5 * each.std() / math.sqrt(len(each))


def test_a_server_hides_a_member_by_its_own_share():
    """1 / s of the noise, s being the number that is drawn, lost or not."""
    for noise in ("whole", "lost"):
        sampler = fp.dropping(FIXED, P, noise)
        alone = release(Dropping(N, S, P), "server", 3, SIGMA / math.sqrt(S), adder="own")
        assert found(sampler, "server").epsilon == pytest.approx(epsilon_of(alone), rel=1e-9)


@pytest.mark.slow
def test_whole_noise_of_everyone_and_of_poisson_cohorts_is_that_of_poisson_cohorts():
    for sampler, same in (
        (fp.dropping(ALL, P), fp.poisson(N, 1 - P, N)),
        (fp.dropping(fp.poisson(N, 0.5, 7), P), fp.poisson(N, 0.5 * (1 - P), 7)),
    ):
        for view in ("third_party", "server_secagg"):
            ours, theirs = found(sampler, view), found(same, view)
            assert ours.epsilon == pytest.approx(theirs.epsilon, rel=1e-9)
            assert ours.basis == "constructed"


# Limits


WHO_SEES = [(FIXED, "server_secagg"), (FIXED, "third_party"), (ALL, "third_party"), (ALL, "server")]


@tiers.every("given", WHO_SEES)
def test_hardly_anybody_vanishes(given):
    """Down to no drops at all, towards today's certificate; but for everyone's whole noise, a Poisson cohort's."""
    sampler, view = given
    today = found(sampler, view).epsilon
    for noise in ("whole", "lost"):
        assert found(fp.dropping(sampler, 0.0, noise), view).epsilon == today
        seldom = found(fp.dropping(sampler, 1e-9, noise), view).epsilon
        assert seldom == pytest.approx(today, rel=1e-3)


@tiers.every("lost", [True, False])
def test_declared_without_drops(lost):
    for view in ("third_party", "server_secagg"):
        never = epsilon_of(release(Dropping(N, S, 0.0, lost), view, 3))
        assert never == pytest.approx(epsilon_of(release(FixedSize(N, S), view, 3)), rel=1e-3)


@pytest.mark.slow
def test_it_moves_as_it_should():
    rates = (0.0, 0.3, 0.9)
    for view in fp.privacy.VIEWS:
        whole = [found(fp.dropping(FIXED, p), view).epsilon for p in rates]
        assert whole == sorted(whole, reverse=True)
        lost = [found(fp.dropping(FIXED, p, "lost"), view).epsilon for p in rates]
        assert all(a <= b * (1 + 1e-9) for a, b in zip(whole, lost, strict=True))
    for view in ("third_party", "server_secagg"):
        sampling = Dropping(N, S, P, True)
        by_noise = [epsilon_of(release(sampling, view, 3, sigma)) for sigma in (8.0, 4.0, 2.0)]
        by_rounds = [epsilon_of(release(sampling, view, steps)) for steps in (1, 3, 10)]
        assert by_noise == sorted(by_noise)
        assert by_rounds == sorted(by_rounds)


@pytest.mark.slow
def test_few_cases_are_above_many(monkeypatch):
    """Neighbouring numbers of those who stay taken together: never below, by little."""
    sampling = Dropping(4000, 400, P, True)
    cases = sampling.cases("replaced", Who(lost=True))
    assert len(cases) < 140
    assert sum(case.chance for case in cases) == pytest.approx(1, abs=1e-9)
    merged = epsilon_of(release(sampling, steps=50))
    monkeypatch.setattr("fedpriv.privacy.sampling.dropping._MOST_CASES", 1000)
    exact = epsilon_of(release(sampling, steps=51)), epsilon_of(release(sampling, steps=49))
    assert merged < exact[0] * 1.01
    assert merged > exact[1]


def test_honest_is_beside_it():
    """A fraction h of the noise of those who stay: sqrt(h) of the multiplier; assumptions say how they relate."""
    for noise, said in (("whole", "the noise is whole"), ("lost", "and this is counted")):
        certificate = found(fp.dropping(FIXED, P, noise), "server_secagg", honest=0.8)
        sampling = Dropping(N, S, P, noise == "lost")
        less = release(sampling, "server_secagg", 3, SIGMA * math.sqrt(0.8))
        assert certificate.epsilon == pytest.approx(epsilon_of(less), rel=1e-9)
        text = " ".join(certificate.assumptions)
        assert said in text
        assert "`honest` is, beside that" in text
        assert "members vanish with probability 0.3" in text


def test_other_noise_of_the_same_rounds():
    """Beside Laplace noise there is no sum over patterns; the losses of a round are composed, to 1e-3 of it."""
    lost = release(
        Everyone(N), "third_party", 3, participation=Dropping(N, N, P, True), noise="gaussian"
    )
    laplace = release(Everyone(N), "third_party", 1, 50.0, noise="laplace")
    both = epsilon_of(lost, laplace)
    alone = epsilon_of(lost)
    assert alone * (1 - 1e-3) < both < alone + 1 / 50 + 1e-3


def test_the_best_run_has_divergences_where_noise_is_whole():
    assert found(fp.dropping(FIXED, P), best_of=2).epsilon < math.inf


def test_a_share_that_is_lost_does_not_go_with_a_unit_that_is_removed():
    """Who is removed leaves one share fewer of the noise of a round that shows how many there are."""

    def opening(then):
        return fp.Opening(fp.dropping(ALL, P, "lost"), 1, then)

    with refused("sampling: .*removed: who takes part is taken to be known, among whom "):
        found(opening(fp.poisson(N, 0.5)))
    for then in (FIXED, fp.dropping(ALL, P)):
        assert found(opening(then), "server_secagg").relation == "zero_out"
        assert found(opening(then)).relation == "replace_one"


def test_who_may_make_up_for_lost_shares():
    """No server that the noise shall hide from."""
    whole = fp.dropping(FIXED, P)
    assert "or whoever sums adds them" in " ".join(found(whole).assumptions)
    assert "or an enclave that sums adds them" in " ".join(
        found(whole, "server_secagg").assumptions
    )
