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


def is_known(generator: str) -> bool:
    """Whether its keys are independent of one another, whatever they are folded by."""
    return generator in (THREEFRY, "rbg")


def check_default_generator() -> None:
    """Raises ValueError: JAX makes keys that noise must not be drawn from."""
    generator = default_generator()
    if not is_known(generator):
        raise ValueError(
            f"jax_default_prng_impl: {generator!r} can give different clients and steps the same noise; set "
            f"JAX_DEFAULT_PRNG_IMPL={THREEFRY}"
        )
    if not jax.config.jax_threefry_partitionable:  # type: ignore[attr-defined]
        raise ValueError(
            "jax_threefry_partitionable: False derives keys in another way than certificates assume; set it to True"
        )
