"""Certificates of integer noise against exact laws: pairs in one dimension, small laws by enumeration, real noise."""

import itertools
import math

import numpy as np
import pytest
import tiers
from scipy import optimize, signal, stats

from fedpriv.mechanisms.integers import Integers, integer_sum
from fedpriv.pairs.divergences import never_hidden
from fedpriv.pairs.integer_bounds import bounds_of
from fedpriv.pairs.integer_laws import DiscreteGaussians, Skellam, shift_divergence
from fedpriv.pairs.integer_noise import IntegerNoise, drawn_without_replacement, poisson_sampled
from fedpriv.pairs.search import SET_ASIDE
from fedpriv.privacy import Everyone, FixedSize, Poisson, certify_seen, declared
from fedpriv.privacy.certify import certify_choice, pair_of
from fedpriv.privacy.profile import Composition, profile_of
from fedpriv.privacy.sampling import Dropping
from fedpriv.proof.noise import gaussian_delta

DELTA = 1e-5
KINDS = ("discrete_gaussian", "skellam")
STEP = 1e-3  # of losses, nats


def release(noise, sampling=None, rounds=1, view="server_secagg", **more):
    drawn = sampling or Everyone(noise.shares)
    more = {"noise": noise.kind, "integers": noise} | more
    return declared(view, "client", noise.multiplier, drawn, rounds, **more)


def epsilon(noise, sampling=None, rounds=1, view="server_secagg", delta=DELTA, **more):
    one = release(noise, sampling, rounds, view, **more)
    return certify_seen([one], delta, view).epsilon


