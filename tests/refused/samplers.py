"""Samplers, who vanishes, groups and delays."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import fedpriv as fp
from fedpriv.privacy.sampling import Who, told_law
from fedpriv.rounds.group_names import OtherGroupsError
from fedpriv.rounds.late_samplers import late

FIXED, OPENING = fp.fixed_size(6, 4), fp.Opening(fp.everyone(6), 1, fp.fixed_size(6, 2))
TWICE, POISSON = fp.with_replacement([1, 1], 2), fp.poisson(9, 0.4)
RESTING = fp.random_availability(12, 4, 3, 0.7)
LABELS = ["b", "a", "b", "b", "a", "b"]
BY_RATE = {"a": fp.poisson(2, 0.75), "b": fp.poisson(4, 0.25)}
STRATA = {"a": fp.poisson(2, 0.75), "b": fp.fixed_size(4, 2)}
WEIGHTS, SCALES = {"a": 0.5, "b": 1.0}, {"a": 1.0, "b": 0.25}
LOSES = {"a": fp.dropping(fp.fixed_size(2, 1), 0.1, "lost"), "b": fp.fixed_size(4, 2)}
BY_HAND = fp.poisson(2, 0.75)._replace(seal=())
OF_PERSONS = fp.Federation.from_arrays(
    {"x": np.zeros(6)}, fp.partition.natural(np.arange(6)), person=np.arange(6) // 2
)
PERSONS = fp.by_person(fp.poisson(3, 0.5), OF_PERSONS)
CONSTANT, GEOMETRIC = fp.delays.constant, fp.delays.geometric(1.0, 2)
SLOW = [0] * 6 + [1] * 14
OF_OTHERS = fp.delays.by_class(SLOW, dict.fromkeys((0, 1), GEOMETRIC))
UNEQUAL = fp.delays.by_class(SLOW, {0: CONSTANT(5), 1: CONSTANT(3)})


def grouped(labels=LABELS, samplers=BY_RATE, **options):
    return partial(fp.grouped, labels, samplers, **options)


def with_a(sampler):
    return grouped(samplers=BY_RATE | {"a": sampler})


def dropped(sampler=FIXED, noise="whole"):
    return partial(fp.dropping, sampler, 0.1, noise)


def of_classes(labels, laws):
    return partial(fp.delays.by_class, labels, laws)


def waiting(population, buffer, law, **options):
    return lambda: late(fp.FreeClients(population, buffer, **options), law)


def stale(weights=None, sampler=FIXED, law=GEOMETRIC):
    return partial(late, sampler, law, weights)


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


def seen_by(drawn):
    return lambda: fp.privacy.declared("third_party", "client", 1.0, drawn, 1)


ALL, TRACED = grouped()().accounting, "a traced value"
OTHER = OtherGroupsError
PLAIN, SCHEDULED = "give one of fp.everyone, fp.fixed_size", ("ScheduledSampler", "of an Opening")
ONE_ADJACENCY, COUNTS = "groups need one adjacency", "counts otherwise"
ROWS = [
    ("more than there are", lambda: fp.fixed_size(5, 6), "size", "6"),
    ("no clients", lambda: fp.with_replacement([], 2), "sizes", "[]"),
    ("an order of too many", lambda: fp.fixed_order(12, 13), "size", "13"),
    ("uneven turns", lambda: fp.cyclic_poisson(12, 5, 0.3), "groups", "5"),
    ("a long block", lambda: fp.random_allocation(12, 2**16 + 1), "block", "65537"),
    ("a long rest", lambda: fp.random_availability(12, 4, 4, 0.5), "separation", ("4", "3")),
    ("more than come", lambda: fp.random_availability(12, 13, 1, 0.5), "most", ("13", "12")),
    ("a buffer of more than all", lambda: fp.FreeClients(6, buffer=7), "buffer", ("7", "6")),
    # Who vanishes.
    ("noise of a secret number", dropped(POISSON, "lost"), "noise", ("'lost'", "secret")),
    ("with replacement", dropped(TWICE), "sampler: WithReplacement", PLAIN),
    ("twice", lambda: dropped(dropped(noise="lost")())(), "sampler", ("Dropping", PLAIN)),
    ("by hand", dropped(FIXED._replace(expected_size=3.0)), "sampler: FixedSize", PLAIN),
    ("an opening", dropped(OPENING), "sampler", ("Opening", "on each side of an Opening")),
    ("an order", dropped(fp.fixed_order(6, 2)), "sampler", SCHEDULED),
    ("blocks", dropped(fp.random_allocation(12, 3)), "sampler", SCHEDULED),
    ("who rests", dropped(RESTING), "sampler", SCHEDULED),
    ("nothing", dropped(None), "sampler", ("None", PLAIN)),
    # Groups.
    ("no list", grouped("a"), "groups", "'a'"),
    ("no group", grouped([*"bab", None, "a", "b"]), "groups[3]", "None"),
    ("not a name", grouped([0.5] * 6), "groups[0]", "0.5"),
    ("a group without sampler", grouped([*"babbac"]), "samplers", "'c'", OTHER),
    ("nobody in it", grouped(samplers=BY_RATE | {"c": BY_HAND}), "samplers", "'c'", OTHER),
    ("another number", with_a(fp.poisson(3, 0.5)), "samplers['a']", "3 clients"),
    ("another number of all", grouped(samplers=fp.everyone(5)), "samplers", "5 clients"),
    ("no sampler", with_a(0.5), "samplers['a']", "0.5"),
    ("a sampler by hand", with_a(BY_HAND), "samplers['a']", "by hand"),
    ("groups of groups", lambda: grouped(samplers=grouped()())(), "samplers", "grouped itself"),
    ("persons", grouped(samplers=PERSONS), "samplers", "of persons"),
    ("two adjacencies", grouped(samplers=STRATA), "samplers", ONE_ADJACENCY),
    ("everyone beside others", with_a(fp.everyone(2)), "samplers", ONE_ADJACENCY),
    ("lost noise", grouped(samplers=LOSES), "samplers['a']", 'noise="whole"'),
    ("one draw", grouped(samplers=fp.fixed_size(6, 2), weights=WEIGHTS), "samplers", COUNTS),
    (
        "weights of a draw that is cut",
        grouped(samplers=fp.cyclic_poisson(6, 2, 0.5, 1), clip_scales=SCALES),
        "samplers",
        COUNTS,
    ),
    ("weight 0", grouped(weights={"a": 0, "b": 1}), "weights['a']", "0"),
    ("weight 2", grouped(weights={"a": 2, "b": 1}), "weights['a']", "2"),
    ("a weight that lacks", grouped(weights={"a": 1}), "weights", "'b'", OTHER),
    ("a clip of none", grouped(clip_scales=SCALES | {"x": 1}), "clip_scales", "'x'", OTHER),
    ("no mapping", grouped(weights=0.5), "weights", "0.5"),
    ("groups that a round computes", grouped_in_a_round("groups"), "groups", TRACED),
    ("weights that a round computes", grouped_in_a_round("weights"), "weights['a']", TRACED),
    ("the cases of all groups", seen_by(ALL), "sampling", ("'a'", "`of_group` of one")),
    ("draws of all groups", lambda: told_law(ALL, Who()), "sampling", "`of_group` of one"),
    # Delays.
    ("0.9 of a law", lambda: fp.delays.DelayLaw([[0.4, 0.5]]), "chances", "0.9"),
    ("a class without law", lambda: fp.delays.DelayLaw([[1.0]], [0, 1]), "classes", "1"),
    ("a car", of_classes(["bus", "car"], {"bus": CONSTANT(1)}), "laws", "'car'", OTHER),
    ("a law that is a number", of_classes(["bus"], {"bus": 2}), "laws['bus']", "2"),
    ("a class of None", of_classes(["bus", None], {"bus": CONSTANT(1)}), "classes[1]", "None"),
    ("classes that are a text", of_classes("bus", {}), "classes", "'bus'"),
    ("no laws", of_classes(["bus"], None), "laws", "None"),
    ("the law of other clients", stale(law=OF_OTHERS), "delay: classes", ("20", "6 clients")),
    ("a buffer that runs empty", waiting(23, 4, CONSTANT(5)), "buffer", ("4", "20 of 23")),
    ("of slow clients", waiting(20, 4, UNEQUAL), "buffer", ("4", "18 of 20")),
    ("of clients that rest", waiting(19, 4, CONSTANT(0), separation=5), "buffer", "16 of 19"),
    ("an opening's delays", stale(sampler=OPENING), "sampler", "Opening"),
    (
        "of draws with replacement",
        stale(sampler=TWICE),
        "sampler: WithReplacement",
        "several times",
    ),
    ("too few weights", stale([1.0, 0.5]), "staleness", ("(1.0, 0.5)", "from 0 to 2")),
    ("a negative weight", stale([1.0, -1.0, 1.0]), "staleness[1]", "-1.0"),
    ("a weight of nan", stale([1.0, 1.0, math.nan]), "staleness[2]", "nan"),
    ("weights of 0", stale(lambda d: 0.0), "staleness", "(0.0, 0.0, 0.0)"),
    ("two weights", stale(lambda d: jnp.ones(2)), "staleness[0]", "float32[2]"),
    ("a weight without delay", stale(lambda: 1.0), "staleness", "it takes ()"),
    ("a weight for all", stale(0.5), "staleness", "0.5"),
    ("a weight of records", weighted_by_records, "staleness[0]", TRACED),
]
