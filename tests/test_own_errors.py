"""How exactly a client's own records tell a metric, against closed forms, and how often intervals hold the truth."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn import metrics
from small import start

import fedpriv as fp
from fedpriv.engine.client_intervals import own_interval
from fedpriv.models.score import Score

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLASSES = fp.models.classification_score(lambda p, x: jnp.stack([0.0, x]), 2, inputs="x")


def f1(means):
    """Of class 1."""
    examples, right = means["examples_of_class"], means["right_of_class"]
    said = right[1] + examples[0] - right[0]
    return 2 * right[1] / (said + examples[1])


def looped(means):
    """A loop whose end depends on the data: it has no derivative in reverse."""
    return jax.lax.while_loop(lambda x: x > 1, lambda x: x / 2, means["loss"])


def recall_at_90(means):
    """At the threshold above which at most a tenth of the negative records are."""
    above = jnp.cumsum(means["histogram"][:, ::-1], 1)
    place = jnp.argmax(above[0] > 0.1 * above[0, -1])
    return above[1, place - 1] / above[1, -1]


SCORE = Score(
    CLASSES.function,
    {**CLASSES.derived, "f1": f1, "looped": looped, "threshold_recall": recall_at_90},
    counts={**CLASSES.counts, "threshold_recall": lambda means: means["examples_of_class"][1]},
    smooth=(*CLASSES.derived, "f1", "looped"),
)


def judged(x, y, person=None, streamed=False, score=SCORE):
    """`ClientValues` of clients who hold these out, [clients][records]."""
    sizes = [len(each) for each in x]
    whole, label = np.float32(np.concatenate(x)), np.int32(np.concatenate(y))
    held = np.split(np.arange(len(whole)), np.cumsum(sizes)[:-1])
    rest = len(whole) + np.arange(2 * len(x)).reshape(-1, 2)  # of two persons each
    more = np.zeros(rest.size)
    examples = {
        "x": np.append(whole, np.float32(more)),
        "label": np.append(label, np.int32(more)),
    }
    whose = None
    if person is not None:
        others = np.full((rest.size, *np.shape(person[0])[1:]), -1)
        others.reshape(rest.size, -1)[:, 0] = 10**6 + np.arange(rest.size)
        whose = np.concatenate([*person, others])
    kind = fp.StreamedFederation if streamed else fp.Federation
    made = kind.from_arrays(examples, rest, held_out=held, person=whose)
    measure = fp.measures.per_client(score, on="held_out")
    found = jax.jit(lambda state: measure(state, made))(fp.ModelState(start(), 0))["held_out"]
    return jax.tree.map(lambda leaf: np.asarray(leaf)[None], found)


def drawn(rng, clients, n, apart=1.0, positive=0.4):
    y = (rng.random((clients, n)) < positive).astype(int)
    y[:, :2] = 0, 1
    return rng.normal(size=(clients, n)) + apart * y, y


def delong(x, y):
    """The standard error of an AUC, by the placements of both classes."""
    wins = np.sign(x[y == 1][:, None] - x[y == 0]) / 2 + 0.5
    return np.sqrt(sum(wins.mean(a).var(ddof=0) / wins.shape[1 - a] for a in (0, 1)))


def test_standard_errors_are_those_of_closed_forms():
    """Of an accuracy the binomial's, of an AUC DeLong's; of others about the jackknife's, one record left out."""
    x, y = drawn(np.random.default_rng(0), 6, 60)
    of = judged(x, y).own
    assert (of.units == 60).all()
    factor = np.sqrt(60 / 59)
    for i in range(6):
        right = (x[i] > 0) == y[i]
        assert of.errors["accuracy"][0, i] == pytest.approx(right.std(ddof=1) / 60**0.5, rel=1e-4)
        assert of.errors["auc"][0, i] == pytest.approx(factor * delong(x[i], y[i]), rel=1e-2)
        for name, metric in (
            ("balanced_accuracy", metrics.balanced_accuracy_score),
            ("f1", metrics.f1_score),
        ):
            left = [metric(np.delete(y[i], j), np.delete(x[i] > 0, j)) for j in range(60)]
            jackknife = np.sqrt(59 * np.var(left))
            assert of.errors[name][0, i] == pytest.approx(jackknife, rel=0.06)
    assert np.isnan(of.errors["looped"]).all()


