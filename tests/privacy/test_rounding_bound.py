"""Rounding of Fourier transforms and of the sums made of them: against more digits, never below, and hardly above."""

import functools
import itertools
import math

import mpmath
import numpy as np
import pytest
import tiers
from pair_curves import best_tilt
from scipy.fft import next_fast_len

from fedpriv.proof.cells import Losses
from fedpriv.proof.pairs import NOTHING, All, Times, Told
from fedpriv.proof.spectra import transform_error
from fedpriv.proof.tilted import DrawLosses, Sum

MORE = np.longdouble
has_more = pytest.mark.skipif(
    np.finfo(MORE).eps > 1e-18, reason="this machine's long doubles have no more digits"
)


def signals(size, rng):
    """Random, a bell, a constant, one spike, and a tail of 20 powers of ten."""
    at = np.arange(size)
    yield rng.normal(size=size)
    yield np.exp(-(((at - 0.4 * size) * 12 / size) ** 2))
    yield np.full(size, 0.1)
    yield np.where(at == size // 3, 1.0, 1e-3)
    yield np.exp(-rng.exponential(size=size) * 50)


def by_definition(signal):
    """sum_k x_k e^(-2 pi i j k / n), in long doubles."""
    n = len(signal)
    turn = 2 * np.arccos(MORE(-1)) / n
    angles = np.outer(np.arange(n // 2 + 1), np.arange(n)) % n * turn
    return np.cos(angles) @ signal.astype(MORE) - 1j * (np.sin(angles) @ signal.astype(MORE))


def apart(found, exact):
    """Relative, in l2."""
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


@has_more
@tiers.every("size", [2, 3, 4, 5, 8, 9, 15, 45, 125, 432, 1000], kind=lambda n: min(n, 432))
def test_transforms_in_long_doubles_are_the_sums_of_their_definition(size):
    """So that they tell how far those in doubles are off, where a direct sum takes too long."""
    assert next_fast_len(size, real=True) == size
    for signal in signals(size, np.random.default_rng(size)):
        found = np.fft.rfft(signal.astype(MORE))
        assert found.dtype == np.clongdouble
        assert apart(found, by_definition(signal)) < 1e-17
        assert apart(np.fft.irfft(found, size), signal.astype(MORE)) < 1e-17


SIZES = [2, 3, 4, 5, 9, 15, 128, 1000, 2187, 5**6, 3**10, 2**17, 3**11, 5**8, 2**20]


@has_more
@tiers.every("size", SIZES, kind=lambda size: size if size < 10**5 else "long")
def test_transforms_are_much_better_than_their_bound(size):
    """By a factor of 8 at all sizes, and of 20 from 1,000 on: both ways."""
    assert next_fast_len(size, real=True) == size
    enough = transform_error(size) / (8 if size < 1000 else 20)
    for signal in signals(size, np.random.default_rng(size)):
        there = np.fft.rfft(signal)
        assert apart(there, np.fft.rfft(signal.astype(MORE))) < enough
        back = np.fft.irfft(there.astype(np.clongdouble), size)
        assert apart(np.fft.irfft(there, size), back) < enough


# Sums of small laws, of which all is known.


def drawn_law(rng):
    """Of some cells, whose chances differ by powers of ten, and add up to 1 at most."""
    cells = rng.integers(2, 7)
    chances = np.exp(-4 * rng.exponential(size=cells)) * (rng.random(cells) < 0.8)
    chances[-1] += 1e-3
    return Losses(int(rng.integers(-6, 3)), chances / chances.sum() / rng.uniform(1, 1.3), 0.0)


def as_numbers(losses):
    """Cell -> its chance, to the last digit."""
    return {losses.low + i: mpmath.mpf(float(p)) for i, p in enumerate(losses.chances)}


def together(a, b):
    """The law of the sum of two."""
    found = {}
    for (i, p), (j, q) in itertools.product(a.items(), b.items()):
        found[i + j] = found.get(i + j, 0) + p * q
    return found


def excess(one, epsilon, exact):
    """log of the bound over the exact delta at the best tilt; at tilts far from it, it is no less than 0 either."""
    tilt = best_tilt(one, epsilon)
    for other in (0.3 * tilt, 2 * tilt):
        assert one.log_delta(epsilon, other) >= mpmath.log(exact)
    return mpmath.mpf(one.log_delta(epsilon, tilt)) - mpmath.log(exact)


@tiers.every("seeds", [range(4), range(4, 60)])
def test_sums_of_small_laws(seeds):
    """Of one, two and seven rounds of what is told apart and of what is not: by all sums, in 40 digits."""
    for rng in map(np.random.default_rng, seeds):
        a, b, interval = drawn_law(rng), drawn_law(rng), float(rng.uniform(0.02, 0.6))
        one, other = (DrawLosses(losses, interval) for losses in (a, b))
        once = All((Told(((0.25, one), (0.75, NOTHING))), other))
        with mpmath.workdps(40):
            shown = {cell: p / 4 for cell, p in as_numbers(a).items()}
            shown[0] = shown.get(0, 0) + mpmath.mpf(3) / 4
            of_one = together(shown, as_numbers(b))
            for n in (1, 2, 7):
                law = functools.reduce(together, [of_one] * n)
                one, nats = Sum(Times(once, n), interval), mpmath.mpf(interval)
                for share in (0.0, 0.3, 0.7, 0.97):
                    epsilon = share * max(law) * interval
                    gains = [p * -mpmath.expm1(epsilon - x * nats) for x, p in law.items()]
                    exact = mpmath.fsum(gain for gain in gains if gain > 0)
                    assert exact == 0 or 0 <= excess(one, epsilon, exact) < 1e-8


def of_signs(n, loss, chance, epsilon):
    """delta of n losses of one size, positive with that chance: by the binomial law, from epsilon on."""
    loss, up, down = (mpmath.mpf(x) for x in (loss, chance, 1 - chance))
    k = int(mpmath.floor((epsilon / loss + n) / 2)) + 1
    rest, shrink = mpmath.exp(epsilon - (2 * k - n) * loss), mpmath.exp(-2 * loss)
    term, gain, total = mpmath.binomial(n, k) * up**k * down ** (n - k), 0, 0
    while k <= n:
        before, gain = gain, term * (1 - rest)
        total += gain
        if gain < before and gain < 1e-20 * total:
            break
        term *= up / down * (n - k) / (k + 1)
        k, rest = k + 1, rest * shrink
    return total


@tiers.every("deviations", [12.0, 1.0, 4.0], kind=lambda far: "any")
@tiers.every(
    "given",
    [(1000, 0.05, 1e-8), (10**6, 1e-3, 1e-5), (1000, 0.3, 1e-8), (10**6, 3e-3, 1e-5)],
    kind=lambda given: given[0],
)
def test_sums_of_very_many_signs(given, deviations):
    """Of a million, the bound is 1e-5 of delta above it at most, and so 1e-6 of epsilon; of a thousand 1e-8."""
    n, loss, most = given
    for chance in (1 / (1 + math.exp(-loss)), 0.5):
        spread = 2 * math.sqrt(chance * (1 - chance) * n) * loss
        epsilon = n * loss * (2 * chance - 1) + deviations * spread
        losses = Losses(-1, np.array([1 - chance, 0.0, chance]), 0.0)
        one = Sum(Times(DrawLosses(losses, loss), n), loss)
        with mpmath.workdps(30):
            found = excess(one, epsilon, of_signs(n, loss, chance, epsilon))
        assert 0 <= found < min(most, 1e-6 * best_tilt(one, epsilon) * epsilon)
