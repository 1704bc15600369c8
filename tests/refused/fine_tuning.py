"""Adapters and frozen leaves: bases, models, patterns, ranks and parameters that do not fit."""

from functools import cache

import jax
import jax.numpy as jnp
from small import filled

import fedpriv as fp
from refused.row import Refusal

LOGISTIC = fp.models.classifier(fp.models.LogisticRegression(3), (2, 2, 1))
TWO_LAYERS = fp.models.classifier(fp.models.MLP((6,), 3), (2, 2, 1))
OTHER = fp.models.classifier(fp.models.LogisticRegression(2), (2, 2, 1))
KEY = jax.random.key(3)


@cache
def base_of(model):
    return filled(model.init)


def frozen(model, base):
    return fp.models.frozen(model, base, "kernel")


def two_seeds():
    return jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), base_of(LOGISTIC))


def integers():
    return jax.tree.map(lambda leaf: leaf.astype(int), base_of(LOGISTIC))


def adapted(model=LOGISTIC, **given):
    return fp.models.adapters(model, base_of(model), **given)


def both(name, make_base, field, value, model=LOGISTIC):
    """For adapters, and for frozen leaves."""
    return [
        Refusal(
            f"{name}, {tune.__name__}", lambda tune=tune: tune(model, make_base()), field, value
        )
        for tune in (fp.models.adapters, frozen)
    ]


def pattern(name, given, value):
    """As `where` and as `trainable`."""
    return [
        Refusal(f"where: {name}", lambda: adapted(rank=1, where=given), "where:", value),
        Refusal(
            f"trainable: {name}",
            lambda: fp.models.frozen(LOGISTIC, base_of(LOGISTIC), trainable=given),
            "trainable:",
            value,
        ),
    ]


ROWS = [
    *both("no model", lambda: base_of(LOGISTIC), "model:", "loss", LOGISTIC.loss),
    *both("a base of other shapes", lambda: base_of(OTHER), "base:", "[2]"),
    *both("a base of two seeds", two_seeds, "base:", "seeds, of length 2"),
    *both("no base", lambda: None, "base:", "params.Dense_0.bias"),
    *both("shapes for a base", lambda: jax.eval_shape(LOGISTIC.init, KEY), "base:", ""),
    *both("a base of integers", integers, "base:", "int32"),
    *pattern("no leaf", "Dense_7", "'Dense_7'"),
    *pattern("no regular expression", "(", "'('"),
    *pattern("a number", 3, "3"),
    Refusal("a bias", lambda: adapted(where="bias"), "where:", "'bias'"),
    Refusal("rank 0", lambda: adapted(rank=0), "rank:", "0"),
    Refusal("a rank above a side", adapted, "rank:", "4"),
    Refusal(
        "a rank above one of several sides",
        lambda: adapted(TWO_LAYERS, rank=4),
        "rank:",
        "4",
        remedy="where='params.Dense_",
    ),
    Refusal(
        "every leaf is trained",
        lambda: fp.models.frozen(LOGISTIC, base_of(LOGISTIC), ""),
        "trainable:",
        "''",
    ),
    Refusal(
        "the base for adapters",
        lambda: adapted(rank=1).merged(base_of(LOGISTIC)),
        "params:",
        "params.Dense_0.kernel.A",
    ),
    *(
        Refusal(f"ranks of {given}", lambda given=given: adapted(TWO_LAYERS, **given), field, value)
        for given, field, value in (
            ({"rank": {"Dense_7": 2}}, "rank:", "'Dense_7'"),
            ({"rank": {"Dense_0": -1}}, "rank['Dense_0']:", "-1"),
            ({"rank": {"Dense_0": 0}}, "rank:", "{'Dense_0': 0}"),
            ({"rank": {}}, "rank:", "{}"),
            ({"rank": {"Dense_1": 4}}, "rank:", "4"),
            ({"rank": [1, 2]}, "rank:", "[1, 2]"),
            ({"stacked": "layers"}, "stacked:", "'layers'"),
            ({"rank": 1, "stacked": "kernel"}, "where:", "''"),
        )
    ),
    Refusal(
        "bfloat16 of adapters",
        lambda: fp.models.in_bfloat16(adapted(rank=1)),
        "model:",
        "fine-tuned",
    ),
]
