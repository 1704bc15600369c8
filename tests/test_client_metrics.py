"""What is found of single clients, against NumPy; several measures at once."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics
from small import records, regression, squared, start
from tiers import every

import fedpriv as fp
from fedpriv.engine.client_metrics import _spread

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS = 24
FEDERATION = regression([1 + i % 4 for i in range(CLIENTS)])
PARAMS = start()


def score(params, example):
    """A loss, and an accuracy by a threshold on it."""
    loss = squared(params, example)
    return {"accuracy": (loss < 0.3).astype(jnp.float32), "loss": loss}


def expected(federation):
    """(accuracy, loss) of every client, f64[clients]."""
    means = []
    for i in range(federation.num_clients):
        x, y = records(federation, i)
        loss = 0.5 * (x @ np.asarray(PARAMS["w"]) + float(PARAMS["b"]) - y) ** 2
        means.append(((loss < 0.3).mean(), loss.mean()))
    return np.array(means).T


def measured(measure, federation=FEDERATION):
    """The numbers alone."""
    found = jax.jit(measure)(fp.ModelState(PARAMS, 0), federation)
    return {k: float(v) for k, v in found.items() if not isinstance(v, fp.types.ClientValues)}


def test_all_clients_are_those_of_numpy():
    accuracy, loss = expected(FEDERATION)
    found = measured(fp.measures.per_client(score, clients=100))
    of = "per_client_accuracy"
    assert found == pytest.approx(
        {
            f"{of}_mean": accuracy.mean(),
            f"{of}_pooled": np.average(accuracy, weights=np.asarray(FEDERATION.size)),
            f"{of}_median": np.median(accuracy),
            f"{of}_worst_decile": np.sort(accuracy)[:3].mean(),
            f"{of}_below_0.5": (accuracy < 0.5).mean(),
            "per_client_loss_mean": loss.mean(),
            "per_client_loss_pooled": np.average(loss, weights=np.asarray(FEDERATION.size)),
            "per_client_loss_median": np.median(loss),
            "per_client_loss_worst_decile": np.sort(loss)[-3:].mean(),
        },
        rel=1e-5,
    )
    found = measured(fp.measures.per_client(score, 100, {"loss": 0.4}))
    assert found["per_client_loss_worst_decile"] == pytest.approx(np.sort(loss)[-3:].mean(), 1e-5)
    assert found["per_client_loss_above_0.4"] == pytest.approx((loss > 0.4).mean())


@pytest.mark.slow
def test_a_sample_is_the_same_every_time():
    _, loss = expected(FEDERATION)
    measure = fp.measures.per_client(score, 5)
    found = measured(measure)
    assert measured(measure) == found
    chosen = np.random.default_rng(0).choice(CLIENTS, 5, replace=False)
    assert found["per_client_loss_mean"] == pytest.approx(loss[chosen].mean(), rel=1e-5)


@pytest.mark.slow
def test_the_clients_may_hold_other_records():
    other = regression([2] * 3, seed=1)
    held_out = measured(fp.measures.per_client(score, 5, on=other))
    assert held_out["per_client_loss_mean"] == pytest.approx(expected(other)[1].mean(), rel=1e-5)


@pytest.mark.slow
def test_several_measures_are_evaluated_together_in_a_run():
    both = fp.measures.together(fp.measures.heterogeneity(squared), fp.measures.per_client(score))
    history = fp.simulate(
        fp.fed_sgd(squared, sampler=fp.everyone(CLIENTS), learning_rate=0.0),
        PARAMS,
        FEDERATION,
        FEDERATION.examples,
        score=score,
        rounds=1,
        seeds=(0, 1),
        measure=both,
    )
    assert history.metric("objective").shape == (1, 2)
    mean = expected(FEDERATION)[1].mean()
    np.testing.assert_allclose(history.metric("per_client_loss_mean"), mean, rtol=1e-5)


@pytest.mark.parametrize(("metric", "higher"), [("accuracy", True), ("loss", False)])
def test_a_client_without_weight_does_not_count(metric, higher):
    values = np.array([0.1, np.nan, 0.9, 0.4], np.float32)
    counts, pooled = jnp.asarray(~np.isnan(values)), jnp.float32(0.3)
    found = _spread(f"held_out_{metric}", jnp.asarray(values), counts, pooled, higher, 0.5)
    there = values[~np.isnan(values)]
    worst, beyond = (0.1, 2 / 3) if higher else (0.9, 1 / 3)
    expected = [there.mean(), 0.3, np.median(there), worst, beyond]
    np.testing.assert_allclose(list(found.values()), expected, rtol=1e-6)


DERIVED = {
    "recall": lambda m: m["table"][1, 1] / m["table"][:, 1].sum(),
    "precision": lambda m: m["table"][1, 1] / m["table"][1].sum(),
    "f1": lambda m: 2 * m["table"][1, 1] / (m["table"][1].sum() + m["table"][:, 1].sum()),
    "macro_recall": lambda m: (jnp.diag(m["table"]) / m["table"].sum(0)).mean(),
    "auc": lambda m: _area(m["histogram"]),
}


def _area(histogram):
    """Of f32[2, bins]; ties count half."""
    without, having = histogram
    below = jnp.cumsum(without) - without / 2
    return jnp.sum(having * below) / (having.sum() * without.sum())


def _judged(params, example):
    """By a score in 0..1 (one below 0 stands for NaN) and a label, whatever the model is."""
    s, right = jnp.where(example["s"] < 0, jnp.nan, example["s"]), example["y"]
    said = (s > 0.5).astype(jnp.float32)
    table = jnp.outer(jnp.arange(2) == said, jnp.arange(2) == right)
    at = jnp.arange(11) == jnp.round(s * 10)
    which = jnp.arange(2) == right
    histogram = jnp.where(jnp.isnan(s), jnp.nan, which[:, None] * at)
    return {
        "loss": jnp.abs(s - right),
        "accuracy": (said == right).astype(jnp.float32),
        "histogram": histogram,
        "table": table.astype(jnp.float32),
    }


SCORE = fp.models.Score(_judged, DERIVED)
HOSPITALS = [
    # (scores, labels); in the third nothing is positive, in the fourth all is, the fifth has no record held out
    ([0.9, 0.4, 0.2, 0.6], [1, 1, 0, 0]),
    ([0.8, 0.3, 0.1], [1, 0, 0]),
    ([0.1, 0.2, 0.3], [0, 0, 0]),
    ([0.7, 0.9], [1, 1]),
    ([], []),
    ([0.6, 0.7, 0.2, 0.8], [0, 1, 0, 1]),
]


def held_by(hospitals, **options):
    """A federation of those that hold out these records; each trains on one more."""
    s, y = (np.concatenate([h[i] for h in hospitals]).astype(np.float32) for i in (0, 1))
    ends = np.cumsum([len(h[0]) for h in hospitals])
    held = np.split(np.arange(len(s)), ends[:-1])
    rest = [[len(s) + i] for i in range(len(hospitals))]
    more = np.zeros(len(hospitals), np.float32)
    examples = {"s": np.append(s, more), "y": np.append(y, more)}
    return fp.Federation.from_arrays(examples, rest, held_out=held, **options)


def by_scikit_learn(s, y):
    """name -> metric of one client; NaN where scikit-learn says that it is undefined."""
    s, y, said = np.asarray(s), np.asarray(y), np.asarray(s) > 0.5
    options = {"zero_division": np.nan}
    both = len(set(y)) == 2
    return {
        "accuracy": metrics.accuracy_score(y, said),
        "loss": np.abs(s - y).mean(),
        "recall": metrics.recall_score(y, said, **options),
        "precision": metrics.precision_score(y, said, **options),
        "f1": metrics.f1_score(y, said, **options),
        "macro_recall": metrics.recall_score(y, said, average="macro") if both else np.nan,
        "auc": metrics.roc_auc_score(y, s) if both else np.nan,
    }


def over_hospitals(federation):
    """(numbers, values of single clients) on their held-out records."""
    measure = fp.measures.per_client(SCORE, on="held_out")
    found = dict(jax.jit(measure)(fp.ModelState(PARAMS, 0), federation))
    clients = found.pop("held_out")
    return {name: float(value) for name, value in found.items()}, clients


def test_an_undefined_metric_leaves_its_client_out_and_is_counted():
    """Of every metric: clients with no positive, with nothing else, and with no record at all."""
    found, clients = over_hospitals(held_by(HOSPITALS))
    there = [by_scikit_learn(*h) for h in HOSPITALS if h[0]]
    everything = by_scikit_learn(*(np.concatenate([h[i] for h in HOSPITALS]) for i in (0, 1)))
    assert clients.metrics.keys() == everything.keys()  # sums that are arrays are no metrics
    for name, pooled in everything.items():
        each = np.array([of[name] for of in there])
        defined = each[~np.isnan(each)]
        worst = defined.max() if name == "loss" else defined.min()
        expected = [defined.mean(), pooled, np.median(defined), worst]
        of = [found[f"held_out_{name}_{s}"] for s in ("mean", "pooled", "median", "worst_decile")]
        np.testing.assert_allclose(of, expected, rtol=1e-5, err_msg=name)
        np.testing.assert_allclose(clients.metrics[name], np.insert(each, 4, np.nan), rtol=1e-5)
        undefined = found.get(f"held_out_{name}_undefined", 0)
        assert undefined == np.isnan(each).sum() == UNDEFINED_OF.get(name, 0)


UNDEFINED_OF = {"recall": 1, "precision": 1, "f1": 1, "macro_recall": 2, "auc": 2}


@pytest.mark.slow
@every("name", ["loss", "auc"])
def test_a_client_whose_scores_are_nan_has_diverged_and_ranks_worst(name):
    found, clients = over_hospitals(held_by([*HOSPITALS, ([-1.0, 0.2], [1, 0])]))
    assert np.isnan(found[f"held_out_{name}_mean"])
    assert found[f"held_out_{name}_worst_decile"] == (np.inf if name == "loss" else -np.inf)
    assert found.get(f"held_out_{name}_undefined", 0) == UNDEFINED_OF.get(name, 0)
    assert np.isnan(clients.metrics[name][-1])


@pytest.mark.slow
@every("case", [(False, True), (True, False)])
def test_a_test_set_without_a_positive_is_no_divergence(case):
    """Scores that are NaN are, also of a metric that is undefined."""
    (diverged, without_loss), federation = case, held_by(HOSPITALS)
    test = {"s": np.array([-1.0 if diverged else 0.1, 0.7], np.float32), "y": np.zeros(2)}
    alone = fp.models.Score(
        lambda params, e: {k: v for k, v in _judged(params, e).items() if k != "loss"}, DERIVED
    )
    run = partial(
        fp.simulate,
        *(STILL, PARAMS, federation, test),
        score=alone if without_loss else SCORE,
        rounds=3,
        every=2,
        seeds=(0, 1),
    )
    if diverged:
        with pytest.raises(fp.DivergedError, match=r"in round 2 \(seed 0\)"):
            run()
        return
    history = run()
    assert np.isnan(history.metric("recall")).all()
    assert (history.metric("precision") == 0).all()
    assert (history.accuracy == 0.5).all()


STILL = fp.fed_sgd(
    lambda params, example: 0.0 * (params["b"] + jnp.sum(params["w"])),
    sampler=fp.everyone(len(HOSPITALS)),
    learning_rate=0.1,
)
