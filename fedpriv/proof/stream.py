"""The hidden random numbers of a run, on which its certificate rests: noise, who takes part, which records are drawn.

The root of a run has two children. From the public one come the keys that a round and its parts hold; whoever knows
them knows nothing of the rest. From the hidden one come, each once:

    round t -> who takes part
            -> call of the cohort -> the noise of its sum
                                  -> client i -> noise of its own
                                              -> private mean -> the records drawn, their noise, a random loss's key
                                              -> `private_steps` -> step k -> private mean ...

threefry keys a pseudo-random function: its children tell nothing of each other. Nothing is drawn from a key that has
children, but who takes part, by fewer than 2^31 numbers (see `random_streams`). A client's branch goes by its id, not
by its place in the cohort.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
from jax.extend.core import get_opaque_trace_state

from fedpriv.core import random_streams
from fedpriv.core.types import Key

THREEFRY = "threefry2x32"
STREAMS = 2
"""Version of which random numbers a root gives; a run goes on with those that it began with."""


def root_of(key: Key) -> Key:
    """The root of a run's keys, made of any key, typed or not: threefry, whatever the key is of."""
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.wrap_key_data(key)
    if str(jax.random.key_impl(key)) == THREEFRY:
        return key
    words = jax.random.key_data(key)
    root = jax.random.wrap_key_data(words[:2], impl=THREEFRY)
    for word in words[2:]:
        root = jax.random.fold_in(root, word)
    return root


def public_key(root: Key, number: jax.Array | int) -> Key:
    """The key of round `number` (from 1), or of the initial parameters (0), of JAX's default generator."""
    key = jax.random.fold_in(jax.random.fold_in(root, random_streams.PUBLIC), number)
    default = str(jax.config.jax_default_prng_impl)  # type: ignore[attr-defined]
    if default == THREEFRY:
        return key
    words = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0)))
    return jax.random.wrap_key_data(jax.random.bits(key, words.shape, jnp.uint32), impl=default)


def schedule_key(root: Key, part: int) -> Key:
    """The key of who takes part when, for samplers by the round; of each part of an `Opening`, 0 or 1, by itself.

    They are certified as drawn independently, whatever their blocks are.
    """
    return jax.random.fold_in(jax.random.fold_in(_hidden(root), random_streams.SCHEDULE), part)


def participation_key(root: Key, t: jax.Array | int) -> Key:
    """The key of who takes part in the round after t others."""
    return jax.random.fold_in(round_of(root, t), random_streams.PARTICIPATION)


def round_of(root: Key, t: jax.Array | int) -> Key:
    """The hidden branch of the round after t others."""
    return jax.random.fold_in(_hidden(root), t)


def _hidden(root: Key) -> Key:
    return jax.random.fold_in(root, random_streams.HIDDEN)


class NoiseStream:
    """Numbers the calls of a round, and gives each a key of its own; copies share the count.

    A program that is traced computes each of its equations once, unless they are in a loop, a branch or a function that
    is traced by itself. There JAX's state is another one than where the stream began, and no call gets a key.

    Args:
      key: the branch of the round, whose children the calls get.
    """

    remedy = "call it in the round itself, or in a Python loop"

    def __init__(self, key: Key):
        self._key, self._trace, self._calls, self._closed = key, _trace(), 0, ""

    @property
    def calls(self) -> int:
        """How many there were so far."""
        return self._calls

    def begin(self, what: str) -> Key:
        """The key of the next call.

        Raises:
          ValueError: the call is in a loop, a branch or a function that is traced by itself; or it comes when none can.
        """
        if self._closed:
            raise ValueError(f"round: {what} {self._closed}")
        if _trace() != self._trace:
            raise ValueError(
                f"round: {what} is called in a loop, a branch or a transformed function (scan, cond, jit, vmap, grad), "
                f"where its noise could be repeated; {self.remedy}"
            )
        self._calls += 1
        return jax.random.fold_in(self._key, self._calls - 1)

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Inside, clients run: they cannot call the cohort."""
        self._closed = "is called by a client; call it in the round itself"
        try:
            yield
        finally:
            self._closed = ""

    def end(self) -> None:
        """The round, or the client, is over."""
        self._closed = "is called when its round, or its client, is over; use the cohort and the shard that are given"

    def __copy__(self) -> NoiseStream:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a cohort, or a shard, is part of a round that runs: it can be neither pickled nor copied whole; use the "
            "one that is given"
        )


def _trace() -> Any:
    return get_opaque_trace_state(convention="flax")
