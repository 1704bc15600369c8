"""Marks mean something in their own round alone, and rows of all that clients keep are of all."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from own_algorithms import (
    CLIENTS,
    FEDERATION,
    GAUSSIAN,
    PARAMS,
    RECORDS,
    State,
    fed_avg,
    of_clients,
    stepped,
)
from small import refused, regression, squared

import fedpriv as fp
from fedpriv.attacks import with_canaries
from fedpriv.proof.labels import Hidden, Protected
from fedpriv.rounds.own_state import Stored

pytestmark = pytest.mark.usefixtures("quick_to_compile")

EVERYONE = fp.everyone(CLIENTS)
ONE = regression([RECORDS], features=14)


def keeping_all_of(closed_over, unit):
    """A client that keeps what `closed_over` makes of what all clients keep, as if that were its own."""

    def init(params, federation):
        return State(params, jnp.int32(0), (jnp.zeros((CLIENTS, CLIENTS)), jnp.zeros(CLIENTS)))

    def round(key, state, cohort):
        table, kept = state.extra
        mechanism = GAUSSIAN if unit == "client" else fp.ALREADY_PRIVATE
        nothing = jax.tree.map(jnp.zeros_like, state.params)

        def first(k, shard, own):
            return fp.Sent(nothing, own=100 * shard.examples["y"].sum())

        kept = cohort.sum(first, key, mechanism=mechanism, own=kept).own
        held = closed_over(kept)

        def client(k, shard, row):
            shown = jax.tree.map(lambda p: 0 * p + row.sum(), state.params)
            return fp.Sent(shown if unit == "client" else nothing, own=held)

        total, metrics, table = cohort.sum(client, key, mechanism=mechanism, own=table)
        after = stepped(state, total, cohort.expected_size)
        return State(after, state.round + 1, (table, kept)), metrics

    return fp.Algorithm(init, round, EVERYONE, unit=unit)


@pytest.mark.parametrize("unit", ["client", "record"])
@pytest.mark.parametrize(
    "closed_over", [lambda kept: kept, lambda kept: 2 * kept], ids=["it", "2x"]
)
def test_what_all_keep_is_no_clients_own(closed_over, unit):
    with refused("depends on clients' own state", fp.LeakError):
        fp.certify(keeping_all_of(closed_over, unit), PARAMS, FEDERATION, 3, 1e-3)


def bare(key, state, cohort):
    """The sum of gradients as it is; what is done in its private mean would be fine if that were noisy."""

    def client(k, shard):
        return shard.private_mean(
            fp.per_example(squared),
            state.params,
            records=fp.everyone(RECORDS),
            mechanism=fp.unprotected("a test"),
        )

    total, metrics, _ = cohort.sum(client, key, mechanism=fp.unprotected("a test"))
    return State(total, state.round + 1), metrics


INNER = fp.one_round(fp.Algorithm(fp.start, bare, fp.everyone(1)))


@pytest.mark.parametrize("reads", [0, 12])
@pytest.mark.parametrize("play", [INNER, jax.jit(INNER)], ids=["traced", "from the cache"])
def test_a_round_within_a_client_brings_no_marks(play, reads):
    """However many marks of its own the outer round has, such as of a size that is public."""
    begun = State(PARAMS, jnp.int32(0))
    play(jax.random.key(0), begun, ONE)  # so that JAX has its program

    def round(key, state, cohort):
        assert len([cohort.size for _ in range(reads)]) == reads

        def client(k, shard):
            alone = dataclasses.replace(ONE, examples=shard.examples)
            return play(jax.random.key(0), State(state.params, jnp.int32(0)), alone)[0].params

        total, metrics, _ = cohort.sum(client, key, mechanism=fp.ALREADY_PRIVATE)
        return State(total, state.round + 1), metrics

    with refused("depends on a client's data", fp.LeakError):
        fp.certify(of_clients(round, sampler=EVERYONE), PARAMS, FEDERATION, 1, 1e-3)


def test_a_wrapped_audit_is_refused_rather_than_played_without_canaries():
    algorithm = fed_avg(sampler=EVERYONE)
    seen = fp.trace_round(algorithm, PARAMS, FEDERATION).seen(3)[0]
    audited = with_canaries(algorithm, 1, seen)
    wrapped = audited._replace(round=lambda key, state, cohort: audited.round(key, state, cohort))
    with refused("change the algorithm before"):
        fp.trace_round(wrapped, PARAMS, FEDERATION)


def test_no_client_keeps_hidden_random_numbers():
    hidden, known = frozenset({Hidden()}), fp.everyone(CLIENTS).accounting
    assert Stored("here", 0).transfer([hidden], Protected(known)) == [hidden]
