"""Numbers of integer noise have their law: as tables say it exactly, and as rounds draw it."""

import itertools
from functools import lru_cache

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import tiers
from own_algorithms import CLIENTS, FEDERATION, PARAMS, State, of_clients
from scipy import stats
from small import FALSE_ALARM

import fedpriv as fp
from fedpriv.mechanisms.integer_samplers import alias_table, draw
from fedpriv.mechanisms.integers import Integers, integer_sum
from fedpriv.pairs.integer_laws import DiscreteGaussians, Skellam
from fedpriv.pairs.integer_noise import DRAWN_APART

LAWS = [
    DiscreteGaussians(2, 12.0),  # drawn as one
    DiscreteGaussians(3, 0.3),
    Skellam(30.0),
    DiscreteGaussians(1, 0.2),
    Skellam(0.3),
]


def made_by(law):
    """Which code makes its table."""
    return type(law), getattr(law, "is_nearly_one", None)


DRAWN = [*tiers.one_of_each({law: law for law in LAWS}, made_by)]


@lru_cache
def exact(law):
    """x -> mass, to 60 digits, by the sum of so many, or by Bessel functions."""
    reach = int(np.sqrt(2 * law.variance * 125)) + (130 if isinstance(law, Skellam) else 10)
    with mpmath.workdps(60):
        if isinstance(law, Skellam):
            v = mpmath.mpf(law.variance)
            return {x: mpmath.exp(-v) * mpmath.besseli(abs(x), v) for x in range(-reach, reach + 1)}
        each = {
            x: mpmath.exp(-mpmath.mpf(x * x) / (2 * mpmath.mpf(law.share_variance)))
            for x in range(-reach, reach + 1)
        }
        total = each
        for _ in range(law.shares - 1):
            more = dict.fromkeys(range(2 * min(total), 2 * max(total) + 1), mpmath.mpf(0))
            for (x, p), (y, q) in itertools.product(total.items(), each.items()):
                more[x + y] += p * q
            total = {x: p for x, p in more.items() if abs(x) <= reach}
        whole = sum(total.values())
        return {x: p / whole for x, p in total.items()}


def of_table(law):
    """x -> mass, by the table's whole numbers, half of a size's on either sign."""
    table = alias_table(law)
    columns = len(table.other)
    found = {}
    for i in range(columns):
        chance = sum(int(word[i]) << 32 * (4 - k) for k, word in enumerate(table.chance))
        for size, p in ((i, chance), (int(table.other[i]), 2**160 - chance)):
            for x in (size, -size):
                found[x] = found.get(x, 0) + p
    return {x: mpmath.mpf(p) / (2 * columns * 2**160) for x, p in found.items()}


def test_a_sum_is_drawn_as_one_where_that_is_counted():
    assert [DiscreteGaussians(2, v).is_nearly_one for v in (9.0, 10.8, 12.0)] == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_a_table_is_within_what_certificates_count(law):
    with mpmath.workdps(60):
        theirs, table = exact(law), of_table(law)
        both = {*theirs, *table}
        apart = sum(abs(theirs.get(x, 0) - table.get(x, 0)) for x in both) / 2
        assert apart <= DRAWN_APART


def assert_drawn(numbers, law, modulus=None):
    """By chi-square, cells of an expected number below 20 taken together; false alarm 1e-6."""
    numbers, masses = np.ravel(numbers), {}
    for x, p in exact(law).items():
        x = x if modulus is None else (x + modulus // 2) % modulus - modulus // 2
        masses[x] = masses.get(x, 0.0) + float(p)
    expected = {x: p * numbers.size for x, p in masses.items() if p * numbers.size >= 20}
    seen = [np.sum(numbers == x) for x in expected]
    rest = numbers.size - sum(seen), numbers.size - sum(expected.values())
    counts, means = np.array([*seen, rest[0]]), np.array([*expected.values(), rest[1]])
    if means[-1] < 5:
        counts, means = (
            np.append(counts[:-2], counts[-2:].sum()),
            np.append(means[:-2], means[-2:].sum()),
        )
    statistic = np.sum((counts - means) ** 2 / means)
    assert statistic < stats.chi2.isf(FALSE_ALARM, len(counts) - 1)


@tiers.every("law", DRAWN, kind=lambda law: "by its table")
def test_drawn_numbers_have_the_law(law):
    assert_drawn(jax.jit(lambda key: draw(key, law, (200_000,)))(jax.random.key(1)), law)


@pytest.mark.slow
def test_every_call_and_round_has_noise_of_that_law_of_its_own():
    """Of messages of zeros: seven numbers, which no block of the rotation mixes, so that they come back +- integers."""
    d, bits, sampler = 7, 6, fp.everyone(CLIENTS)
    used = fp.discrete_gaussian(1.0, 0.5, bits=bits)
    plan = integer_sum(Integers("discrete_gaussian", bits), 1.0, 0.5, CLIENTS, d)

    def round(key, state, cohort):
        zeros = lambda key, shard: jnp.zeros(d)  # noqa: E731
        both = [cohort.sum(zeros, key, mechanism=used) for _ in range(2)]
        total = jnp.stack([each.total for each in both])
        return State(state.params, state.round + 1, total), both[0].metrics

    once = jax.jit(fp.one_round(of_clients(round, jnp.zeros((2, d)), sampler)))
    found = []
    for seed, t in itertools.product(range(60), range(3)):
        state = State(PARAMS, jnp.int32(t), jnp.zeros((2, d)))
        found.append(once(jax.random.key(seed), state, FEDERATION)[0].extra * plan.scale)
    numbers = np.array(found).reshape(60, 3, 2, d)
    integers = np.rint(numbers).astype(int)
    np.testing.assert_allclose(numbers, integers, atol=1e-3)
    law = plan.noise_of_all.law
    assert_drawn(integers, law, 2**bits)
    rows = integers.reshape(60, -1)
    r = np.corrcoef(rows.T)[np.triu_indices(rows.shape[1], 1)]
    # of normal numbers exact, of these nearly; Bonferroni over all pairs of calls, rounds and coordinates
    t = stats.t.isf(FALSE_ALARM / 2 / r.size, 58)
    assert abs(r).max() < t / np.sqrt(58 + t**2)
    assert len(np.unique(rows, axis=0)) == 60
