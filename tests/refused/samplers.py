"""Samplers, who vanishes, groups and delays."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import fedpriv as fp
from fedpriv.rounds.group_names import OtherGroupsError
from fedpriv.rounds.late_samplers import late
from refused.row import Refusal

FIXED, OPENING = fp.fixed_size(6, 4), fp.Opening(fp.everyone(6), 1, fp.fixed_size(6, 2))
LABELS = ["b", "a", "b", "b", "a", "b"]
BY_RATE = {"a": fp.poisson(2, 0.75), "b": fp.poisson(4, 0.25)}
STRATA = {"a": fp.poisson(2, 0.75), "b": fp.fixed_size(4, 2)}
WEIGHTS, SCALES = {"a": 0.5, "b": 1.0}, {"a": 1.0, "b": 0.25}
LOSES = {"a": fp.dropping(fp.fixed_size(2, 1), 0.1, "lost"), "b": fp.fixed_size(4, 2)}
BY_HAND = fp.poisson(2, 0.75)._replace(seal=())
OF_PERSONS = fp.Federation.from_arrays(
    {"x": np.zeros(6)}, fp.partition.natural(np.arange(6)), person=np.arange(6) // 2
)
CONSTANT, GEOMETRIC = fp.delays.constant, fp.delays.geometric(1.0, 2)
SLOW = [0] * 6 + [1] * 14


def grouped(labels=LABELS, samplers=BY_RATE, **options):
    return partial(fp.grouped, labels, samplers, **options)


def dropped(sampler, rate=0.1, noise="whole"):
    return partial(fp.dropping, sampler, rate, noise)


def of_classes(labels, laws):
    return partial(fp.delays.by_class, labels, laws)


def waiting(population, buffer, law, **options):
    return lambda: late(fp.FreeClients(population, buffer, **options), law)


def stale(weights, sampler=FIXED, law=GEOMETRIC):
    return lambda: late(sampler, law, weights)


def weighted_by_records():
    """In a program whose arguments records are: weights are numbers, known while an algorithm is made."""
    jax.eval_shape(
        lambda x: late(FIXED, GEOMETRIC, lambda d: x.mean() ** d)[1],
        jax.ShapeDtypeStruct((3,), float),
    )


def grouped_in_a_round(name):
    """By what a round computes."""

    def size(x):
        weights = {"a": x, "b": 1.0} if name == "weights" else None
        made = fp.grouped(x if name == "groups" else LABELS, BY_RATE, weights=weights)
        return made.expected_size

    return lambda: jax.eval_shape(size, jnp.ones(6) if name == "groups" else 0.5)


SIMPLE = [
    ("a rate above 1", lambda: fp.poisson(10, 1.5), "rate", "1.5"),
    ("a rate of 0", lambda: fp.poisson(5, 0.0, 5), "rate", "0.0"),
    ("a rate of nan", lambda: fp.poisson(5, math.nan, 5), "rate", "nan"),
    ("no room", lambda: fp.poisson(5, 0.5, 0), "capacity", "0"),
    ("more than there are", lambda: fp.fixed_size(5, 6), "size", "6"),
    ("a cohort of nobody", lambda: fp.fixed_size(5, 0), "size", "0"),
    ("nobody at all", lambda: fp.everyone(0), "population", "0"),
    ("a client without records", lambda: fp.with_replacement([1, 0], 2), "sizes[1]", "0"),
    ("no clients", lambda: fp.with_replacement([], 2), "sizes", "[]"),
    ("no draws", lambda: fp.with_replacement([1, 2], 0), "size", "0"),
    ("an order of too many", lambda: fp.fixed_order(12, 13), "size", "13"),
    ("uneven turns", lambda: fp.cyclic_poisson(12, 5, 0.3), "groups", "5"),
    ("an empty block", lambda: fp.random_allocation(12, 0), "block", "0"),
    ("a long block", lambda: fp.random_allocation(12, 2**16 + 1), "block", "65537"),
    ("a long rest", lambda: fp.random_availability(12, 4, 4, 0.5), "separation", "4"),
    ("more than may come", lambda: fp.random_availability(12, 13, 1, 0.5), "13", "12"),
    ("nobody available", lambda: fp.random_availability(12, 4, 3, 0), "availability", "0"),
    ("no turns", lambda: fp.random_availability(12, 4, 3, 0.5, 0), "participations", "0"),
    ("a buffer of more than all", lambda: fp.FreeClients(6, buffer=7), "buffer", "7"),
]
DROPPED = [
    ("all of them", dropped(FIXED, 1), "rate", "1"),
    ("a negative share", dropped(FIXED, -0.1), "rate", "-0.1"),
    ("some noise", dropped(FIXED, noise="some"), "noise", "'some'"),
    ("noise of a secret number", dropped(fp.poisson(9, 0.4), noise="lost"), "noise", "'lost'"),
    ("with replacement", dropped(fp.with_replacement([1, 1], 2)), "sampler", ""),
    ("twice", dropped(dropped(FIXED, noise="lost")()), "sampler", "Dropping"),
    ("a sampler by hand", dropped(FIXED._replace(expected_size=3.0)), "sampler", ""),
    ("an opening", dropped(OPENING), "sampler", "Opening"),
    ("an order", dropped(fp.fixed_order(6, 2)), "sampler", "ScheduledSampler"),
    ("blocks", dropped(fp.random_allocation(12, 3)), "sampler", "ScheduledSampler"),
    ("who rests", dropped(fp.random_availability(12, 4, 3, 0.7)), "sampler", "ScheduledSampler"),
    ("nothing", dropped(None), "sampler", "None"),
]
GROUPED = [
    ("no list", grouped("a"), "groups", "'a'"),
    ("no group", grouped([*"bab", None, "a", "b"]), "groups[3]", "None"),
    ("not a name", grouped([0.5] * 6), "groups[0]", "0.5"),
    ("a group without sampler", grouped([*"babbac"]), "samplers", "'c'", OtherGroupsError),
    (
        "nobody in a group",
        grouped(samplers=BY_RATE | {"c": BY_HAND}),
        "samplers",
        "'c'",
        OtherGroupsError,
    ),
    (
        "another number",
        grouped(samplers=BY_RATE | {"a": fp.poisson(3, 0.5)}),
        "samplers['a']",
        "3 clients",
    ),
    ("another number of all", grouped(samplers=fp.everyone(5)), "samplers", "5 clients"),
    ("no sampler", grouped(samplers=BY_RATE | {"a": 0.5}), "samplers['a']", "0.5"),
    ("a sampler by hand", grouped(samplers=BY_RATE | {"a": BY_HAND}), "samplers['a']", "by hand"),
    ("groups of groups", grouped(samplers=grouped()()), "samplers", "grouped itself"),
    (
        "persons",
        grouped(samplers=fp.by_person(fp.poisson(3, 0.5), OF_PERSONS)),
        "samplers",
        "of persons",
    ),
    ("two adjacencies", grouped(samplers=STRATA), "samplers", "one adjacency"),
    (
        "everyone beside others",
        grouped(samplers=BY_RATE | {"a": fp.everyone(2)}),
        "samplers",
        "one adjacency",
    ),
    ("lost noise", grouped(samplers=LOSES), "samplers", "whole"),
    (
        "weights of one draw",
        grouped(samplers=fp.fixed_size(6, 2), weights=WEIGHTS),
        "samplers",
        "counts otherwise",
    ),
    (
        "weights of a draw that is cut",
        grouped(samplers=fp.cyclic_poisson(6, 2, 0.5, 1), clip_scales=SCALES),
        "samplers",
        "counts otherwise",
    ),
    ("weight 0", grouped(weights={"a": 0, "b": 1}), "weights['a']", "0"),
    ("weight 2", grouped(weights={"a": 2, "b": 1}), "weights['a']", "2"),
    ("a weight that lacks", grouped(weights={"a": 1}), "weights", "'b'", OtherGroupsError),
    (
        "a clip scale of nobody",
        grouped(clip_scales=SCALES | {"x": 1}),
        "clip_scales",
        "'x'",
        OtherGroupsError,
    ),
    ("no mapping", grouped(weights=0.5), "weights", "0.5"),
    ("groups that a round computes", grouped_in_a_round("groups"), "groups", "a traced value"),
    ("weights that a round computes", grouped_in_a_round("weights"), "weights", "a traced value"),
    ("the cases of all groups", grouped()().accounting.cases, "of_group", ""),
    ("how often one of all is drawn", grouped()().accounting.times_drawn, "of_group", ""),
]
DELAYS = [
    ("0.9 of a law", lambda: fp.delays.DelayLaw([[0.4, 0.5]]), "chances", "0.9"),
    ("a class without law", lambda: fp.delays.DelayLaw([[1.0]], [0, 1]), "classes", "1"),
    ("-1 steps", lambda: CONSTANT(-1), "steps", "-1"),
    (
        "a group without law",
        of_classes(["bus", "car"], {"bus": CONSTANT(1)}),
        "laws",
        "'car'",
        OtherGroupsError,
    ),
    ("a law that is a number", of_classes(["bus"], {"bus": 2}), "laws['bus']", "2"),
    ("a class of None", of_classes(["bus", None], {"bus": CONSTANT(1)}), "classes[1]", "None"),
    ("classes that are a text", of_classes("bus", {}), "classes", "'bus'"),
    ("no laws", of_classes(["bus"], None), "laws", "None"),
    (
        "the law of other clients",
        stale(None, law=of_classes(SLOW, dict.fromkeys((0, 1), GEOMETRIC))()),
        "delay",
        "20",
    ),
    ("a buffer that runs empty", waiting(23, 4, CONSTANT(5)), "buffer", "4"),
    (
        "of slow clients",
        waiting(20, 4, of_classes(SLOW, {0: CONSTANT(5), 1: CONSTANT(3)})()),
        "buffer",
        "18 of 20",
    ),
    ("of clients that rest", waiting(19, 4, CONSTANT(0), separation=5), "buffer", "16 of 19"),
    ("an opening's delays", stale(None, OPENING), "sampler", "Opening"),
    ("of draws with replacement", stale(None, fp.with_replacement([1, 1], 2)), "sampler", ""),
    ("too few weights", stale([1.0, 0.5]), "staleness", "(1.0, 0.5)"),
    ("a negative weight", stale([1.0, -1.0, 1.0]), "staleness[1]", "-1.0"),
    ("a weight of nan", stale([1.0, 1.0, math.nan]), "staleness[2]", "nan"),
    ("weights of 0", stale(lambda d: 0.0), "staleness", ""),
    ("two weights", stale(lambda d: jnp.ones(2)), "staleness[0]", "float32[2]"),
    ("a weight without delay", stale(lambda: 1.0), "staleness", "()"),
    ("a weight for all", stale(0.5), "staleness", "0.5"),
    ("a weight of records", weighted_by_records, "staleness[0]", "a traced value"),
]
ROWS = [
    *(Refusal(*row) for row in SIMPLE),
    *(
        Refusal(f"{of}, {name}", *rest)
        for of, rows in (("dropping", DROPPED), ("groups", GROUPED), ("delays", DELAYS))
        for name, *rest in rows
    ),
]