def masses(kind, shares, deviation):
    """Of the sum of so many shares at -r ... r, by convolution of a share's masses."""
    reach = math.ceil(12 * deviation + 12)
    if kind == "skellam":
        once = stats.skellam.pmf(np.arange(-reach, reach + 1), *[deviation**2 / 2] * 2)
    else:
        once = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * deviation**2))
    size = 2 ** math.ceil(math.log2(max(30 * math.sqrt(shares) * deviation + 60, 2 * reach)))
    circle = np.zeros(size)
    np.add.at(circle, np.arange(-reach, reach + 1) % size, once / once.sum())
    total = np.fft.irfft(np.fft.rfft(circle) ** shares, size)
    return np.maximum(np.roll(total, size // 2), 0)


def exact_delta(p, shift, eps):
    """Of masses that are moved against those that are not; rounding of 1e-13 a mass is no loss."""
    moved, still = np.append(np.zeros(shift), p), np.append(p, np.zeros(shift))
    return np.maximum(moved - np.exp(eps) * still, 0)[moved > 1e-13].sum()


def exact_epsilon(p, shift):
    if exact_delta(p, shift, 0.0) <= DELTA:
        return 0.0
    return optimize.brentq(lambda eps: exact_delta(p, shift, eps) - DELTA, 0, 20)


OFTEN = [(2, 0.6), (10, 1.0), (10, 4.0), (1000, 30.0)]
OTHERS = [(2, 0.3), (10, 0.4), (2, 30.0), (100, 2.0), (1000, 0.6), (1000, 4.0)]
GRID = OFTEN + [pytest.param(*given, marks=pytest.mark.slow) for given in OTHERS]


@pytest.mark.parametrize(("shares", "deviation"), GRID)
@pytest.mark.parametrize("kind", KINDS)
def test_in_one_dimension_a_certificate_is_close_above_the_exact_pair(kind, shares, deviation):
    p = masses(kind, shares, deviation)
    for shift in (1, 2, 3, 5, 8, 12, 20, 32, 50):
        if exact_delta(p, shift, 20.0) > DELTA:
            break  # beyond, masses that are lost in rounding decide
        found = epsilon(IntegerNoise(kind, shares, deviation**2, shift**2, 1))
        exact = exact_epsilon(p, shift)
        assert exact <= found * (1 + 1e-6)
        if deviation >= 1 and 0.1 <= exact <= 10:
            assert found <= 1.25 * exact


@pytest.mark.parametrize("clients", [10, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_message_of_one_value_is_hidden_by_what_its_sum_is_certified_for(kind, clients):
    """The exact pairs of a client that sends the clip norm, or its negative, and one that sends nothing."""
    for bits, sigma in ((14, 1.0), (16, 2.0), (18, 4.0)):
        plan = integer_sum(Integers(kind, bits), 1.5, sigma, clients, 1)
        noise = plan.noise_of_all
        shift = math.ceil(plan.scale * 1.5)  # the farthest that it may be rounded
        assert shift**2 <= noise.squared_norm
        p = masses(kind, clients, math.sqrt(noise.share_variance))
        found = epsilon(noise)
        assert exact_delta(p, shift, found) <= DELTA
        assert exact_delta(p[::-1], shift, found) <= DELTA  # the other direction, and sign
        assert found <= 1.25 * exact_epsilon(p, shift)


def law_of(kind, shares, deviation):
    if kind == "skellam":
        return Skellam(shares * deviation**2)
    return DiscreteGaussians(shares, deviation**2)


def by_masses(p, order, shift):
    """D_order(moved || not), of masses that are exact to the last digits, so only where they matter."""
    moved, still = p[: len(p) - shift], p[shift:]
    return np.log(np.sum(moved**order * still ** (1 - order))) / (order - 1)


@pytest.mark.parametrize("order", [1.5, 2.0, 4.0])
@pytest.mark.parametrize("kind", KINDS)
def test_a_divergence_of_several_coordinates_is_above_every_vector_of_that_norm(kind, order):
    shares, deviation, dimension = 3, 0.9, 3
    law = law_of(kind, shares, deviation)
    reach = 24
    p = np.exp(law.log_mass(np.arange(-reach, reach + 1)))
    direct = stats.skellam.pmf(np.arange(-reach, reach + 1), *[shares * deviation**2 / 2] * 2)
    if kind == "discrete_gaussian":
        once = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * deviation**2))
        thrice = np.convolve(np.convolve(once, once), once) / once.sum() ** 3
        direct = thrice[2 * reach : -2 * reach]
    np.testing.assert_allclose(p, direct, rtol=1e-8)
    of_one = [0.0, *(by_masses(p, order, k) for k in range(1, 5))]
    for squared in range(1, 12):
        vectors = itertools.product(range(4), repeat=dimension)
        most = max(sum(of_one[k] for k in v) for v in vectors if sum(k * k for k in v) <= squared)
        bound = shift_divergence(law, order, squared, dimension)
        assert most * (1 - 1e-6) <= bound <= 1.5 * most


@pytest.mark.parametrize("order", [2, 3, 16, 128, 1024])
def test_agarwals_bound_is_above_the_exact_divergence(order):
    for variance in (0.2, 3.0, 50.0, 5e3):
        law = Skellam(variance)
        for shift in (1, 2, 7, 40):
            assert law.divergence(order, shift) <= law.steepest(order, shift) * shift**2


def sampled(p, shift, rate, order):
    """D_order both ways of a Poisson sample: the masses, with some moved, and the masses."""
    moved, still = np.append(np.zeros(shift), p), np.append(p, np.zeros(shift))
    drawn, kept = (1 - rate) * still + rate * moved, (moved > 0) & (still > 0)
    drawn, still = drawn[kept], still[kept]
    both = ((drawn, still), (still, drawn))
    return [np.log(np.sum(a**order * b ** (1 - order))) / (order - 1) for a, b in both]


@pytest.mark.parametrize("kind", KINDS)
def test_sampled_divergences_are_those_of_the_pair(kind):
    law = law_of(kind, 4, 1.1)
    p = np.exp(law.log_mass(np.arange(-36, 37)))
    for rate, shift in ((0.02, 2), (0.5, 1)):
        of_one = [law.divergence(max(j, 2.0), shift) for j in range(7)]
        for order in (2.0, 3.5, 6.0):
            there, back = sampled(p, shift, rate, order)
            bound = poisson_sampled(order, rate, of_one)
            assert max(there, back) <= bound * (1 + 1e-6)
            if order.is_integer():
                assert bound == pytest.approx(there, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_replaced_member_of_a_cohort_is_no_farther_than_its_divergence(kind):
    """Of one coordinate, in which all others send 0, and the unit 1 or -1."""
    law = law_of(kind, 4, 1.1)
    p = np.exp(law.log_mass(np.arange(-36, 37)))
    of_one = [law.divergence(max(j, 2.0), 2) for j in range(7)]
    for rate in (0.02, 0.5):
        up, down = ((1 - rate) * p[1:-1] + rate * moved for moved in (p[2:], p[:-2]))
        for order in (2.0, 3.5, 6.0):
            exact = np.log(np.sum(up**order * down ** (1 - order))) / (order - 1)
            bound = drawn_without_replacement(order, rate, of_one)
            assert exact <= bound * (1 + 1e-6)
            assert bound <= of_one[math.ceil(order)]


def test_rare_replaced_members_of_little_noise_are_infinite_rather_than_wrong():
    """Where e^D overflows, the bound still rises with D."""
    bounds = [drawn_without_replacement(2.0, 0.1, [d] * 3) for d in (600.0, 1e3, 1e5)]
    assert np.diff(bounds) == pytest.approx([400.0, 99_000.0])


MANY = [
    (Everyone(100), "server_secagg"),
    (Poisson(1000, 0.1), "third_party"),
    (FixedSize(1000, 100), "third_party"),
    (FixedSize(1000, 100), "server_secagg"),
    (Dropping(1000, 100, 0.3, noise_is_lost=True), "server_secagg"),
]


@tiers.every("given", MANY, kind=lambda given: given[1])
def test_much_noise_is_as_real_noise(given):
    """By both accountants: of discrete Gaussians as a function of real noise; Skellam by divergences alone.

    Where shares are lost, divergences take neighbouring numbers of those who stay together.
    """
    sampling, view = given
    together = 1.04 if sampling.lossy else 1.001
    rounds, dimension, squared = 20, 50, 10_000
    plain = certify_seen([declared(view, "client", 2.0, sampling, rounds)], DELTA, view)
    for kind in KINDS:
        noise = IntegerNoise(kind, 100, 2.0**2 * squared / 100, squared, dimension)
        found = certify_seen([release(noise, sampling, rounds, view)], DELTA, view)
        by_losses, by_rdp = (plain.epsilons.get(name) for name in ("PLD", "RDP"))
        if kind == "discrete_gaussian":
            assert by_losses <= found.epsilons["PLD"] <= 1.005 * by_losses
        if by_rdp:
            assert 0.95 * by_rdp <= found.epsilons["RDP"] <= together * by_rdp
        assert plain.epsilon <= found.epsilon <= 1.7 * plain.epsilon


def mixed(chances, eps):
    """delta of cases that are shown: [(chance, masses or None where nothing moves)], of a shift of 3."""
    return sum(chance * exact_delta(p, 3, eps) for chance, p in chances if p is not None)


def solved(delta_of):
    return optimize.brentq(lambda eps: delta_of(eps) - DELTA, 0, 60)


@pytest.mark.parametrize("kind", KINDS)
def test_known_participation_is_the_mixture_over_how_often(kind):
    """Of T rounds in which a unit takes part n ~ Bin(T, q) times, each in one direction: one sum of n pairs."""
    shares, deviation, rounds, rate = 10, 1.5, 6, 0.2
    p = np.exp(law_of(kind, shares, deviation).log_mass(np.arange(-45, 46)))
    losses = np.log(p[:-3]) - np.log(p[3:])  # of x + 3 against x
    steps = np.round(losses / STEP).astype(int)  # on a grid, to the nearest
    once = np.bincount(steps - steps.min(), p[:-3])

    def delta(n, eps):
        chances = np.ones(1)
        for _ in range(n):
            chances = signal.fftconvolve(chances, once)
        loss = STEP * (np.arange(len(chances)) + n * steps.min())
        return np.sum(chances * np.maximum(1 - np.exp(np.minimum(eps - loss, 0)), 0))

    eps = epsilon(IntegerNoise(kind, shares, deviation**2, 9, 1), FixedSize(50, 10), rounds=rounds)
    exact = solved(
        lambda e: sum(stats.binom.pmf(n, rounds, rate) * delta(n, e) for n in range(rounds + 1))
    )
    assert exact * (1 - 1e-3) <= eps <= 1.25 * exact


@pytest.mark.parametrize("kind", KINDS)
@tiers.every("dropout", [0.1, 0.5])
def test_lost_shares_are_the_mixture_over_how_many_stay(kind, dropout):
    """k ~ Bin(n, 1 - p) stay, and everyone sees it; the unit does with probability k / n, and moves the sum by 3."""
    shares, deviation = 12, 2.0
    cases = [
        (stats.binom.pmf(k, shares, 1 - dropout) * k / shares, masses(kind, k, deviation))
        for k in range(1, shares + 1)
    ]
    exact = solved(lambda eps: mixed(cases, eps))
    found = epsilon(
        IntegerNoise(kind, shares, deviation**2, 9, 1),
        Dropping(shares, shares, dropout, noise_is_lost=True),
    )
    assert exact <= found <= 1.35 * exact


@pytest.mark.parametrize("kind", KINDS)
def test_of_half_of_the_shares_that_are_not_lost_whole_ones_count(kind):
    """With 10 or fewer of 10 that stay, 5 or fewer: half a share is none."""
    shares, deviation = 10, 5.4
    cases = [
        (stats.binom.pmf(k, shares, 0.9) * k / (3 * shares), masses(kind, k // 2, deviation))
        for k in range(2, shares + 1)
    ]
    lossy = Dropping(3 * shares, shares, 0.1, noise_is_lost=True)
    one = release(IntegerNoise(kind, shares, deviation**2, 9, 1), lossy, honest=0.5)
    found = certify_seen([one], 1e-4, "server_secagg").epsilon
    assert mixed(cases, found) <= 1e-4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("honest", [0.5, 0.34])
def test_a_part_of_the_shares_is_that_many_shares(kind, honest):
    shares, deviation = 12, 1.5
    noise = IntegerNoise(kind, shares, deviation**2, 4, 1)
    found = epsilon(noise, honest=honest)
    exact = exact_epsilon(masses(kind, math.floor(honest * shares), deviation), 2)
    assert exact <= found <= 1.25 * exact


def test_no_whole_share_hides_nothing():
    noise = IntegerNoise("skellam", 12, 4.0, 4, 1)
    assert math.isinf(epsilon(noise, honest=0.05))


def test_one_share_by_itself_is_a_servers_view():
    deviation = 4.0
    for kind in KINDS:
        found = epsilon(IntegerNoise(kind, 1, deviation**2, 4, 1), Everyone(12), view="server")
        exact = exact_epsilon(masses(kind, 1, deviation), 2)
        assert exact <= found <= 1.25 * exact


@pytest.mark.parametrize(("shares", "variance"), [(2, 2.5), (7, 2.0), (50, 2.2)])
def test_real_noise_that_is_rounded_is_as_near_as_is_said(shares, variance):
    """Theorem A in one dimension: rounding N(0, V - r^2) with a kernel of r has the law of the sum but for e^(+-a)."""
    noise = IntegerNoise("discrete_gaussian", shares, variance, 4, 1)
    multiplier, apart = noise.gaussian(1) or pytest.fail("nothing is proved")
    real_variance = multiplier**2 * noise.squared_norm
    r2 = noise.shares * variance - real_variance
    y, h = np.linspace(-60, 60, 24_001, retstep=True)
    near = np.arange(-90, 91)
    kernel = np.exp(-((near[:, None] - y) ** 2) / (2 * r2))
    kernel /= kernel.sum(axis=0)
    rounded = kernel @ stats.norm.pdf(y, 0, math.sqrt(real_variance)) * h
    p = masses("discrete_gaussian", shares, math.sqrt(variance))
    there = p[len(p) // 2 - 8 : len(p) // 2 + 9]
    assert 1e-14 < apart < 1e-6
    assert abs(np.log(rounded[82:99] / there)).max() <= apart + 1e-9


NOISE_OF_RUNS = IntegerNoise("skellam", 20, 8.0, 100, 10)
LOSSY, WHOLE = (
    release(NOISE_OF_RUNS, drawn, rounds=3, view="third_party")
    for drawn in (Dropping(100, 20, 0.1, noise_is_lost=True), FixedSize(100, 20))
)


@pytest.mark.parametrize("settings", [[[LOSSY]], [[LOSSY], [WHOLE]]], ids=["one", "two"])
@pytest.mark.parametrize("best_of", [1.0, 50.0, 1e4])
def test_of_the_best_of_many_runs_what_is_set_aside_is_for_all(settings, best_of):
    """Any of them may have a round in which hardly any share is left, and draws numbers that are off their law."""
    pairs = [pair_of(each, "replaced") for each in settings]
    few = stats.binom(20, 0.9).cdf(np.arange(20))  # who stay
    once, pair = (bounds_of(pairs, mean, DELTA)["RDP"] for mean in (1.0, best_of))
    lost = never_hidden(pair)
    assert 0 < lost <= SET_ASIDE / 2 * DELTA
    fewest = np.flatnonzero(3 * best_of * few <= SET_ASIDE / 2 * DELTA).max()
    assert lost == pytest.approx(3 * best_of * few[fewest])
    assert pair.off == pytest.approx(best_of * once.off)


FEW = Dropping(100, 10, 0.2, noise_is_lost=True)


@pytest.mark.slow
def test_the_best_of_two_settings_costs_as_much_as_that_of_the_costlier():
    whole, lossy = (
        release(IntegerNoise("skellam", 10, variance, 4, 2), drawn, 3, "third_party")
        for variance, drawn in ((100.0, FixedSize(100, 10)), (8.0, FEW))
    )
    both = certify_choice([[whole], [lossy]], DELTA, 50.0).epsilon
    alone = certify_seen([lossy], DELTA, "third_party", best_of=50.0).epsilon
    assert both == pytest.approx(alone)
    assert math.isfinite(both)


def test_below_what_is_proved_of_rounded_noise_a_profile_adds_what_is_missing():
    """Within e^-a and e^a of a (0, delta)-private one: M <= e^2a N + e^a delta <= N + e^2a - 1 + e^a delta."""
    noise = IntegerNoise("discrete_gaussian", 10, 40.0, 100, 1000)
    pair = pair_of([release(noise, rounds=10)], "zeroed")
    by_losses, by_divergences = bounds_of([pair], 1.0, DELTA).values()
    multiplier, apart = noise.gaussian(10)
    assert by_losses.apart == apart
    composition = Composition(by_losses, "zero_out", 20.0, others=(by_divergences,))
    found = profile_of([composition], DELTA).delta(0.0)
    least = math.exp(apart) * gaussian_delta(0.0, math.sqrt(10) / multiplier)
    assert found >= (least + math.expm1(2 * apart)) * (1 - 1e-12)


DISCRETE, SKELLAM = (IntegerNoise(kind, 20, 8.0, 100, 10) for kind in KINDS)
KINDS_SET_ASIDE = {
    "everyone": (DISCRETE, Everyone(20), 1.0),
    "everyone, skellam": (SKELLAM, Everyone(20), 1.0),
    "fixed size": (DISCRETE, FixedSize(100, 20), 3.0),
    "fixed size, skellam": (SKELLAM, FixedSize(100, 20), 3.0),
    "shares are lost": (IntegerNoise("skellam", 10, 8.0, 4, 2), FEW, 3.0),
}


@tiers.every("name", KINDS_SET_ASIDE, kind=lambda given: (given[0].kind, given[2] > 1))
def test_a_profile_counts_what_a_certificate_sets_aside(name):
    """So that it has the certificate's epsilon at its delta, and hardly another at others.

    There its delta is less by no more than what was set aside, and not needed.
    """
    noise, drawn, best_of = KINDS_SET_ASIDE[name]
    one = release(noise, drawn, rounds=3, view="third_party")

    def at(delta):
        return certify_seen([one], delta, "third_party", best_of=best_of)

    found = at(DELTA)
    assert found.profile().epsilon(DELTA) == found.epsilon
    if math.isfinite(found.epsilon):
        assert DELTA * (1 - SET_ASIDE - 1e-8) <= found.profile().delta(found.epsilon) <= DELTA
    assert found.profile().epsilon(0.01) == pytest.approx(at(0.01).epsilon, rel=1e-2)
