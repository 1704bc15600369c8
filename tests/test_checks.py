"""`check_algorithm` finds what a new algorithm forgot, and lets an honest one pass."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small import regression, squared, start

import fedpriv as fp
from fedpriv import check_algorithm, everyone
from fedpriv.types import Wire

pytestmark = pytest.mark.usefixtures("quick_to_compile")

CLIENTS = 3
FEDERATION, PARAMS = regression([3] * CLIENTS), start()
COMMON = {
    "sampler": everyone(CLIENTS),
    "optimizer": lambda t: optax.sgd(0.1),
    "batches": fp.full_batch(),
}
GOOD = fp.fed_avg(squared, **COMMON)


def in_round(change):
    """GOOD with `change(state, metrics)` after its round."""

    def round(key, state, cohort):
        return change(*GOOD.round(key, state, cohort))

    return GOOD._replace(round=round)


def with_metric(**given):
    return in_round(lambda state, metrics: (state, metrics | given))


def without(name):
    return in_round(lambda s, metrics: (s, {k: v for k, v in metrics.items() if k != name}))


def starting(change):
    return GOOD._replace(init=lambda params, federation: change(GOOD.init(params, federation)))


class Rich(NamedTuple):
    """A state of everything that a scan can carry."""

    params: object
    round: object
    weak: object


def rich():
    def init(params, federation):
        return Rich(params, 0, 0.0)

    def round(key, state, cohort):
        inner = GOOD.init(state.params, None)._replace(round=state.round)
        after, metrics = GOOD.round(key, inner, cohort)
        return Rich(after.params, after.round, state.weak + 1.0), metrics

    return GOOD._replace(init=init, round=round)


def test_a_state_of_all_that_a_scan_carries_passes():
    """Its model may be given as the function that makes it."""
    check_algorithm(rich(), lambda key: jax.tree.map(np.asarray, PARAMS), FEDERATION)


@pytest.mark.slow
def test_a_federation_may_be_blank_or_on_the_host():
    example = jax.tree.map(lambda leaf: leaf[0], FEDERATION.examples)
    clients, records = FEDERATION.num_clients, FEDERATION.capacity
    blank = fp.Federation.blank(example, clients, records, public=len(FEDERATION.public))
    for federation in (blank, jax.tree.map(np.asarray, FEDERATION)):
        check_algorithm(GOOD, PARAMS, federation, rounds=2)


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        (starting(lambda s: tuple(s)), "init: .*; return a state with a field `params`"),
        (starting(lambda s: s._replace(round=jnp.int32(4))), "init: `round` begins at 4"),
        (
            starting(lambda s: s._replace(params=jax.tree.map(jnp.negative, s.params))),
            "init: `params` is not the model",
        ),
        (
            in_round(lambda s, m: (s._replace(round=s.round * 1.0), m)),
            r"the state changes: .round was int32\[\] and became float32\[\]; return",
        ),
        (in_round(lambda s, m: (tuple(s), m)), "return a state with a field `params`"),
        (
            in_round(lambda s, m: (s._replace(params=[s.params]), m)),
            "round: the state's structure changes",
        ),
        (in_round(lambda s, m: s), r"return \(state, metrics\)"),
        (in_round(lambda s, m: (s, None)), "metrics: None came back"),
        (in_round(lambda s, m: (s._replace(round=s.round - 1), m)), "`round` must go up by 1"),
        (without("uplink"), "metrics: there is no 'uplink'"),
        (with_metric(cohort_size=jnp.int32(3)), r"metrics: \['cohort_size'\] belong under 'diag"),
        (with_metric(downlink=jnp.int32(3)), "'downlink' is not a `Wire`; return the metrics"),
        (
            with_metric(uplink=jax.tree.map(lambda n: n + 0.5, Wire(2))),
            "metrics: 'uplink' is not of whole numbers",
        ),
        (with_metric(diagnostics={"x": jnp.zeros(2)}), "diagnostic 'x' is not a scalar"),
        (in_round(lambda s, m: (s._replace(params=jax.tree.map(jnp.log, s.params)), m)), "NaN"),
        (
            GOOD._replace(claim=lambda rounds, delta: 1.0),
            "claim: neither a `Claim` nor None",
        ),
    ],
)
def test_what_is_missing_is_named(algorithm, said):
    with pytest.raises(ValueError, match=said):
        check_algorithm(algorithm, PARAMS, FEDERATION)
