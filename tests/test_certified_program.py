"""What trains is what was certified: other programs and operations that are not known are refused."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import buffer_callback, io_callback
from own_algorithms import (
    CLIENTS,
    CLIP,
    FEDERATION,
    GAUSSIAN,
    PARAMS,
    SIGMA,
    D,
    State,
    fed_avg,
    moved,
    of_clients,
    update,
)
from planted_rounds import sending
from small import refused, squared

import fedpriv as fp
from fedpriv.core.trees import flatten

pytestmark = pytest.mark.usefixtures("quick_to_compile")

EVERYONE = fp.everyone(CLIENTS)
NOTHING = {"uplink": fp.types.Wire(D)}


def trained(algorithm, rounds=1):
    test = jax.tree.map(lambda leaf: leaf[:3], FEDERATION.examples)
    score = lambda params, example: {"loss": squared(params, example)}  # noqa: E731
    return fp.simulate(algorithm, PARAMS, FEDERATION, test, score=score, rounds=rounds)


@pytest.mark.slow
def test_mechanisms_made_in_a_round_are_the_same():
    def round(key, state, cohort):
        client = lambda key, shard: update(state, key, shard)  # noqa: E731
        total, metrics, _ = cohort.sum(client, key, mechanism=fp.gaussian(CLIP, SIGMA))
        return moved(state, flatten(total))._replace(round=state.round + 1), metrics

    trained(of_clients(round))


SWITCH = {"on": False}


def test_a_global_that_init_changes_is_noticed():
    def init(params, federation):
        SWITCH["on"] = any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(params)) and (
            SWITCH.setdefault("traces", 0) > 0
        )
        SWITCH["traces"] = SWITCH.get("traces", 0) + 1
        return State(params, jnp.int32(0))

    def round(key, state, cohort):
        client = lambda key, shard: update(state, key, shard)  # noqa: E731
        total, metrics, _ = cohort.sum(client, key, mechanism=GAUSSIAN)
        scale = 2.0 if SWITCH["on"] else 1.0
        return moved(state, scale * flatten(total))._replace(round=state.round + 1), metrics

    with refused("traced again it is another program"):
        trained(fp.Algorithm(init, round, EVERYONE))


def in_init():
    def init(params, federation):
        io_callback(lambda: None, None)
        return State(params, jnp.int32(0))

    return fed_avg()._replace(init=init)


def buffered(key, shard, state):
    call = buffer_callback.buffer_callback(
        lambda ctx, out, x: None, jax.ShapeDtypeStruct((), jnp.float32)
    )
    return call(shard.examples["y"].sum())


def calling_an_export(key, shard, state):
    """A program with records within it."""
    held = FEDERATION.examples["y"]
    program = jax.export.export(jax.jit(lambda x: x + held.sum()))(jnp.float32(0))
    return program.call(jnp.float32(0)) + shard.size


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: sending(buffered), r"round: buffer_callback \(\w+\.py:\d+\) is not among"),
        (in_init, r"init: io_callback \(\w+\.py:\d+\) calls the host"),
        (
            lambda: sending(calling_an_export),
            r"round: call_exported \(\w+\.py:\d+\) is not among",
        ),
    ],
    ids=["buffer_callback", "io_callback in init", "an exported function"],
)
def test_operations_that_are_not_known_are_refused(make, said):
    with refused(said):
        fp.certify(make(), PARAMS, FEDERATION, 1, 1e-3)
