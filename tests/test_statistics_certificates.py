"""What statistics cost, alone and beside training; and that none is used before it is released."""

import json

import dp_accounting as dp
import jax
import numpy as np
import optax
import pytest
import tiers
from dp_accounting.pld import PLDAccountant
from scipy import optimize, stats
from small import refused

import fedpriv as fp
from fedpriv.privacy import VIEWS
from fedpriv.statistics.statistic import _own_seed

pytestmark = [
    pytest.mark.usefixtures("quick_to_compile"),
    pytest.mark.filterwarnings("ignore:fp.statistics.*noise hides the number"),
]

CLIENTS, PER_CLIENT, SIGMA, DELTA = 9, 4, 2.0, 1e-4
RNG = np.random.default_rng(0)
EXAMPLES = {
    "x": RNG.normal(1, 2, (36, 3)).astype(np.float32),
    "label": RNG.integers(0, 3, 36).astype(np.int32),
}
OWNERS = [np.arange(4 * c, 4 * c + 4) for c in range(CLIENTS)]
FEDERATION = fp.Federation.from_arrays(EXAMPLES, OWNERS)
S = fp.statistics
MOMENTS = S.mean_and_variance("x", bounds=(-10, 10))
STATISTICS = {
    "count": S.count(lambda e: e["label"] == 0),
    "sum": S.sum("x", bounds=(-10, 10)),
    "mean": S.mean("x", bounds=(-10, 10)),
    "moments": MOMENTS,
    "histogram": S.histogram(lambda e: e["x"][0], bins=np.linspace(-5, 5, 6)),
    "quantile": S.quantile(lambda e: e["x"], 0.5, bins=np.linspace(-5, 5, 6)),
    "heavy hitters": S.heavy_hitters("label", candidates=[0, 1, 2], most=1),
    "adaptive": S.adaptive_quantile(lambda e: e["x"][0] ** 2, 0.5, start=1.0, rounds=5),
}
MODEL = fp.models.classifier(fp.models.LogisticRegression(3), (3,))


def loss(params, example):
    return MODEL.loss(params, {"image": example["x"], "label": example["label"]})


TRAINING = fp.dp_fed_avg(
    loss,
    sampler=fp.poisson(CLIENTS, 0.3, CLIENTS),
    batches=fp.full_batch(),
    optimizer=lambda t: optax.sgd(0.1),
    clip_norm=1.0,
    noise_multiplier=3.0,
)


def gaussian_epsilon(multiplier):
    """Of one release: B. Balle, Y.-X. Wang, ICML 2018, Theorem 8."""

    def excess(epsilon):
        mu = 1 / multiplier
        upper = stats.norm.cdf(mu / 2 - epsilon / mu)
        return upper - np.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu) - DELTA

    return optimize.brentq(excess, 0, 200)


@pytest.mark.parametrize("unit", ["client", "record"])
@tiers.every("name", STATISTICS, kind=lambda statistic: statistic.rounds > 1)
def test_the_certificate_is_that_of_the_gaussian_mechanism(name, unit):
    """Everyone's noise counts in sums; a server that sees messages sees shares, or one client's own."""
    statistic = STATISTICS[name]
    algorithm = statistic.algorithm(FEDERATION, noise_multiplier=SIGMA, unit=unit)
    traced = fp.trace_round(algorithm, np.zeros(1), FEDERATION)
    root = np.sqrt(CLIENTS)
    in_sums = {"client": SIGMA, "record": SIGMA * root}[unit]
    alone = {"client": SIGMA / root, "record": SIGMA}[unit]
    for view in VIEWS:
        certificate = traced.certify(statistic.rounds, DELTA, view=view)
        multiplier = alone if view == "server" else in_sums
        expected = gaussian_epsilon(multiplier / np.sqrt(statistic.rounds))
        assert certificate.epsilon == pytest.approx(expected, rel=1e-3)
        assert (certificate.unit, certificate.relation) == (unit, "zero_out")
        assert certificate.basis == "constructed"


def test_statistics_and_training_have_one_epsilon():
    first = MOMENTS.algorithm(FEDERATION, noise_multiplier=SIGMA)
    together = fp.certify_together([(first, 1), (TRAINING, 6)], MODEL.init, FEDERATION, DELTA)
    accountant = PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(dp.GaussianDpEvent(SIGMA))
    accountant.compose(dp.PoissonSampledDpEvent(0.3, dp.GaussianDpEvent(3.0)), 6)
    assert together.epsilon == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)
    assert together.basis == "constructed"


WITH_TRAINING = {"record": fp.everyone(CLIENTS), "client": fp.fixed_size(CLIENTS, 3)}


