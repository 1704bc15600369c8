"""An algorithm whose state has leaves of every kind."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Odd(NamedTuple):
    """A state of all kinds of leaves, and names that no file should be called by."""

    params: Any
    round: jax.Array
    half: jax.Array
    nothing: jax.Array
    flags: dict[str, jax.Array]


def odd(fed_avg):
    """FedAvg with a state that has further leaves, each different in every round."""

    def init(params, federation):
        nothing, flags = jnp.zeros((0, 3)), {"a/b": jnp.array([True, False]), "": jnp.uint8(7)}
        return Odd(params, jnp.int32(0), jnp.bfloat16(0.1), nothing, flags)

    def round(key, state, cohort):
        own_key, key = jax.random.split(key)
        model = fed_avg.init(state.params, None)._replace(round=state.round)
        model, metrics = fed_avg.round(key, model, cohort)
        flags = {"a/b": ~state.flags["a/b"], "": state.flags[""] * jnp.uint8(3)}
        half = state.half + jax.random.normal(own_key, (), jnp.bfloat16)
        new = state._replace(half=half, flags=flags)
        metrics |= {"diagnostics": {"half": half.astype(jnp.float32), "b": jnp.float32(1)}}
        return new._replace(params=model.params, round=model.round), metrics

    return fed_avg._replace(init=init, round=round)
