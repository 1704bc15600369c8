"""Scores, and measures of single clients and of groups."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from small import regression, start

import fedpriv as fp
from fedpriv.rounds.sent import check_diagnostics

W, EXAMPLES = jnp.zeros(3), {"x": np.zeros((4, 2), np.float32), "label": np.zeros(4, int)}
GROUPS = ["urban"] * 6 + ["rural"] * 4 + [None, "far off"]


def score(params, example):
    """A loss, and an accuracy, whatever the model is."""
    return {"accuracy": jnp.float32(1), "loss": example["y"]}


def evaluated(function, derived=None):
    """A score's names on a few examples, by shapes alone."""
    return lambda: fp.models.Score(function, derived or {}).names(W, EXAMPLES)


def measured(measure, sizes=(2, 2, 2)):
    federation = regression(sizes)
    return jax.eval_shape(lambda state: measure(state, federation), fp.ModelState(start(), 0))


def per_group(change):
    return partial(fp.measures.per_group, **{"score": score, "groups": GROUPS, **change})


def per_client(bound):
    return partial(fp.measures.per_client, score, bound=bound)


def double(metrics):
    return 2 * metrics["loss"]


CLASSES = fp.models.classification_score(lambda params, x: x, 3, "x")
OF_SCORES = [
    ("nothing", evaluated(lambda w, e: None), "score", "NoneType"),
    ("no entry", evaluated(lambda w, e: {}), "score", "[]"),
    ("a weight alone", evaluated(lambda w, e: {"weight": 1.0}), "score", "['weight']"),
    ("an array", evaluated(lambda w, e: {"loss": w}), "score: loss", "[3]"),
    (
        "an array of sums beside numbers",
        evaluated(lambda w, e: {"loss": w[0], "each": w}, {"x": double}),
        "score: each",
        "[3]",
    ),
    (
        "a derived array",
        evaluated(lambda w, e: {"loss": w}, {"x": double}),
        "score: derived x",
        "[3]",
    ),
    (
        "weights",
        evaluated(lambda w, e: {"loss": w[0], "weight": w}, {"x": double}),
        "score: weight",
        "[3]",
    ),
    ("no loss", evaluated(lambda w, e: {"f1": w[0]}, {"x": double}), "score: derived", "'loss'"),
    ("no function", lambda: fp.models.Score(3), "function", "3"),
    ("derived numbers", lambda: fp.models.Score(score, {"x": 3}), "derived", "3"),
    ("one name", lambda: fp.models.Score(score, higher="auc"), "higher", "'auc'"),
    (
        "counts of a mean",
        lambda: fp.models.Score(score, counts={"loss": double}),
        "counts",
        "'loss'",
    ),
    ("smooth, not derived", lambda: fp.models.Score(score, smooth=("rmse",)), "smooth", "'rmse'"),
    (
        "smooth, one name",
        lambda: fp.models.Score(score, {"x": double}, smooth="x"),
        "smooth",
        "'x'",
    ),
    ("counted by 3", lambda: fp.models.Score(score, {"x": double}, counts={"x": 3}), "counts", "3"),
    ("of one class", lambda: fp.models.classification_score(score, 1), "classes", "1"),
    ("of no model", lambda: fp.models.classification_score(3, 2), "apply", "3"),
    ("of other classes", lambda: CLASSES.names(W, EXAMPLES), "classes", "3"),
]
OF_GROUPS = [
    ({"score": 1}, "score", "1"),
    ({"groups": "rural"}, "groups", "'rural'"),
    ({"groups": [None] * 12}, "groups", "nobody"),
    ({"groups": [1.5] * 12}, "groups[0]", "1.5"),
    ({"groups": [True] * 12}, "groups[0]", "True"),
    ({"groups": ["a", "b\n"]}, "groups[1]", r"'b\n'"),
    ({"groups": [["a"], ["b"]]}, "groups", "[['a'], ['b']]"),
    ({"groups": {"a", "b"}}, "groups", "{"),
    ({"on": 42}, "on", "42"),
    ({"clients": 0}, "clients", "0"),
    ({"on": "test"}, "on", "'test'"),
    ({"personal": 3}, "personal", "3"),
    ({"groups": "group", "on": {"x": [1.0]}}, "groups", "'group'"),
    ({"groups": ["a"], "on": {"x": [1.0, 2.0]}}, "groups", "'1 labels'"),
    ({"groups": ["a"], "on": {"x": [1.0]}, "clients": 3}, "clients", "3"),
]
NAMES = (1, None, ("a",), b"a", "", " ", " a", "a\n", "a\nb", "a\x1b[2J")
ROWS = [
    *((f"a score, {name}", *rest) for name, *rest in OF_SCORES),
    ("a bound that is NaN", per_client({"loss": np.nan}), "bound['loss']", "nan"),
    ("one bound for all", per_client(0.5), "bound", "0.5"),
    ("a bound of no metric", lambda: measured(per_client({"f1": 0.5})()), "bound", "'f1'"),
    ("labels of others", lambda: measured(per_group({})()), "groups", "'12 labels'"),
]
for change, field, shown in OF_GROUPS:
    ROWS.append((f"per_group: {change}", per_group(change), field, shown))
for name in NAMES:
    for what, call, field in (
        ("a metric", evaluated(lambda w, e, n=name: {n: w[0]}), "score"),
        ("one beside another", evaluated(lambda w, e, n=name: {n: w[0], "l": 1.0}), "score"),
        ("a measure", partial(check_diagnostics, "measure", {name: 1.0, "loss": 1.0}), "measure"),
        ("derived", partial(fp.models.Score, score, {name: lambda m: 1.0}), "derived"),
        ("higher", partial(fp.models.Score, score, higher=[name]), "higher"),
    ):
        ROWS.append((f"{what}, named {name!r}", call, field, f"{name!r}"))
