"""What a sampler draws in the rounds of a run, by its draws alone."""

import jax
import jax.numpy as jnp
from jax import lax


def draws_of(sampler, rounds):
    """key -> the `Draw`s of so many rounds, leaves [rounds, ...]; compiled once for all keys."""

    @jax.jit
    def draws(key):
        def one(memory, t):
            drawn, memory = sampler.draw(key, t, memory)
            return memory, drawn

        return lax.scan(one, sampler.init(), jnp.arange(rounds))[1]

    return draws