@pytest.mark.slow
@tiers.every("unit", WITH_TRAINING)
def test_they_go_with_training_of_any_adjacency(unit):
    """Of clients and of records; also in shapes."""
    steps = fp.LocalSteps(
        fp.per_example(loss),
        fp.PublicSizes([PER_CLIENT] * CLIENTS, batch=2),
        2,
        lambda t: optax.sgd(0.1),
        fp.gaussian(1.0, 3.0),
    )
    sampler = WITH_TRAINING[unit]
    training = TRAINING._replace(sampler=sampler)
    if unit == "record":
        training = fp.dp_sgd(steps, sampler=sampler)
    shapes = fp.Federation.blank({"x": np.zeros(3, np.float32), "label": np.int32(0)}, 9, 4)
    first = STATISTICS["histogram"].algorithm(shapes, noise_multiplier=SIGMA, unit=unit)
    alone = fp.trace_round(training, MODEL.init, shapes).certify(2, DELTA)
    together = fp.certify_together([(first, 1), (training, 2)], MODEL.init, shapes, DELTA)
    assert alone.epsilon < together.epsilon < np.inf
    assert together.relation == alone.relation


@tiers.every("unit", ["client", "record"])
def test_the_algorithm_passes_every_check(unit):
    algorithm = MOMENTS.algorithm(FEDERATION, noise_multiplier=SIGMA, unit=unit)
    fp.check_algorithm(algorithm, np.zeros(2, np.float32), FEDERATION, rounds=4)


@pytest.mark.slow
def test_an_audit_lies_below_the_certificate():
    """And above 60 % of it."""
    algorithm = MOMENTS.algorithm(FEDERATION, noise_multiplier=1.0)
    traced = fp.trace_round(algorithm, np.zeros(1), FEDERATION)
    scores = fp.attacks.draw_scores(traced.seen(1), "third_party", draws=20_000, dimension=3)
    certified = traced.certify(1, 1e-2).epsilon
    assert fp.attacks.lower_bounds(scores, 1e-2, significance=1e-6).least <= certified
    assert fp.attacks.lower_bounds(scores, 1e-2).gaussian > 0.6 * certified


@pytest.fixture(scope="module")
def released():
    return MOMENTS.release(FEDERATION, epsilon=1.0, delta=DELTA, seed=3)


