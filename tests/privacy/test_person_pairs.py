"""Certificates of a person's several units against pairs that are computed on their own."""

from itertools import combinations, product

import numpy as np
import pytest
import tiers
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, MixtureGaussianPrivacyLoss
from drawn_by_hand import seen_by_hand
from scipy import optimize, stats

from fedpriv.pairs.mixture_curves import none_delta, replaced_delta, several_delta
from fedpriv.privacy import Everyone, FixedSize, Poisson, Who, certify_seen
from fedpriv.privacy.drawn import Drawn
from fedpriv.privacy.sampling import Dropping, WithReplacement, told_law
from fedpriv.proof import curves
from fedpriv.proof.noise import gaussian_delta

SIGMA, DELTA = 2.0, 1e-4


def drawn(sampling, units=1, **how):
    return Drawn(sampling, Who(units=units), **how)


def epsilon(of, rounds=1, view="third_party", multiplier=SIGMA, adder="shares"):
    seen = seen_by_hand(of, multiplier, rounds, view=view, unit="person", adder=adder)
    return certify_seen([seen], DELTA, view).epsilon


def gaussian(eps, apart):
    """delta of N(apart, 1) against N(0, 1), by hand."""
    if apart == 0:
        return 0.0
    upper, lower = stats.norm.cdf(np.array([1, -1]) * apart / 2 - eps / apart)
    return upper - np.exp(eps) * lower


def solved(delta_of, delta=DELTA):
    return optimize.brentq(lambda eps: delta_of(eps) - delta, 0, 200, xtol=1e-10)


Z = np.linspace(-16, 24, 20_001)


def on_a_grid(laws, eps):
    """The larger delta of both directions, of sum_case chance H(sum_n p_n N(n) || N(0)), by numbers on a line."""
    there = back = 0.0
    none = stats.norm.pdf(Z, 0, SIGMA)
    for chance, law in laws:
        some = sum(p * stats.norm.pdf(Z, n, SIGMA) for n, p in law.items())
        there += chance * np.trapezoid(np.maximum(some - np.exp(eps) * none, 0), Z)
        back += chance * np.trapezoid(np.maximum(none - np.exp(eps) * some, 0), Z)
    return max(there, back)


def composed(law, rounds, direction):
    """Epsilon of rounds of sum_n p_n N(n) against N(0), losses on cells of 2e-4 nats, by FFT."""
    some = sum(p * stats.norm.pdf(Z, n, SIGMA) for n, p in law.items())
    none = stats.norm.pdf(Z, 0, SIGMA)
    over, under = (some, none) if direction > 0 else (none, some)
    width, most = 2e-4, 2**18
    cells = np.rint((np.log(over) - np.log(under)) / width).astype(int)
    chances = over * (Z[1] - Z[0])
    inside = np.abs(cells) < most // 2
    once = np.bincount(cells[inside] % most, chances[inside], minlength=most)
    total = np.fft.irfft(np.fft.rfft(once) ** rounds, most).clip(0)
    losses = np.fft.fftfreq(most, 1 / most) * width
    return solved(lambda eps: total @ np.maximum(1 - np.exp(eps - losses), 0).clip(0))


@tiers.every("given", [(2, 0.1, 30), (3, 0.4, 5), (6, 0.02, 100)])
def test_independent_draws_are_a_mixture_of_gaussians(given):
    units, rate, rounds = given
    law = dict(enumerate(stats.binom(units, rate).pmf(np.arange(units + 1))))
    ours = epsilon(drawn(Poisson(100, rate), units), rounds)
    assert ours == pytest.approx(max(composed(law, rounds, way) for way in (1, -1)), rel=1e-3)
    assert ours > epsilon(drawn(Poisson(100, rate)), rounds)


