"""Scores, and measures of single clients and of groups."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from small import regression, start

import fedpriv as fp
from fedpriv.rounds.sent import check_diagnostics
from refused.row import Refusal

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


def per_group(**change):
    return partial(fp.measures.per_group, **{"score": score, "groups": GROUPS, **change})


CLASSES = fp.models.classification_score(lambda params, x: x, 3, "x")
OF_SCORES = [
    ("that gives nothing", evaluated(lambda w, e: None), "score", "NoneType"),
    ("that gives no entry", evaluated(lambda w, e: {}), "score", ""),
    ("that gives a weight alone", evaluated(lambda w, e: {"weight": 1.0}), "score", "['weight']"),
    ("whose loss is an array", evaluated(lambda w, e: {"loss": w}), "score: loss", "[3]"),
    (
        "whose sums are an array, beside numbers",
        evaluated(lambda w, e: {"loss": w[0], "each": w}, {"x": lambda m: m["loss"]}),
        "score: each",
        "[3]",
    ),
    (
        "whose derived metric is an array",
        evaluated(lambda w, e: {"each": w}, {"x": lambda m: 2 * m["each"]}),
        "score: derived x",
        "[3]",
    ),
    (
        "whose weight is an array",
        evaluated(lambda w, e: {"loss": w[0], "weight": w}, {"x": lambda m: m["loss"]}),
        "score: weight",
        "[3]",
    ),
    (
        "whose derived metric asks for another",
        evaluated(lambda w, e: {"loss": w[0]}, {"x": lambda m: m["mse"]}),
        "score: derived",
        "'mse'",
    ),
    ("that is no function", lambda: fp.models.Score(3), "function", "3"),
    (
        "with derived metrics that are numbers",
        lambda: fp.models.Score(score, {"x": 3}),
        "derived",
        "3",
    ),
    ("with one name for several", lambda: fp.models.Score(score, higher="auc"), "higher", "'auc'"),
    ("of one class", lambda: fp.models.classification_score(score, 1), "classes", "1"),
    ("of no model", lambda: fp.models.classification_score(3, 2), "apply", "3"),
    ("of other classes", lambda: CLASSES.names(W, EXAMPLES), "classes", "3"),
]
OF_NAMES = [
    refusal
    for name in (1, None, ("a",), b"a", "", " ", " a", "a\n", "a\nb", "a\x1b[2J")
    for refusal in (
        (f"named {name!r}", evaluated(lambda w, e, n=name: {n: w[0]}), "score"),
        (
            f"named {name!r}, beside one",
            evaluated(lambda w, e, n=name: {n: w[0], "l": 1.0}),
            "score",
        ),
        (f"measured as {name!r}", partial(check_diagnostics, "measure", {name: 1.0}), "measure"),
        (
            f"measured as {name!r}, beside one",
            partial(check_diagnostics, "measure", {name: 1.0, "loss": 1.0}),
            "measure",
        ),
        (f"derived as {name!r}", partial(fp.models.Score, score, {name: lambda m: 1.0}), "derived"),
        (f"higher named {name!r}", partial(fp.models.Score, score, higher=[name]), "higher"),
    )
]
OF_CLIENTS = [
    ("no client", lambda: fp.measures.per_client(score, 0), "clients", "0"),
    (
        "a bound that is NaN",
        lambda: fp.measures.per_client(score, bound={"loss": np.nan}),
        "bound['loss']",
        "nan",
    ),
    ("one bound for all", lambda: fp.measures.per_client(score, bound=0.5), "bound", "0.5"),
    (
        "a bound of no metric",
        lambda: measured(fp.measures.per_client(score, bound={"f1": 0.5})),
        "bound",
        "'f1'",
    ),
]
OF_GROUPS = [
    ("no function", {"score": 1}, "score", "1"),
    ("a text", {"groups": "rural"}, "groups", "'rural'"),
    ("nobody with a label", {"groups": [None] * 12}, "groups", ""),
    ("a label that is a fraction", {"groups": [1.5] * 12}, "groups[0]", "1.5"),
    ("a label that is a flag", {"groups": [True] * 12}, "groups[0]", "True"),
    ("a label of two lines", {"groups": ["a", "b\n"]}, "groups[1]", r"'b\n'"),
    ("a table of labels", {"groups": [["a"], ["b"]]}, "groups", ""),
    ("a set", {"groups": {"a", "b"}}, "groups", ""),
    ("of a number", {"on": 42}, "on", "42"),
    ("no client of each", {"clients": 0}, "clients", "0"),
    ("of unknown records", {"on": "test"}, "on", "'test'"),
    ("of models that are none", {"personal": 3}, "personal", "3"),
    ("a column that is not there", {"groups": "group", "on": {"x": [1.0]}}, "groups", "'group'"),
    ("too few labels", {"groups": ["a"], "on": {"x": [1.0, 2.0]}}, "groups", "'1 labels'"),
    ("clients of examples", {"groups": ["a"], "on": {"x": [1.0]}, "clients": 3}, "clients", "3"),
]
ROWS = [Refusal(f"a score {name}", call, field, value) for name, call, field, value in OF_SCORES]
ROWS += [Refusal(f"a metric {name}", call, field) for name, call, field in OF_NAMES]
ROWS += [
    Refusal(f"per_client: {name}", call, field, value) for name, call, field, value in OF_CLIENTS
]
ROWS += [
    Refusal(f"per_group: {n}", per_group(**c), field, value) for n, c, field, value in OF_GROUPS
]
ROWS += [
    Refusal(
        "per_group: labels of other clients",
        lambda: measured(fp.measures.per_group(score, GROUPS)),
        "groups",
        "'12 labels'",
    ),
]
