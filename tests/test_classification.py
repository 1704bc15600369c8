"""The score of a classifier against scikit-learn: balanced accuracy, and AUC from bins."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics
from tiers import every

import fedpriv as fp
from fedpriv.engine.compiled_rounds import evaluate
from fedpriv.models.classification import BINS, bin_of

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def apply(params, x):
    return params["scale"] * x


PARAMS = {"scale": jnp.ones(())}
RNG = np.random.default_rng(0)


@cache
def evaluated(classes):
    """Examples -> their scores."""
    score = fp.models.classification_score(apply, classes, "x")
    return jax.jit(lambda e: evaluate(score, PARAMS, e, 100))


def found(logits, labels):
    """name -> metric, and whether it has diverged."""
    scores = evaluated(logits.shape[1])({"x": np.float32(logits), "label": np.int32(labels)})
    return {name: float(value) for name, value in scores.metrics.items()}, bool(scores.diverged)


@every("classes", [2, 3, 7], kind=lambda classes: classes > 2)
def test_balanced_accuracy_is_that_of_scikit_learn(classes):
    """Of classes of unequal size; the last of several has no example."""
    labels = np.minimum(RNG.geometric(0.5, 333) - 1, max(1, classes - 2))
    logits = RNG.normal(size=(333, classes)) + 2 * np.eye(classes)[labels]
    logits[:, -1] -= 9 * (classes > 2)  # scikit-learn warns of what is predicted and is no label
    of, _ = found(logits, labels)
    expected = metrics.balanced_accuracy_score(labels, logits.argmax(1))
    assert of["balanced_accuracy"] == pytest.approx(expected, rel=1e-5)
    assert of["accuracy"] == pytest.approx(np.mean(logits.argmax(1) == labels), rel=1e-5)
    probabilities = jax.nn.softmax(logits)
    expected = metrics.log_loss(labels, probabilities, labels=range(classes))
    assert of["loss"] == pytest.approx(expected, rel=1e-4)
    assert ("auc" in of) == (classes == 2)


@every(
    "drawn",
    [(1.0, 0.0, 0.5), (1e-3, 0.0, 0.5), (0.1, -4.0, 0.02), (50.0, 0.0, 0.3), (0.0, 1.0, 0.5)],
)
def test_the_area_is_that_of_scikit_learn_but_for_ties_within_a_bin(drawn):
    """Logits of a model that has hardly begun, of a rare class, beyond all bins, and that are all the same."""
    scale, shift, rare = drawn
    labels = RNG.random(2_000) < rare
    difference = np.float32(scale * (RNG.normal(size=2_000) + labels) + shift)
    of, _ = found(np.stack([np.zeros(2_000), difference], 1), labels)
    bins = np.asarray(bin_of(jnp.asarray(difference)))
    assert of["auc"] == pytest.approx(metrics.roc_auc_score(labels, bins), abs=2e-6)
    each = [np.bincount(bins[labels == y], minlength=BINS) for y in (0, 1)]
    ties = np.sum(each[0] * each[1]) / (each[0].sum() * each[1].sum())
    off = abs(of["auc"] - metrics.roc_auc_score(labels, difference))
    assert off <= ties / 2 + 2e-6
    assert off < (0.002 if scale < 50 else 0.05)


def test_one_class_alone_has_no_area_and_nan_is_divergence():
    logits, labels = RNG.normal(size=(20, 2)), np.ones(20)
    of, diverged = found(logits, labels)
    assert np.isnan(of["auc"])
    assert of["balanced_accuracy"] == of["accuracy"]
    assert not diverged
    logits[3, 0] = np.nan
    of, diverged = found(logits, np.arange(20) % 2)
    assert np.isnan([of["auc"], of["balanced_accuracy"], of["loss"]]).all()
    assert diverged


@pytest.mark.slow
def test_a_model_stops_by_its_area_which_is_also_that_of_each_client():
    x = RNG.normal(size=(300, 2)).astype(np.float32)
    data = {"x": x, "label": np.int32(x[:, 0] + 0.5 * RNG.normal(size=300) > 0.3)}
    model = fp.models.classifier(fp.models.LogisticRegression(2), x[0], "x")
    model = model._replace(score=fp.models.classification_score(model.apply, 2, "x"))
    rows = np.split(np.arange(300), 6)
    held, rest = fp.partition.hold_out(np.random.default_rng(0), rows, 0.4, stratify=data["label"])
    federation = fp.Federation.from_arrays(data, rest, held_out=held)
    history = fp.simulate(
        fp.fed_sgd(model.loss, sampler=fp.everyone(6), learning_rate=1.0),
        model.init,
        federation,
        data,
        score=model.score,
        rounds=60,
        every=5,
        measure=fp.measures.per_client(model.score, on="held_out"),
        on_evaluation=lambda now: now.metrics["auc"].mean() > 0.9,
    )
    assert history.rounds[-1] < 60
    params = history.params()
    clients = history.evaluations[-1].clients["held_out"]
    for i, own in enumerate(held):
        z = model.predict(params, x[own])
        expected = metrics.roc_auc_score(data["label"][own], z[:, 1] - z[:, 0])
        assert clients.metrics["auc"][0, i] == pytest.approx(expected, abs=2e-3)
    mean = history.metric("held_out_auc_mean")[-1, 0]
    assert mean == pytest.approx(clients.metrics["auc"].mean(), rel=1e-5)
