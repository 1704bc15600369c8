"""Adapters and frozen leaves: bases, models, patterns, ranks and parameters that do not fit."""

from functools import cache, partial

import jax
import jax.numpy as jnp
from small import filled

import fedpriv as fp

LOGISTIC = fp.models.classifier(fp.models.LogisticRegression(3), (2, 2, 1))
TWO_LAYERS = fp.models.classifier(fp.models.MLP((6,), 3), (2, 2, 1))
OTHER = fp.models.classifier(fp.models.LogisticRegression(2), (2, 2, 1))
MODELS = {"logistic": LOGISTIC, "two layers": TWO_LAYERS, "other": OTHER}


@cache
def base_of(name="logistic"):
    return filled(MODELS[name].init)


def changed(change):
    return lambda: jax.tree.map(change, base_of())


def frozen(model, base):
    return fp.models.frozen(model, base, "kernel")


def tuned(tune, model, make_base):
    return tune(model, make_base())


def adapted(name="logistic", **given):
    return fp.models.adapters(MODELS[name], base_of(name), **given)


def trained(pattern):
    return fp.models.frozen(LOGISTIC, base_of(), trainable=pattern)


BASES = [
    (partial(base_of, "other"), "[2]"),
    (changed(lambda leaf: jnp.stack([leaf, leaf])), "seeds, of length 2"),
    (lambda: None, "params.Dense_0.bias"),
    (lambda: jax.eval_shape(LOGISTIC.init, jax.random.key(3)), "give arrays (zeros suffice"),
    (changed(lambda leaf: leaf.astype(int)), "int32"),
]
RANKS = [
    ({"rank": {"Dense_7": 2}}, "rank", "'Dense_7'"),
    ({"rank": {"Dense_0": -1}}, "rank['Dense_0']", "-1"),
    ({"rank": {"Dense_0": 0}}, "rank", "{'Dense_0': 0}"),
    ({"rank": {}}, "rank", "{}"),
    ({"rank": {"Dense_1": 4}}, "rank", "4"),
    ({"rank": 4}, "rank", ("4", "where='params.Dense_0")),
    ({"rank": [1, 2]}, "rank", "[1, 2]"),
    ({"stacked": "layers"}, "stacked", "'layers'"),
    ({"rank": 1, "stacked": "kernel"}, "where", "''"),
]
ROWS = [
    ("a bias", lambda: adapted(where="bias"), "where", "'bias'"),
    ("rank 0", lambda: adapted(rank=0), "rank", "0"),
    ("a rank above a side", adapted, "rank", "4"),
    ("every leaf is trained", lambda: trained(""), "trainable", "''"),
    ("the base", lambda: adapted(rank=1).merged(base_of()), "params", "params.Dense_0.kernel.A"),
    ("bfloat16", lambda: fp.models.in_bfloat16(adapted(rank=1)), "model", "fine-tuned"),
]
for pattern, shown in (("Dense_7", "'Dense_7'"), ("(", "'('"), (3, "3")):
    ROWS.append((f"where: {pattern}", partial(adapted, rank=1, where=pattern), "where", shown))
    ROWS.append((f"trainable: {pattern}", partial(trained, pattern), "trainable", shown))
for tune in (fp.models.adapters, frozen):
    wrong = partial(tuned, tune, LOGISTIC.loss, base_of)
    ROWS.append((f"no model, {tune.__name__}", wrong, "model", "the function loss"))
    for i, (base, shown) in enumerate(BASES):
        wrong = partial(tuned, tune, LOGISTIC, base)
        ROWS.append((f"a base, {i}, {tune.__name__}", wrong, "base", shown))
for given, field, shown in RANKS:
    ROWS.append((f"ranks of {given}", partial(adapted, "two layers", **given), field, shown))
