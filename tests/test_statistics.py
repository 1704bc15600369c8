"""Statistics before training: against NumPy without noise, their standard errors with noise, what is refused."""

from typing import NamedTuple

import jax
import numpy as np
import pytest
import tiers
from scipy import stats
from small import FALSE_ALARM

import fedpriv as fp
from fedpriv.proof.stream import root_of

pytestmark = pytest.mark.usefixtures("quick_to_compile")

SIZES = [5, 2, 4, 3]
OWNER = np.repeat(np.arange(4), SIZES)
RNG = np.random.default_rng(0)
EXAMPLES = {
    "age": RNG.uniform(0, 90, 14).astype(np.float32),
    "x": RNG.normal(size=(14, 2)).astype(np.float32),
    "image": RNG.integers(0, 256, (14, 3, 2, 2)).astype(np.uint8),
    "label": np.array([0, 1, 1, 3, 3, 3, 2, 1, 3, 3, 0, 7, 7, 1], np.int32),
}
EXAMPLES["x"][5:7] = [[30, 40], [3, 4]]  # a client in a corner of what is allowed, or beyond
FEDERATION = fp.Federation.from_arrays({**EXAMPLES, "owner": OWNER}, "owner")
AGE, LABEL = (EXAMPLES[name].astype(np.float64) for name in ("age", "label"))
X = np.clip(EXAMPLES["x"].astype(np.float64), [-3, -4], [3, 4])
IMAGE = EXAMPLES["image"].reshape(14, 6, 2).astype(np.float64)
EDGES = np.array([0.0, 10, 30, 31, 64, 90])
UNITS = ["client", "record"]
S = fp.statistics
TWO_COLUMNS = (np.array([-3.0, -4]), np.array([3.0, 4]))


def of_clients(values):
    """The mean over each client's records, [clients, ...]."""
    return np.stack([values[c == OWNER].mean(0) for c in range(4)])


def over(unit, values):
    """The mean over units: clients, or records."""
    return (of_clients(values) if unit == "client" else values).mean(0)


def shares(where, unit):
    """Counts of units, from which of k things each record is, bool[14, k]."""
    where = where.astype(np.float64)
    return (of_clients(where) if unit == "client" else where).sum(0)


def moments(unit, values):
    mean = over(unit, values)
    return S.Moments(mean, over(unit, values**2) - mean**2)


def of_pixels(unit):
    mean = over(unit, IMAGE.mean(1))
    return S.Moments(mean, over(unit, (IMAGE**2).mean(1)) - mean**2)


def in_bins(unit):
    inside = (EDGES[:-1] <= AGE[:, None]) & (AGE[:, None] < EDGES[1:])
    return shares(inside, unit)


def summed(unit):
    """Of what each unit adds, up to 100."""
    each = [AGE[c == OWNER].sum() for c in range(4)] if unit == "client" else AGE
    return np.clip(each, 10, 100).sum()


def counted(unit, most):
    each = [(AGE[c == OWNER] > 40).sum() for c in range(4)] if unit == "client" else AGE > 40
    return np.minimum(each, most).sum()


def hitters(unit):
    counts = shares(LABEL[:, None] == [0, 1, 2, 3], unit)
    first = np.argsort(-counts, kind="stable")[:2]
    return S.HeavyHitters(np.arange(4)[first], counts[first])


STATISTICS = {
    "count": (S.count(lambda e: e["age"] > 40), lambda u: counted(u, 1)),
    "count, 2 each": (S.count(lambda e: e["age"] > 40, most=2), lambda u: counted(u, 2)),
    "sum": (S.sum("age", bounds=(10, 100)), summed),
    "mean": (S.mean("age", bounds=(20, 60)), lambda u: over(u, np.clip(AGE, 20, 60))),
    "moments": (S.mean_and_variance("x", bounds=TWO_COLUMNS), lambda u: moments(u, X)),
    "pixels": (S.mean_and_variance("image", bounds=(0, 255), axis=(0, 1)), of_pixels),
    "histogram": (S.histogram("age", bins=EDGES), in_bins),
    "heavy hitters": (S.heavy_hitters("label", candidates=[0, 1, 2, 3], most=2), hitters),
}

