"""Standard errors of statistics mean what a reader takes them for: within 1.96 of them lies the number."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiers
from scipy import stats
from small import FALSE_ALARM
from test_statistics import drawn

import fedpriv as fp

pytestmark = pytest.mark.usefixtures("quick_to_compile")

S = fp.statistics
RNG = np.random.default_rng(1)
HOLDER = np.concatenate([np.arange(60), RNG.integers(0, 60, 540)])
TABLE = {
    "age": RNG.normal(55, 15, 600).clip(1, 100).astype(np.float32),
    "income": RNG.lognormal(3, 0.7, 600).astype(np.float32),
    "there": RNG.random(600) < 0.7,
    "label": RNG.integers(0, 40, 600).astype(
        np.int32
    ),  # about 15 records each: whose count is largest, noise says
}
CROWD = fp.Federation.from_arrays({**TABLE, "owner": HOLDER}, "owner")
SHARES = {"client": 1 / np.bincount(HOLDER)[HOLDER], "record": np.ones(600)}
AGE, INCOME, THERE, LABEL = TABLE.values()
CLIPPED = np.clip(INCOME, 0, 100).astype(np.float64)
Q = np.array([0.05, 0.5, 0.9])
TEN, MANY = np.linspace(0, 200, 11), np.linspace(0, 200, 201)


def mean(unit, values, where=True):
    """Of units, each number by the share of its unit's records."""
    return np.average(values, weights=SHARES[unit] * where)


def quantiles(unit, values, q=Q):
    order = np.argsort(values)
    below = np.cumsum(SHARES[unit][order]) / SHARES[unit].sum()
    return values[order][np.searchsorted(below, q)]


def counted(unit, where):
    """Units of which it is true: clients, or records."""
    return len(set(HOLDER[where])) if unit == "client" else where.sum()


def summed(unit):
    each = np.bincount(HOLDER, AGE) if unit == "client" else AGE
    return np.minimum(each, 500).sum()


def moments(unit):
    of_mean = mean(unit, CLIPPED)
    return S.Moments(of_mean, mean(unit, CLIPPED**2) - of_mean**2)


def observed(unit):
    return S.Observed(mean(unit, CLIPPED, THERE), 1 - mean(unit, THERE))


def in_bins(unit):
    return np.histogram(AGE, np.linspace(0, 101, 8), weights=SHARES[unit])[0]


def of_items(unit, released):
    """The items' own counts, whichever were released."""
    counts = np.bincount(LABEL, SHARES[unit], 40)
    return S.HeavyHitters(released.items, counts[released.items])


def adaptive(leaf, q, start, rounds):
    values = TABLE[leaf]
    statistic = S.adaptive_quantile(leaf, q, start=start, rounds=rounds)
    return statistic, lambda unit, _: quantiles(unit, values, q)


def lab(record):
    return jnp.where(record["there"], record["income"], jnp.nan)


REGISTRY = {
    "count": (S.count(lambda e: e["age"] > 60), lambda u, _: counted(u, AGE > 60)),
    "sum": (S.sum("age", bounds=(0, 500)), lambda u, _: summed(u)),
    "mean": (S.mean("income", bounds=(0, 100)), lambda u, _: mean(u, CLIPPED)),
    "moments": (S.mean_and_variance("income", bounds=(0, 100)), lambda u, _: moments(u)),
    "observed": (S.observed_mean(lab, bounds=(0, 100)), lambda u, _: observed(u)),
    "histogram": (S.histogram("age", bins=np.linspace(0, 101, 8)), lambda u, _: in_bins(u)),
    "ten bins": (S.quantile("income", Q, bins=TEN), lambda u, _: quantiles(u, INCOME)),
    "many bins": (S.quantile("income", Q, bins=MANY), lambda u, _: quantiles(u, INCOME)),
    "heavy hitters": (S.heavy_hitters("label", candidates=range(40), most=2), of_items),
    "adaptive": adaptive("age", 0.5, 5.0, 60),
    "adaptive, near": adaptive("income", 0.9, 50.0, 60),
    "adaptive, short": adaptive("age", 0.5, 5.0, 15),
    "adaptive, high": adaptive("income", 0.5, 1e3, 40),
}
COVERED = 0.9  # of releases, at least: about 0.95 where the number is linear in noise
DRAWS = 1000


class Case(NamedTuple):
    """A statistic of a unit, at a multiplier of the noise."""

    name: str
    unit: str
    noise: float

    @property
    def kind(self):
        return REGISTRY[self.name][0].name.partition("(")[0]


NOISE = {"client": (2.0, 0.5, 8.0, 20.0), "record": (0.5, 2.0, 8.0)}  # epsilons from above 10 down
CASES = [Case(name, u, s) for u, each in NOISE.items() for s in each for name in REGISTRY]


@tiers.every("case", CASES)
def test_two_standard_errors_cover_the_number(case):
    """In at least 90 of 100 releases, with a false alarm for each number of 1e-6, whatever the noise."""
    statistic, truth = REGISTRY[case.name]
    draws = DRAWS if statistic.rounds == 1 else 300
    value, error = drawn(statistic, case.unit, case.noise, draws, CROWD)
    numbers = zip(*map(jax.tree.leaves, (value, error, truth(case.unit, value))), strict=True)
    for ours, off, theirs in numbers:
        within = (np.abs(ours - theirs) <= 1.96 * off).reshape(draws, -1)
        assert within.sum(0).min() >= stats.binom.ppf(FALSE_ALARM, draws, COVERED)


def test_the_law_is_of_every_statistic():
    asked = {statistic.name.partition("(")[0] for statistic, _ in REGISTRY.values()}
    assert asked == {name for name in S.__all__ if name.islower()}


def test_errors_shrink_with_the_noise():
    """They are not wide for the sake of covering: of fine bins, and of an adaptive quantile that is at rest."""
    _, of_bins = drawn(REGISTRY["many bins"][0], "client", 0.05, 30, CROWD)
    _, of_rounds = drawn(REGISTRY["adaptive"][0], "client", 0.05, 30, CROWD)
    assert np.all(of_bins[:, :2] < 1.5)
    assert np.all(of_rounds < 0.5)


def test_a_quantile_on_its_way_has_no_standard_error():
    """Of records, of which half of the places are empty, too."""
    for unit in ("client", "record"):
        _, error = drawn(REGISTRY["adaptive, short"][0], unit, 0.05, 30, CROWD)
        assert np.all(np.isinf(error))


def test_the_distance_that_is_left_is_in_the_standard_error():
    """Where it slows down: far above what noise does."""
    statistic, truth = adaptive("income", 0.9, 5.0, 66)
    value, error = drawn(statistic, "client", 0.05, 30, CROWD)
    left = np.abs(value - truth("client", None))
    assert np.all((left > 20 * value.std()) & (left <= 1.96 * error) & (error < 5 * left))


def test_noise_that_hides_the_way_leaves_no_standard_error():
    _, error = drawn(REGISTRY["adaptive"][0], "client", 200.0, 30, CROWD)
    assert np.all(np.isinf(error))