@pytest.mark.parametrize("streamed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_records_of_one_person_count_together(streamed):
    """As persons' means do, where all have as many; who is linked by a record in common counts as one."""
    x, y = drawn(np.random.default_rng(1), 3, 24)
    person = [np.arange(24) % 8 + 100 * i for i in range(3)]
    of = judged(x, y, person, streamed)
    assert (of.own.units == 8).all()
    for i in range(3):
        right = ((x[i] > 0) == y[i]).reshape(3, 8).mean(0)  # by person
        error = right.std(ddof=1) / 8**0.5
        assert of.own.errors["accuracy"][0, i] == pytest.approx(error, rel=1e-4)
    pairs = [np.stack([of, np.where(of % 8 == 0, of + 1, -1)], 1) for of in person]
    assert (judged(x, y, pairs, streamed).own.units == 7).all()


def test_of_independent_records_an_accuracy_has_clopper_and_pearson_s_interval():
    rng = np.random.default_rng(2)
    sizes = [1, 2, 5, 30, 200]
    x = [rng.normal(size=n) for n in [*sizes, 20]]
    y = [(each + rng.normal(size=len(each)) > 0).astype(int) for each in x]
    y[-1] = (x[-1] > 0).astype(int)  # all right
    low, high = judged(x, y).interval("accuracy")
    for i, (own, label) in enumerate(zip(x, y, strict=True)):
        right = int(((own > 0) == label).sum())
        expected = stats.binomtest(right, len(own)).proportion_ci(method="exact")
        assert (low[0, i], high[0, i]) == pytest.approx((expected.low, expected.high), abs=1e-4)


def test_what_is_not_known_has_no_interval_or_a_wide_one():
    """Of a loss, fewer than two units, or alike; of a fraction that is 1, no more than its records allow."""
    x, y = [[3.0], [2.0, 2.0], [], [5.0, -4.0, *[-5.0] * 49]], [[1], [1, 1], [], [1, *[0] * 50]]
    found = judged(x, y)
    low, high = found.interval("loss")
    assert np.isnan(low[0]).tolist() == np.isnan(high[0]).tolist() == [True, True, True, False]
    low, high = found.interval("accuracy")
    assert low[0, :2] == pytest.approx([0.025, 0.025**0.5])
    assert np.isnan(low[0, 2])
    low, high = found.interval("auc")  # of one pair of classes, of which one has a single record
    assert found.metrics["auc"][0, 3] == high[0, 3] == 1.0
    assert low[0, 3] == pytest.approx(0.025**0.5, abs=1e-3)
    low, high = found.interval("f1")  # nothing says of how many records it is
    assert (low[0, 3], high[0, 3]) == (0.0, 1.0)
    assert np.isnan(found.interval("looped")[0]).all()
    with pytest.raises(ValueError, match=r"metric: there is no 'f2'"):
        found.interval("f2")
    assert fp.types.ClientValues([0], [[1.0]], {"loss": [[0.1]]}).interval("loss") is None


def test_only_what_is_called_smooth_has_an_interval():
    """Whatever its value and the number of records; also where it is said of how many it is."""
    rng = np.random.default_rng(5)
    x = [rng.normal(size=n) for n in (1, 2, 9, 60)]
    y = [np.append(1, rng.integers(0, 2, len(each) - 1)) for each in x]
    found = judged(x, y)
    assert np.isfinite(found.metrics["threshold_recall"]).any()
    assert np.isnan(found.interval("threshold_recall")).all()
    every = Score(SCORE.function, SCORE.derived, counts=SCORE.counts)
    without, means = judged(x, y, score=every), ("accuracy", "loss")
    for name in without.metrics:
        known = np.isfinite(without.interval(name)).any()
        assert known == (name in means), name
        if known:
            np.testing.assert_array_equal(without.interval(name), found.interval(name))


def test_a_perfect_auc_is_one_also_in_float32():
    """Of classes that are wholly apart; its interval is that of as many records as the rarer class has twice."""
    rng = np.random.default_rng(6)
    sizes = np.arange(4, 60)
    y = [rng.permutation(np.append([0, 1], rng.integers(0, 2, n - 2))) for n in sizes]
    x = [(2 * label - 1) * rng.uniform(0.5, 6, len(label)) for label in y]
    found = judged(x, y)
    low, high = found.interval("auc")
    rarer = np.array([2 * min(label.sum(), len(label) - label.sum()) for label in y])
    np.testing.assert_array_equal(high, 1.0)
    np.testing.assert_allclose(low[0], 0.025 ** (1 / rarer), rtol=1e-4)
    near = own_interval([1 - 6e-8, 1 + 6e-8, -6e-8, 6e-8], [0.0, 1e-9, 0.0, 1e-9], 30, 1, 30, True)
    np.testing.assert_allclose(near[0], np.repeat([0.025 ** (1 / 30), 0.0], 2))


def test_an_accuracy_in_percent_has_student_s_interval():
    """It is no fraction, whatever its name is, and of no client."""
    x, y = drawn(np.random.default_rng(7), 8, 30)
    x[0], y[0] = -1.0, 0
    y[0, 0], x[0, 0] = 1, 1.0  # all right

    def score(params, example):
        return {"accuracy": 100.0 * CLASSES(params, example)["accuracy"]}

    low, high = judged(x, y, score=score).interval("accuracy")
    right = 100.0 * ((x > 0) == y)
    ends = stats.t.interval(0.95, 29, right[1:].mean(1), stats.sem(right[1:], axis=1))
    assert right[0].mean() == 100
    assert np.isnan([low[0, 0], high[0, 0]]).all()
    np.testing.assert_allclose((low[0, 1:], high[0, 1:]), ends, rtol=1e-4)


def test_a_person_s_records_widen_the_interval():
    rng = np.random.default_rng(3)
    x, y = drawn(rng, 20, 40, apart=0.0)
    x, y = np.repeat(x[:, :10], 4, 1), np.repeat(y[:, :10], 4, 1)  # each record four times
    person = [np.repeat(np.arange(10), 4) + 100 * i for i in range(20)]
    alone, together = judged(x, y).interval("accuracy"), judged(x, y, person).interval("accuracy")
    ten = judged(x[:, ::4], y[:, ::4]).interval("accuracy")
    width = [float(np.mean(high - low)) for low, high in (alone, together, ten)]
    assert width[0] < 0.6 * width[2]
    assert width[1] > 0.95 * width[2]


def test_intervals_hold_the_truth_as_often_as_they_say():
    """Of 400 clients of 40 records each, of 8 persons in the second case.

    At 95 % 380 are expected to hold it, fewer than 363 once in 10^4. Intervals of fractions are wider than need be.
    Student's t of a skewed loss may cover 93 %: fewer than 352 once in 10^4.
    """
    rng, apart = np.random.default_rng(4), 1.5
    x, y = drawn(rng, 400, 40, apart)
    persons = [np.arange(40) % 8 + 100 * i for i in range(400)]
    z = np.repeat(rng.normal(size=(400, 8)), 5, 1).reshape(400, 8, 5).swapaxes(1, 2)
    of_persons = 0.8 * z.reshape(400, 40) + 0.6 * (x - apart * y) + apart * y
    far = rng.normal(size=10**6)
    truth = {
        "accuracy": 0.6 * 0.5 + 0.4 * stats.norm.cdf(apart),
        "auc": stats.norm.cdf(apart / 2**0.5),
        "balanced_accuracy": 0.25 + stats.norm.cdf(apart) / 2,
        "loss": 0.6 * np.logaddexp(0, far).mean() + 0.4 * np.logaddexp(0, -far - apart).mean(),
    }
    held = Counter()
    for case, found in (("records", judged(x, y)), ("persons", judged(of_persons, y, persons))):
        for name, value in truth.items():
            low, high = found.interval(name)
            held[case, name] = int(((low <= value) & (value <= high)).sum())
    for (_, name), count in held.items():
        assert count >= (352 if name == "loss" else 363), held
    low, high = judged(of_persons, y).interval("auc")  # as if they were no persons'
    naive = int(((low <= truth["auc"]) & (truth["auc"] <= high)).sum())
    assert naive < held["persons", "auc"]


def test_an_interval_is_as_wide_with_weights_of_any_scale():
    one = own_interval(0.7, 0.1, 20, 1.0, 20, True)
    assert own_interval(0.7, 0.1, 20, 1.0, 0.5, True) == (
        pytest.approx(one[0]),
        pytest.approx(one[1]),
    )
