"""Secret seeds: how one is drawn, the root keys that it gives, and how two are told apart."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fedpriv.core import random_streams
from fedpriv.core.arguments import Seed, checked
from fedpriv.core.types import Key


def secret_seed() -> int:
    """Draws a secret of 63 bits from the system's entropy, for `simulate(..., secret_seed=...)`.

    Whoever knows it can compute the noise: keep it as secret as the clients' records. Give the same one to resume. Two
    runs with the same secret and the same seed have the same noise.
    """
    return secrets.randbits(63)


def checked_secret(value: Any) -> int | None:
    """The argument `secret_seed` of `simulate`.

    Raises:
      ValueError: it is no seed; its type alone is named, as it may be a secret in another form, such as a text.
    """
    try:
        number: int | None = checked("secret_seed", value, Seed | None)
    except ValueError:
        raise ValueError(
            f"secret_seed: a value of type {type(value).__name__} (not shown) is no whole number from -2^63 to 2^63 - "
            "1; give fp.secret_seed()"
        ) from None
    return number


def roots_of(secret: Key, seeds: Sequence[int]) -> Key:
    """Root keys of the seeds, key[seeds]: the secret's key, folded by the low and the high 32 bits of each."""
    numbers = np.asarray(seeds, np.int64)
    low, high = ((numbers >> shift & 0xFFFFFFFF).astype(np.uint32) for shift in (0, 32))

    def root(secret: Key, low: jax.Array, high: jax.Array) -> Key:
        return jax.random.fold_in(jax.random.fold_in(secret, low), high)

    # The key is an argument: what a program closes over is written into the cache of programs.
    return jax.jit(jax.vmap(root, (None, 0, 0)))(secret, low, high)


def check_value(roots: Key) -> str:
    """64 random bits in hexadecimal, by which secrets are told apart, and of which nothing else is made."""
    key = jax.random.fold_in(roots[0], random_streams.SECRET_CHECK)
    return "".join(f"{half:08x}" for half in np.asarray(jax.random.bits(key, (2,), np.uint32)))
