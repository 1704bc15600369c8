"""Statistics of values that may be missing: left out, or refused; never taken for the middle of the bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import tiers
from small import refused
from test_statistics import drawn

import fedpriv as fp

pytestmark = pytest.mark.usefixtures("quick_to_compile")

S = fp.statistics
RNG = np.random.default_rng(4)
OWNER = np.repeat(np.arange(12), 5)
LAB = RNG.uniform(0, 100, 60).astype(np.float32)
THERE = (RNG.random(60) < 0.6) & (OWNER != 3)  # one client has none at all
FEDERATION = fp.Federation.from_arrays({"lab": LAB, "there": THERE, "owner": OWNER}, "owner")
FRAME = pd.DataFrame({"lab": np.where(THERE, LAB, np.nan), "owner": OWNER})
SHARES = FRAME.lab.notna().groupby(OWNER).mean()


def lab(record):
    return jnp.where(record["there"], record["lab"], jnp.nan)


def both(record):
    """One number that may be missing, and one that is always there."""
    return jnp.stack([lab(record), record["lab"]])


def of_clients(values):
    """The sum over clients of what their records add on average."""
    return values.groupby(OWNER).sum().to_numpy() / 5


def over(unit, values):
    """Of the values that are there, records alike or by their client's share."""
    return values.mean() if unit == "record" else of_clients(values).sum() / SHARES.sum()


def binned(unit):
    counts, each = pd.cut(FRAME.lab, [0, 30, 60, 100]), pd.get_dummies
    table = each(counts).astype(float)
    return (table if unit == "record" else table / 5).sum().to_numpy()


LEFT_OUT = {
    "count": (S.count(lab), lambda u: {"client": SHARES.gt(0).sum(), "record": THERE.sum()}[u]),
    "sum": (S.sum(lab, bounds=(0, 500)), lambda u: FRAME.lab.sum()),
    "sum within": (
        S.sum(lab, bounds=(5, 10)),
        lambda u: (
            (FRAME.lab if u == "record" else FRAME.lab.groupby(OWNER).sum()).clip(5, 10).sum()
        ),
    ),
    "observed mean": (
        S.observed_mean(lab, bounds=(0, 100)),
        lambda u: S.Observed(over(u, FRAME.lab), 1 - THERE.mean()),
    ),
    "of several": (
        S.observed_mean(both, bounds=([0, 0], [100, 100])),
        lambda u: S.Observed(
            np.array([over(u, FRAME.lab), LAB.mean()]), np.array([1 - THERE.mean(), 0])
        ),
    ),
    "histogram": (S.histogram(lab, bins=[0, 30, 60, 100]), binned),
    "heavy hitters": (
        S.heavy_hitters(lambda e: jnp.floor(lab(e) / 50), candidates=[0, 1], most=2),
        lambda u: most_frequent(u),
    ),
}


def most_frequent(unit):
    halves = np.stack([FRAME.lab < 50, FRAME.lab >= 50], 1) / (5 if unit == "client" else 1)
    first = np.argsort(-halves.sum(0))
    return S.HeavyHitters(first, halves.sum(0)[first])


@pytest.mark.parametrize("unit", ["client", "record"])
@tiers.every("name", LEFT_OUT, lambda entry: entry[0].name.partition("(")[0])
def test_what_is_missing_is_left_out(name, unit):
    """As pandas leaves it out."""
    statistic, expected = LEFT_OUT[name]
    value, _ = drawn(statistic, unit, 0.0, 1, FEDERATION)
    for ours, theirs in zip(*map(jax.tree.leaves, (value, expected(unit))), strict=True):
        np.testing.assert_allclose(ours[0], theirs, rtol=1e-5, atol=1e-5)


@tiers.every("unit", ["client", "record"])
def test_quantiles_are_of_what_is_there(unit):
    """Whatever stands in for what is missing: half of all would lie above the upper tail's estimate."""
    fine = S.quantile(lab, 0.5, bins=np.linspace(0, 100, 101))
    value, _ = drawn(fine, unit, 0.0, 1, FEDERATION)
    adaptive = S.adaptive_quantile(lab, 0.5, start=20.0, rounds=200)
    by_rounds, _ = drawn(adaptive, unit, 0.0, 1, FEDERATION)
    weights = np.ones(60) if unit == "record" else np.full(60, 1 / 5)
    order = np.argsort(LAB[THERE])
    below = np.cumsum(weights[THERE][order]) / weights[THERE].sum()
    exact = LAB[THERE][order][np.searchsorted(below, 0.5)]
    assert abs(value[0] - exact) <= 2
    assert abs(np.log(by_rounds[0] / exact)) < 0.1


@pytest.mark.parametrize("unit", ["client", "record"])
@tiers.every("make", ["mean", "mean_and_variance"])
def test_a_mean_whose_divisor_counts_all_is_refused(make, unit):
    """As of log x where x is below 0: in one line about values, and with no other warning."""
    logarithm = getattr(S, make)(lambda e: jnp.log(e["lab"] - 50), bounds=(-5, 5))
    with refused(r"^values: fp.statistics.*mean.*; some values are NaN, .*observed_mean"):
        logarithm.release(FEDERATION, noise_multiplier=1.0, delta=1e-3, unit=unit, seed=1)


def test_what_is_infinite_is_clipped():
    """It is there, and outside the bounds: log 0 is the lower one."""
    zero = S.mean(lambda e: jnp.log(e["lab"] * (e["lab"] > 50)), bounds=(-5, 5))
    released = zero.release(FEDERATION, noise_multiplier=0.0, delta=1e-3, unit="client", seed=1)
    expected = np.where(LAB > 50, np.log(LAB), -5).mean()
    assert released.value == pytest.approx(expected, abs=1e-4)


def test_a_release_of_what_is_there_names_what_it_costs():
    asked = S.observed_mean(lab, bounds=(0, 100))
    released = asked.release(FEDERATION, epsilon=2.0, delta=1e-3, seed=1)
    assert released.certificate.epsilon == pytest.approx(2, rel=1e-3)
    assert released.certificate.basis == "constructed"
    assert np.shape(released.value.mean) == np.shape(released.value.missing) == ()