MOST = {
    "count": (S.count(), 1),
    "count, 3 each": (S.count(most=3), {"client": 3, "record": 1}),
    "count, more than there are": (S.count(most=99), {"client": 5, "record": 1}),
    "sum": (S.sum("age", bounds=(10, 100)), 100),
    "sum, from below 0": (S.sum("age", bounds=(-4, 1)), 4),
    "histogram": (S.histogram("age", bins=[0, 50, 90]), 1),
    "heavy hitters": (
        S.heavy_hitters("label", candidates=[0], most=1),
        np.sqrt(2),
    ),  # counted twice
}


class Of(NamedTuple):
    """A statistic of clients or records: of records one is enough by default, as all are drawn alike."""

    name: str
    unit: str

    @property
    def kind(self):
        statistic = {**STATISTICS, **MOST}[self.name][0]
        return type(statistic) if self.unit == "client" else self.unit


def asked_by(entry):
    """The function that makes a statistic."""
    return entry[0].name.partition("(")[0]


def of_everything():
    """For clients, and one of each function for records, too."""
    of_records = tiers.one_of_each(STATISTICS, asked_by)
    entries = [Of(name, "client") for name in STATISTICS] + [Of(n, "record") for n in of_records]
    return tiers.every("of", entries)


def first_of_clients(*names):
    """One for records in the full tier: their noise differs in its deviation alone."""
    entries = [*(Of(name, "client") for name in names), Of(names[0], "record")]
    return tiers.every("of", entries, lambda entry: type(STATISTICS[entry.name][0]))


MANY = RNG.lognormal(3, 0.7, 300).astype(np.float32)
HOLDER = np.concatenate([np.arange(30), RNG.integers(0, 30, 270)])
CROWD = fp.Federation.from_arrays({"income": MANY, "owner": HOLDER}, "owner")
Q, FINE = [0.25, 0.5], np.linspace(0, 300, 301)
QUANTILES = S.quantile("income", Q, bins=FINE)
MEDIAN = S.adaptive_quantile("income", 0.5, start=5.0, rounds=60)


def drawn(statistic, unit, noise, draws, federation=None):
    """(Values, standard errors) of so many releases, without their checks: trees of [draws, ...]."""
    federation = federation or FEDERATION
    asked = statistic._asked(federation, noise, unit)
    once = fp.one_round(asked.algorithm)
    state = asked.algorithm.init(np.zeros(1, np.float32), federation)

    @jax.jit
    @jax.vmap
    def run(key):
        def step(_, state):
            return once(root_of(key), state, federation)[0]

        return jax.lax.fori_loop(0, statistic.rounds, step, state)

    states = jax.tree.map(np.asarray, run(jax.random.split(jax.random.key(5), draws)))
    each = [asked.read(jax.tree.map(lambda leaf, i=i: leaf[i], states)) for i in range(draws)]
    return tuple(jax.tree.map(lambda *a: np.stack(a), *some) for some in zip(*each, strict=True))


@of_everything()
def test_without_noise_they_are_numpys(of):
    name, unit = of
    statistic, expected = STATISTICS[name]
    value, error = drawn(statistic, unit, 0.0, 1)
    expected = expected(unit)
    for ours, theirs in zip(jax.tree.leaves(value), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours[0], theirs, rtol=2e-6, atol=2e-5)
    if name != "heavy hitters":
        assert not np.any(jax.tree.leaves(error)[0])


def exact_quantiles(unit):
    """Of `MANY`, [2]; of clients, each record counts by one over how many there are."""
    weights = {"client": 1 / np.bincount(HOLDER)[HOLDER], "record": np.ones(300)}[unit]
    order = np.argsort(MANY)
    share = np.cumsum(weights[order]) / weights.sum()
    return MANY[order][np.searchsorted(share, Q)]


@tiers.every("unit", UNITS)
def test_quantiles_without_noise(unit):
    exact = exact_quantiles(unit)
    value, _ = drawn(QUANTILES, unit, 0.0, 1, CROWD)
    assert np.abs(value[0] - exact).max() <= 1  # the bins' width
    adaptive, _ = drawn(MEDIAN, unit, 0.0, 1, CROWD)
    # It steps to and fro, and half the places for records are empty.
    assert abs(np.log(adaptive[0] / exact[1])) < {"client": 0.02, "record": 0.1}[unit]