@tiers.every("given", [(2, 0.1, 1.0), (5, 0.01, 2.0), (40, 0.1, 3)])
def test_its_curves_are_those_of_dp_accounting(given):
    units, rate, sigma = given
    n, eps = np.arange(units + 1), np.r_[0, 1e-3, np.linspace(0.01, 5, 20)]
    law = stats.binom(units, rate).pmf(n)
    for curve, way in ((several_delta, AdjacencyType.REMOVE), (none_delta, AdjacencyType.ADD)):
        theirs = MixtureGaussianPrivacyLoss(sigma, list(n), list(law), adjacency_type=way)
        ours = curve(eps, n[1:] / sigma, law[1:])
        np.testing.assert_allclose(ours, theirs.get_delta_for_epsilon(list(eps)), atol=1e-11)


@pytest.mark.parametrize("size", [1, 2, 4])
@tiers.every("others", [-1.0, 0.0, 1.0])
def test_cohorts_of_one_size_cost_no_more_than_certified(size, others):
    """Explicit neighbours: a person's two clients in five send 1, or another's in their place -1."""
    sums = []
    for sent in (1.0, -1.0):
        each = list(combinations(range(5), size))
        totals = [sum(sent if i < 2 else others for i in cohort) for cohort in each]
        sums.append(np.mean([stats.norm.pdf(Z, t, SIGMA) for t in totals], axis=0))

    def delta_of(eps):
        return max(
            np.trapezoid(np.maximum(p - np.exp(eps) * q, 0), Z) for p, q in (sums, sums[::-1])
        )

    ours = epsilon(drawn(FixedSize(5, size), 2))
    exact = solved(delta_of)
    assert exact <= ours * (1 + 1e-6)
    if size == 1 and others == -1:  # one of the two at most: attained
        assert ours == pytest.approx(exact, rel=1e-3)


def test_the_pair_of_cohorts_of_one_size_is_that_of_its_proof():
    """Of one round: a mixture, at the amplified epsilon, of cohorts without any of the units and of replaced ones."""
    law = stats.hypergeom(20, 3, 5)
    p = 1 - law.pmf(0)
    some = {2 * n: law.pmf(n) / p for n in (1, 2, 3)}
    none = stats.norm.pdf(Z, 0, SIGMA)
    mixed = sum(chance * stats.norm.pdf(Z, n, SIGMA) for n, chance in some.items())

    def delta_of(eps):
        inner = np.log1p(np.expm1(eps) / p)
        told = sum(chance * gaussian(inner, n / SIGMA) for n, chance in some.items())
        among = np.trapezoid(np.maximum(mixed - np.exp(inner) * none, 0), Z)
        share = np.exp(eps - inner)
        return p * ((1 - share) * among + share * told)

    ours = epsilon(drawn(FixedSize(20, 5), 3))
    assert ours == pytest.approx(solved(delta_of), rel=1e-3)


@pytest.mark.parametrize(
    ("sampling", "law"),
    [
        (Poisson(20, 0.3), stats.binom(3, 0.3)),
        (FixedSize(20, 6), stats.hypergeom(20, 3, 6)),
        (WithReplacement(20, 6, 0.05), stats.binom(6, 0.15)),
        (Everyone(20), stats.binom(3, 1.0)),
    ],
)
def test_who_knows_the_draws_sees_every_pattern(sampling, law):
    """All patterns of two rounds."""
    chances = law.pmf(np.arange(7))
    seen = [(a, b) for a, b in product(range(7), repeat=2) if chances[a] * chances[b]]

    def delta_of(eps, power):
        return sum(
            chances[a] * chances[b] * gaussian(eps, np.sqrt(a**power + b**power) / SIGMA)
            for a, b in seen
        )

    ours = epsilon(drawn(sampling, 3, known=True), 2, "server_secagg")
    assert ours == pytest.approx(solved(lambda eps: delta_of(eps, 2)), rel=1e-6)
    known = epsilon(drawn(sampling, 3, known=True), 2)
    assert known == pytest.approx(ours, rel=1e-9)
    apart = epsilon(drawn(sampling, 3, apart=True, known=True), 2, adder="own")
    assert apart == pytest.approx(solved(lambda eps: delta_of(eps, 1)), rel=1e-6)


