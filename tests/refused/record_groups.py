"""Public groups of records."""

from functools import partial

import numpy as np
import optax

import fedpriv as fp
from fedpriv.rounds.group_names import OtherGroupsError
from refused.row import Refusal

X = {"rate": {"x": 0.5}}
ROWS = [
    Refusal(name, partial(fp.PublicGroups, groups, **options), field, value, *error)
    for name, groups, options, field, value, *error in (
        ("no lists", "xy", X, "groups", "'xy'"),
        ("an empty client", [["x"], []], X, "groups[1]", "[]"),
        ("a record of no group", [["x", None]], X, "groups[0][1]", "None"),
        ("rates and batches", [["x"]], X | {"batch": {"x": 1}}, "batch", ""),
        ("neither", [["x"]], {}, "batch", "None"),
        ("a group without rate", [["x", "y"]], X, "rate", "'y'", OtherGroupsError),
        (
            "a rate of no group",
            [["x"]],
            {"rate": {"x": 0.5, "y": 1.0}},
            "rate",
            "'y'",
            OtherGroupsError,
        ),
        ("a rate of 0", [["x"]], {"rate": {"x": 0.0}}, "rate['x']", "0.0"),
        ("a batch of 0", [["x"]], {"batch": {"x": 0}}, "batch['x']", "0"),
    )
]


def of_leaf(name):
    given = {"x": np.zeros((2, 3)), "ward": np.arange(2)}
    return fp.PublicGroups.of_leaf(
        fp.Federation.from_arrays(given, [[0], [1]]), name, rate={0: 0.1}
    )


def of_clients():
    places = fp.grouped(["x", "y"], {"x": fp.poisson(1, 0.5), "y": fp.poisson(1, 0.2)})
    gradients = fp.per_example(lambda params, example: params)
    local = fp.LocalSteps(gradients, places, 1, lambda t: optax.sgd(1.0), fp.gaussian(1.0, 2.0))
    return fp.dp_sgd(local, sampler=fp.everyone(2))


ROWS += [
    Refusal("groups of clients for records", of_clients, "records", "", remedy="fp.PublicGroups"),
    Refusal("groups of vectors", lambda: of_leaf("x"), "leaf", "'x'"),
    Refusal("groups of no leaf", lambda: of_leaf("room"), "leaf", "'room'"),
]
