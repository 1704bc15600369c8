"""Draws of records of clients whose numbers of records, or groups of records, are public."""

from functools import partial

import numpy as np
import optax

import fedpriv as fp
from fedpriv.rounds.group_names import OtherGroupsError


def sized(*sizes, **how):
    return partial(fp.PublicSizes, sizes or [25, 40, 90], **how)


def grouped(groups, rate=None, **how):
    return partial(fp.PublicGroups, groups, rate=rate, **how)


def of_leaf(name):
    given = {"x": np.zeros((2, 3)), "ward": np.arange(2)}
    federation = fp.Federation.from_arrays(given, [[0], [1]])
    return partial(fp.PublicGroups.of_leaf, federation, name, rate={0: 0.1})


def of_clients():
    places = fp.grouped(["x", "y"], {"x": fp.poisson(1, 0.5), "y": fp.poisson(1, 0.2)})
    gradients = fp.per_example(lambda params, example: params)
    local = fp.LocalSteps(gradients, places, 1, lambda t: optax.sgd(1.0), fp.gaussian(1.0, 2.0))
    return fp.dp_sgd(local, sampler=fp.everyone(2))


X, BOTH = {"x": 0.5}, {"x": 0.5, "y": 1.0}
ROWS = [
    ("neither a batch nor a rate", sized(), "batch", "None"),
    ("a batch and a rate", sized(batch=3, rate=0.1), "batch", ("3", "rate=0.1")),
    ("room for a batch", sized(batch=3, capacity=4), "capacity", "4"),
    ("no clients", lambda: fp.PublicSizes([], batch=3), "sizes", "()"),
    ("a client without records", sized(3, 0, batch=3), "sizes[1]", "0"),
    ("no lists", grouped("xy", X), "groups", "'xy'"),
    ("an empty client", grouped([["x"], []], X), "groups[1]", "[]"),
    ("a record of no group", grouped([["x", None]], X), "groups[0][1]", "None"),
    ("rates and batches", grouped([["x"]], X, batch={"x": 1}), "batch", "{'x': 1}"),
    ("neither", grouped([["x"]]), "batch", "None"),
    ("a group without rate", grouped([["x", "y"]], X), "rate", "'y'", OtherGroupsError),
    ("a rate of no group", grouped([["x"]], BOTH), "rate", "'y'", OtherGroupsError),
    ("a rate of 0", grouped([["x"]], {"x": 0.0}), "rate['x']", "0.0"),
    ("a batch of 0", grouped([["x"]], batch={"x": 0}), "batch['x']", "0"),
    ("groups of clients for records", of_clients, "records", "fp.PublicGroups"),
    ("groups of vectors", of_leaf("x"), "leaf", "'x'"),
    ("groups of no leaf", of_leaf("room"), "leaf", "'room'"),
]
