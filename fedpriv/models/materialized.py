"""Parts of a program that XLA's CPU backend leaves whole."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax
from jax.experimental.xla_metadata import set_xla_metadata

P = ParamSpec("P")
R = TypeVar("R")


def materialized(fn: Callable[P, R]) -> Callable[P, R]:
    """`fn`, whose result is written once, whoever reads it.

    XLA's CPU backend computes what is cheap anew for every reader, inside the reader's loop and in its order: a maximum
    that a transposition, a padding and a sum read, three times, number by number.
    """

    @jax.jit
    def program(*args: P.args, **kwargs: P.kwargs) -> R:
        with set_xla_metadata(inlineable="true"):  # what it calls itself
            return fn(*args, **kwargs)

    @functools.wraps(fn)
    def whole(*args: P.args, **kwargs: P.kwargs) -> R:
        if jax.default_backend() != "cpu":
            return fn(*args, **kwargs)
        with set_xla_metadata(inlineable="false"):
            return program(*args, **kwargs)

    return whole