def test_members_that_vanish_are_counted_as_they_stay():
    """Drawn by NumPy, within five standard errors."""
    n, chances = np.transpose(told_law(Dropping(20, 6, 0.25), Who(units=3)))
    rng = np.random.default_rng(0)
    there = rng.hypergeometric(3, 17, 6, size=200_000)
    often = np.bincount(rng.binomial(there, 0.75), minlength=4) / 200_000
    np.testing.assert_allclose(often, chances[: len(often)], atol=5 * 0.5 / 200_000**0.5)
    np.testing.assert_array_equal(n, np.arange(4))


@tiers.every("noise", ["gaussian", "laplace"])
def test_no_directions_exceed_the_line(noise):
    """Vectors of the same lengths in other directions, drawn: E (R - a)+ of each is no more, within 5 errors."""
    rng = np.random.default_rng(0)
    lengths, chances = np.array([1.0, 2.0, 3.0]) / SIGMA, np.array([0.3, 0.15, 0.05])
    draw = rng.normal if noise == "gaussian" else rng.laplace
    z = draw(size=(400_000, 3))
    power = 2 if noise == "gaussian" else 1
    away = rng.normal(size=(3, 3))
    away *= (lengths / np.linalg.norm(away, ord=power, axis=1))[:, None]

    def log_density(x):
        return -(x**2).sum(-1) / 2 if noise == "gaussian" else -np.abs(x).sum(-1)

    ratio = (
        1
        - chances.sum()
        + sum(
            p * np.exp(log_density(z - v) - log_density(z))
            for p, v in zip(chances, away, strict=True)
        )
    )
    for eps in (0.0, 0.2, 0.6):
        for curve, sample in (
            (several_delta, np.maximum(ratio - np.exp(eps), 0)),
            (none_delta, np.maximum(1 - np.exp(eps) * ratio, 0)),
        ):
            (most,) = curve([eps], lengths, chances, noise)
            assert sample.mean() - 5 * sample.std() / len(sample) ** 0.5 <= most


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.9, 1 - 1e-9])
def test_draws_that_miss_nobody_cost_no_more_than_all(rate):
    """Also where the chances of all numbers above 0 add up to 1, but for rounding."""
    some = epsilon(drawn(Poisson(60, rate), 50))
    assert 0.8 * rate**2 < some / epsilon(drawn(Everyone(60)), multiplier=SIGMA / 50) < 1 + 1e-3
    times, chances = np.transpose(told_law(Poisson(60, rate), Who(units=50))[1:])
    eps = np.linspace(0.0, 60.0, 61)
    back = none_delta(eps, times / 4, chances)
    assert (np.diff(back) <= 0).all()
    assert (back <= gaussian_delta(eps, 50 / 4) * (1 + 1e-9)).all()


def test_a_single_unit_is_as_ever():
    eps, one = np.linspace(0, 8, 50), (np.array([1 / SIGMA]), np.array([0.1]))
    for noise in ("gaussian", "laplace"):
        for several, single in (
            (several_delta, curves.remove_delta),
            (none_delta, curves.add_delta),
            (replaced_delta, curves.replace_delta),
        ):
            ours, theirs = several(eps, *one, noise), single(eps, SIGMA, 0.1, noise)
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-15)


def test_dp_accounting_is_given_its_event():
    seen = seen_by_hand(drawn(Poisson(100, 0.1), 3), SIGMA, 10, unit="person")
    certificate = certify_seen([seen], DELTA, "third_party")
    found = certificate.dp_event()
    mixture = found.event.event
    moved = np.array(mixture.sensitivities) / mixture.standard_deviation
    np.testing.assert_allclose(moved, np.arange(4) / SIGMA)
    np.testing.assert_allclose(mixture.sampling_probs, stats.binom(3, 0.1).pmf(np.arange(4)))
    assert (found.event.count, found.accountant) == (10, "PLD")
    accountant = PLDAccountant(found.relation).compose(found.event)
    assert accountant.get_epsilon(DELTA) == pytest.approx(certificate.epsilon, rel=1e-3)