@first_of_clients("histogram", "sum", "count")
def test_errors_of_what_is_linear_are_exact(of):
    """Errors over standard errors are normal: sums of their squares are chi-square."""
    name, unit = of
    statistic, expected = STATISTICS[name]
    value, error = drawn(statistic, unit, 1.5, 400)
    z = ((value - expected(unit)) / error).reshape(-1)
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], z.size)
    assert low < np.sum(z**2) < high
    assert abs(z.sum()) < stats.norm.isf(FALSE_ALARM / 2) * np.sqrt(z.size)


@first_of_clients("moments", "mean", "pixels")
def test_two_standard_errors_cover_means_and_variances(of):
    """Of little noise, as of errors by the delta method; a normal variable is covered 95.4 times in 100."""
    name, unit = of
    statistic, expected = STATISTICS[name]
    value, error = drawn(statistic, unit, 0.05, 400)
    truth = expected(unit)
    for ours, off, theirs in zip(*map(jax.tree.leaves, (value, error, truth)), strict=True):
        within = np.abs(ours - theirs) <= 2 * off
        least, most = stats.binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], 400, 0.9545)
        for one in within.reshape(400, -1).sum(0):
            assert least <= one <= most


@pytest.mark.slow
def test_a_variance_is_unbiased_however_much_noise_there_is():
    value, error = drawn(STATISTICS["moments"][0], "client", 3.0, 4000)
    off = value.variance.mean(0) - moments("client", X).variance
    spread = value.variance.std(0, ddof=1)
    assert np.all(np.abs(off) < stats.norm.isf(FALSE_ALARM / 2) * spread / np.sqrt(4000))
    root_mean_square = np.sqrt(np.mean(error.variance**2, 0))
    assert np.all((0.95 * spread < root_mean_square) & (root_mean_square < 2.2 * spread))


def test_means_of_pixels_are_of_channels():
    value, _ = drawn(STATISTICS["pixels"][0], "client", 0.0, 1)
    assert value.mean.shape == value.variance.shape == (1, 2)


@pytest.mark.slow
def test_a_clients_share_is_bounded_by_its_bounds():
    """However many records it holds, and however large their values are."""
    loud = {**EXAMPLES, "age": EXAMPLES["age"] + np.where(OWNER == 0, 1e6, 0).astype(np.float32)}
    federation = fp.Federation.from_arrays({**loud, "owner": OWNER}, "owner")
    for statistic, most in ((S.sum("age", bounds=(0, 100)), 100), (S.count(most=2), 2)):
        asked = statistic._asked(federation, 0.0, "client")
        state = asked.algorithm.init(np.zeros(1, np.float32), federation)
        state, _ = fp.one_round(asked.algorithm)(jax.random.key(0), state, federation)
        value, _ = asked.read(state)
        assert value <= 4 * most


@pytest.mark.parametrize("of", [Of(name, unit) for unit in UNITS for name in MOST], ids=str)
def test_noise_hides_all_that_a_unit_adds_to_a_number(of):
    """A unit that is zeroed out adds nothing, not half of it: what is certified is the whole distance."""
    name, unit = of
    statistic, most = MOST[name]
    most = most[unit] if isinstance(most, dict) else most
    sigma = 2.0
    asked = statistic._asked(FEDERATION, sigma, unit)
    _, error = asked.read(asked.algorithm.init(np.zeros(1, np.float32), FEDERATION))
    drawn_by = 4 if unit == "record" else 1  # clients, each its own
    error = getattr(error, "counts", error)
    np.testing.assert_allclose(error, sigma * most * np.sqrt(drawn_by), rtol=1e-6)


@pytest.mark.slow
def test_items_that_a_type_cannot_hold_are_not_counted():
    """As 257 of bytes, which is 1 where it is cast."""
    labels = S.heavy_hitters(lambda e: e["label"].astype("uint8"), candidates=[257, 1], most=2)
    value, _ = drawn(labels, "record", 0.0, 1)
    np.testing.assert_array_equal(value.items[0], [1, 257])
    np.testing.assert_allclose(value.counts[0], [np.sum(LABEL == 1), 0], atol=1e-5)
