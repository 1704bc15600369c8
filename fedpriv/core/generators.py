"""Which of JAX's generators of random numbers noise may be drawn by.

Under `unsafe_rbg` fold_in is an exclusive or, so that client i in step j has the noise of client j in step i. Under
`rbg` a batch of keys draws by its first one.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

THREEFRY = "threefry2x32"


def generator_of(key: jax.Array) -> str:
    """What draws random numbers from a key, typed or not, by JAX's name."""
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return str(jax.random.key_impl(key))
    return default_generator()


def default_generator() -> str:
    """Of the keys that JAX makes, by its name."""
    return str(jax.config.jax_default_prng_impl)  # type: ignore[attr-defined]


def check_generator(generator: str) -> None:
    """Raises ValueError: its keys are not independent of one another, whatever they are folded by."""
    if generator not in (THREEFRY, "rbg"):
        raise ValueError(
            f"jax_default_prng_impl: {generator!r} gives different clients and steps the same noise; set "
            f"JAX_DEFAULT_PRNG_IMPL={THREEFRY}"
        )
    if not jax.config.jax_threefry_partitionable:  # type: ignore[attr-defined]
        raise ValueError(
            "jax_threefry_partitionable: False makes other keys than those that certificates know; leave it on"
        )
