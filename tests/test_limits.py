"""In its limits an algorithm is another one: what is left out, or taken whole, makes no difference to the bit."""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
import pytest
import tiers
from every_algorithm import (
    CLIENTS,
    FEDERATION,
    FIXED,
    FIXED_COHORTS,
    GRADIENTS,
    NOISY,
    NOISY_LOCAL,
    PARAMS,
    PER_CLIENT,
    PRIVATE,
    TRAINING,
    TWO,
    D,
)
from own_algorithms import error_feedback
from small import assert_close, assert_identical, one_round

import fedpriv as fp
from fedpriv.compression.codecs import UNCODED
from fedpriv.privacy.rows import featured

pytestmark = pytest.mark.usefixtures("quick_to_compile")


class Limit(NamedTuple):
    """An algorithm, and what it is in the limit.

    Attributes:
      kind: what is left out.
      one, other: the algorithms.
      same: how alike their states are, to the bit unless XLA adds in another order.
      seen: what of the states is alike.
      released: whether it is also known to release the same.
    """

    kind: str
    one: fp.Algorithm
    other: fp.Algorithm
    same: Callable[[Any, Any], None] = assert_identical
    seen: Callable[[Any], Any] = lambda state: (state.params, state.round)
    released: bool = True


def averaging(make=fp.fed_avg, **changes):
    return make(**FIXED_COHORTS | changes)


def of_records(records, mechanism=NOISY, steps=2):
    local = fp.LocalSteps(GRADIENTS, records, steps, lambda t: optax.sgd(0.1), mechanism)
    return fp.dp_sgd(local, sampler=FIXED)


def with_half_its_key(algorithm):
    """Fed-SMP keeps the other half for choosing coordinates."""
    return algorithm._replace(
        round=lambda key, *rest: algorithm.round(jax.random.split(key)[1], *rest)
    )


def without_variates(algorithm):
    """DP-SCAFFOLD whose control variates are set to 0 before each round."""

    def round(key, state, cohort):
        zeros = jax.tree.map(jnp.zeros_like, (state.control, state.controls))
        return algorithm.round(key, state._replace(control=zeros[0], controls=zeros[1]), cohort)

    return algorithm._replace(round=round)


OPEN = {"clip_norm": math.inf, "noise_multiplier": 0.0}
PLAIN, PRIVATELY = averaging(), averaging(fp.dp_fed_avg, **PRIVATE)
EQUAL = [PER_CLIENT] * CLIENTS
WHOLE = fp.papers.select_rand_k(1.0)
AT_ONCE = {"delay": fp.delays.constant(0), "staleness": [1.0], "mechanism": NOISY}

LIMITS = {
    "DP-FedAvg without clip and noise": Limit("noise", averaging(fp.dp_fed_avg, **OPEN), PLAIN),
    "LDP without clip and noise": Limit(
        "noise", averaging(fp.papers.ldp_fed_avg, mechanism=fp.gaussian(*OPEN.values())), PLAIN
    ),
    "a mechanism that is given": Limit("spelling", averaging(mechanism=NOISY), PRIVATELY),
    "a schedule without decay": Limit(
        "decay", averaging(mechanism=fp.dynamic(NOISY, rounds=4)), PRIVATELY
    ),
    "FedPer without a head": Limit(
        "head", averaging(fp.fed_per, head=(), mechanism=NOISY), PRIVATELY
    ),
    "what Ditto shares": Limit(
        "what clients keep", averaging(fp.ditto, lam=0.3, mechanism=NOISY), PRIVATELY
    ),
    "top_k of all coordinates": Limit(
        "coordinates",
        averaging(fp.dp_fed_avg, codec=fp.top_k(D), **PRIVATE),
        PRIVATELY,
        released=False,
    ),
    "Fed-SMP of all coordinates": Limit(
        "coordinates",
        averaging(fp.fed_smp, sparsifier=WHOLE, **PRIVATE),
        with_half_its_key(PRIVATELY),
        assert_close,
    ),
    "answers that are not late": Limit(
        "delay", averaging(fp.buffered_fed_avg, **AT_ONCE), PRIVATELY
    ),
    "clients that weigh the same": Limit(
        "weights",
        averaging(fp.dp_fed_avg, weighting=fp.ByExamples(cap=1, mean=1.0), **PRIVATE),
        PRIVATELY,
    ),
    "error feedback that leaves nothing out": Limit(
        "coordinates",
        error_feedback(sampler=FIXED, codec=fp.top_k(D)),
        error_feedback(sampler=FIXED, codec=UNCODED),
        seen=lambda state: state,
        released=False,
    ),
    "stragglers at rate 0": Limit(
        "stragglers", averaging(batches=fp.straggling(TRAINING["batches"], 0)), PLAIN
    ),
    "public sizes that are equal": Limit(
        "sizes", of_records(fp.PublicSizes(EQUAL, batch=2)), of_records(TWO)
    ),
    "DP-SCAFFOLD without control variates": Limit(
        "what clients keep",
        without_variates(fp.dp_scaffold(NOISY_LOCAL, sampler=FIXED)),
        fp.dp_sgd(NOISY_LOCAL, sampler=FIXED),
        released=False,
    ),
}


def after(algorithm, rounds=2):
    """The state, and the last metrics."""
    state = algorithm.init(PARAMS, FEDERATION)
    for t in range(rounds):
        state, metrics = one_round(algorithm)(jax.random.key(t), state, FEDERATION)
    return state, metrics


@tiers.every("name", LIMITS)
def test_the_model_is_that_of_the_limit(name):
    _, one, other, same, seen, _ = LIMITS[name]
    (found, metrics), (expected, told) = after(one), after(other)
    same(seen(found), seen(expected))
    assert metrics["cohort_size"] == told["cohort_size"]


RELEASED = {name: limit for name, limit in LIMITS.items() if limit.released}


@tiers.every("name", RELEASED)
def test_so_is_what_is_released(name):
    """How much noise hides it, from whom, in how many rounds."""
    both = [Counter(), Counter()]
    for found, algorithm in zip(both, (LIMITS[name].one, LIMITS[name].other), strict=True):
        traced = fp.trace_round(algorithm, PARAMS, FEDERATION)
        for row in map(featured, traced._rows(5, *traced.kinds)):
            found[row.view, row.unit, row.noisy.multiplier] += row.repeated.rounds
    assert both[0] == both[1]
