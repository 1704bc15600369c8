"""What clients keep is refused in the released model, whatever the state is and however it holds the model."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest
from own_algorithms import CLIENTS, FEDERATION, GAUSSIAN, PARAMS, POISSON, update
from small import refused

import fedpriv as fp

TABLE = "table"


class Named(NamedTuple):
    """A state as most are."""

    params: Any
    round: Any
    kept: Any = ()


@jax.tree_util.register_pytree_node_class
class Unnamed:
    """Its leaves have numbers, and no names."""

    def __init__(self, params, round, kept=()):
        self.params, self.round, self.kept = params, round, kept

    def tree_flatten(self):
        return (self.params, self.round, self.kept), None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        return cls(*leaves)


class PutTogether(NamedTuple):
    """Its model is made when it is asked for."""

    body: Any
    round: Any
    kept: Any

    @property
    def params(self):
        return self.body | {TABLE: self.kept}


def stays(params, round, kept):
    """The table stays beside the model."""
    return Unnamed(params | {TABLE: jnp.zeros(CLIENTS)}, round, kept)


def algorithm_of(state_of):
    """DP-FedAvg whose clients count their messages, by a state of (the body, rounds, what they keep: f32[clients])."""

    def init(params, federation):
        return state_of({name: params[name] for name in PARAMS}, jnp.int32(0), jnp.zeros(CLIENTS))

    def round(key, state, cohort):
        body = {name: state.params[name] for name in PARAMS}

        def client(key, shard, kept):
            return fp.Sent(update(Named(body, 0), key, shard), own=kept + shard.size)

        kept = state.kept if jax.tree.leaves(state.kept) else state.params[TABLE]
        total, metrics, kept = cohort.sum(client, key, mechanism=GAUSSIAN, own=kept)
        body = jax.tree.map(lambda p, s: p - s / cohort.expected_size, body, total)
        return state_of(body, state.round + 1, kept), metrics

    return fp.Algorithm(init, round, POISSON)


@pytest.mark.parametrize(
    "state_of",
    [
        lambda body, round, kept: Named(body | {TABLE: kept}, round),
        lambda body, round, kept: Unnamed(body | {TABLE: kept}, round),
        PutTogether,
    ],
    ids=["named", "unnamed", "put together"],
)
def test_what_clients_keep_in_the_model(state_of):
    with refused(r"state\.params\['table'\] .* depends on what clients keep", fp.LeakError):
        fp.certify(
            algorithm_of(state_of), PARAMS | {TABLE: jnp.zeros(CLIENTS)}, FEDERATION, 1, 1e-3
        )


@pytest.mark.slow
def test_what_clients_keep_beside_the_model():
    fp.check_algorithm(algorithm_of(stays), PARAMS | {TABLE: jnp.zeros(CLIENTS)}, FEDERATION)
