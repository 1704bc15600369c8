"""Parts of a program that XLA's CPU backend leaves whole."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.experimental.xla_metadata import set_xla_metadata

F = TypeVar("F", bound=Callable[..., Any])


def materialized(fn: F) -> F:
    """`fn`, a function of arrays and of static keyword arguments, whose result is written once, whoever reads it.

    XLA's CPU backend computes what is cheap anew for every reader, inside the reader's loop and in its order: a maximum
    that a transposition, a padding and a sum read, three times, number by number.
    """

    @functools.wraps(fn)
    def written(*arrays: Any, **static: Any) -> Any:
        if jax.default_backend() != "cpu":
            return fn(*arrays, **static)

        @jax.jit
        def program(*arrays: Any) -> Any:
            with set_xla_metadata(inlineable="true"):  # what it calls itself
                return fn(*arrays, **static)

        with set_xla_metadata(inlineable="false"):
            return program(*arrays)

    return written  # type: ignore[return-value]