class TestReleases:
    def test_an_epsilon_finds_its_noise(self, released):
        assert released.certificate.epsilon == pytest.approx(1, rel=1e-3)
        again = fp.certify(released.algorithm, np.zeros(1), FEDERATION, 1, DELTA)
        assert again.epsilon == released.certificate.epsilon
        assert released.noise_multiplier == pytest.approx(
            optimize.brentq(lambda s: gaussian_epsilon(s) - 1, 0.5, 50), rel=1e-3
        )

    @pytest.mark.slow
    def test_a_seed_is_of_one_statistic_alone(self, released):
        how = {"noise_multiplier": released.noise_multiplier, "delta": DELTA}
        wider = S.mean_and_variance("x", bounds=(-10, 10.5)).release(FEDERATION, **how, seed=3)
        assert np.abs(wider.value.mean - released.value.mean).max() > 0.1
        secret = MOMENTS.release(FEDERATION, **how)
        assert np.abs(secret.value.mean - released.value.mean).max() > 0.1

    def test_no_two_programs_share_noise(self):
        """Whatever they are called: bins between the same ends, lists of one length, functions without a name."""

        def scaled(by):
            return lambda e: (e["x"] * by)[0]

        def projected(key):
            return lambda e: e["x"] @ jax.random.normal(key, (3,))

        def each():
            yield S.histogram("label", bins=[0, 1, 3])
            yield S.histogram("label", bins=[0, 2, 3])
            yield S.heavy_hitters("label", candidates=[0, 1], most=1)
            yield S.heavy_hitters("label", candidates=[0, 2], most=1)
            yield from (S.mean(scaled(np.eye(3)[i]), bounds=(0, 1)) for i in range(2))
            yield from (S.mean(lambda e, i=i: e["x"][i], bounds=(0, 1)) for i in range(2))
            yield from (S.mean(projected(jax.random.key(i)), bounds=(0, 1)) for i in range(2))

        def seed(statistic, sigma=SIGMA, unit="client"):
            algorithm = statistic.algorithm(FEDERATION, noise_multiplier=sigma, unit=unit)
            return _own_seed(3, fp.trace_round(algorithm, np.zeros(1), FEDERATION), sigma)

        seeds = [seed(statistic) for statistic in each()]
        assert len(set(seeds)) == len(seeds)
        assert seeds[-3:] == [seed(statistic) for statistic in [*each()][-3:]]
        others = {seed(MOMENTS), seed(MOMENTS, SIGMA + 1e-9), seed(MOMENTS, unit="record")}
        assert len(others) == 3

    def test_who_certifies_training_alone_is_told_what_is_not_counted(self, released):
        normal = fp.normalised(FEDERATION, by=released)
        assert normal.repartition(OWNERS).normalised == ("x",)
        streamed = fp.StreamedFederation.from_arrays(EXAMPLES, OWNERS)
        assert fp.normalised(streamed, by=released).normalised == ("x",)
        plain, scaled = (
            set(fp.trace_round(TRAINING, MODEL.init, f).certify(1, DELTA).assumptions)
            for f in (FEDERATION, normal)
        )
        (said,) = scaled - plain
        assert said.startswith("x of the records is on the scale of released statistics")

    @pytest.mark.slow
    def test_a_streamed_federation_gives_the_same(self, released):
        streamed = fp.StreamedFederation.from_arrays(EXAMPLES, OWNERS)
        how = {"noise_multiplier": released.noise_multiplier, "delta": DELTA, "seed": 3}
        same = MOMENTS.release(streamed, **how)
        np.testing.assert_array_equal(same.value.mean, released.value.mean)
        ours, theirs = (fp.normalised(one, by=released) for one in (FEDERATION, streamed))
        np.testing.assert_allclose(theirs.examples["x"], ours.examples["x"], rtol=1e-6)

    def test_examples_are_normalised_by_what_was_released(self, released):
        mean, variance = released.value
        deviation = np.sqrt(np.maximum(variance, released.standard_error.variance))
        expected = (EXAMPLES["x"] - mean) / deviation
        ours = fp.normalised(FEDERATION, by=[released])
        test = fp.normalised(EXAMPLES, by=released)
        for examples in (ours.examples, test):
            assert examples["x"].dtype == np.float32
            np.testing.assert_allclose(examples["x"], expected, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(examples["label"], EXAMPLES["label"])
        np.testing.assert_array_equal(ours.rows, FEDERATION.rows)

    def test_held_out_records_are_normalised_alike(self, released):
        held = [rows[3:] for rows in OWNERS]
        federation = FEDERATION.repartition([rows[:3] for rows in OWNERS], held_out=held)
        ours = fp.normalised(federation, by=released)
        assert ours.held_out.examples is ours.examples
        np.testing.assert_array_equal(ours.held_out.rows, federation.held_out.rows)

    def test_its_numbers_come_back_from_a_file(self, released):
        def written(moments):
            return json.loads(json.dumps({k: v.tolist() for k, v in moments._asdict().items()}))

        value, error = (
            S.Moments(**{k: np.asarray(v) for k, v in written(moments).items()})
            for moments in (released.value, released.standard_error)
        )
        again = fp.normalised(EXAMPLES, by=S.Released(MOMENTS, value, error))
        np.testing.assert_array_equal(again["x"], fp.normalised(EXAMPLES, by=released)["x"])

    def test_what_is_not_released_cannot_be_used(self, released):
        with refused(r"by: .*mean_and_variance.*; it is not released"):
            fp.normalised(FEDERATION, by=MOMENTS)
        counts = S.Released(STATISTICS["count"], np.float64(3), np.float64(1))
        for wrong in (counts, 5, []):
            with refused(r"by: .*; give what fp.statistics.mean_and_variance"):
                fp.normalised(FEDERATION, by=wrong)
        of_function = S.mean_and_variance(lambda e: e["x"] / 2, bounds=(0, 1))
        with refused(r"by: .*; give statistics of a leaf"):
            fp.normalised(EXAMPLES, by=S.Released(of_function, *[released.value] * 2))
        with refused(r"by: 'x'; give statistics of one of \['label'\]"):
            fp.normalised({"label": EXAMPLES["label"]}, by=released)


def test_a_round_that_reads_a_statistic_that_nobody_released_is_caught():
    """In its first state, from what clients hold, or through the cohort without noise."""

    def init(params, federation):
        mean = federation.examples["x"].mean(0)
        return fp.start({"w": params["w"] - mean}, federation)

    model = {"w": np.zeros(3, np.float32)}
    start = {"w": np.zeros(3, np.float32)}
    by_init = fp.fed_avg(
        lambda p, e: ((p["w"] - e["x"]) ** 2).sum(),
        sampler=fp.everyone(CLIENTS),
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.full_batch(),
        mechanism=fp.gaussian(1.0, SIGMA),
    )._replace(init=init)
    with pytest.raises(fp.LeakError, match="init: state"):
        fp.certify(by_init, model, FEDERATION, 1, DELTA)
    held = FEDERATION.examples["x"]

    def round(key, state, cohort):
        total, metrics, _ = cohort.sum(
            lambda key, shard: {"w": state.params["w"]}, key, mechanism=fp.gaussian(1.0, SIGMA)
        )
        scaled = {"w": total["w"] - held.mean(0)}
        return fp.ModelState(scaled, state.round + 1), metrics

    by_round = fp.Algorithm(fp.start, round, fp.everyone(CLIENTS))
    with pytest.raises(fp.LeakError, match="closes over"):
        fp.certify(by_round, start, FEDERATION, 1, DELTA)
