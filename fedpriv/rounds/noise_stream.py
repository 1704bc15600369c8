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
from dataclasses import dataclass
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


_CLIENTS = "call it in the client itself, or take the client's steps by shard.private_steps"
ROUNDS = "call it in the round itself, or in a Python loop"


@dataclass
class _Level:
    """Where calls are made: a round, a client, or a step of a client's loop.

    Attributes:
      key: whose children the calls get.
      trace: JAX's state there.
      calls: how many there were.
    """

    key: Key
    trace: Any
    calls: int = 0


class NoiseStream:
    """Numbers the calls of a round, or of a client, and gives each a key of its own; copies share the count.

    Args:
      key: the branch of the round, or of the client.
    """

    def __init__(self, key: Key):
        self._levels = [_Level(key, _trace())]
        self._times = 1
        self._closed = ""

    @property
    def calls(self) -> int:
        """How many there were so far."""
        return self._levels[-1].calls

    @property
    def times(self) -> int:
        """How often a call that is made now is repeated: by all turns of the engine's loops around it."""
        return self._times

    def begin(self, what: str, remedy: str = _CLIENTS) -> Key:
        """The key of the next call.

        Raises:
          ValueError: the call is in a loop, a branch or a function that is traced by itself; or it comes when none can.
        """
        if self._closed:
            raise ValueError(f"round: {what} {self._closed}")
        level = self._levels[-1]
        if _trace() != level.trace:
            raise ValueError(
                f"round: {what} is called in a loop, a branch or a transformed function (scan, cond, jit, vmap, grad), "
                f"where its noise could be repeated; {remedy}"
            )
        level.calls += 1
        return jax.random.fold_in(level.key, level.calls - 1)

    @property
    def own_noise_key(self) -> Key:
        """Of the noise that a client adds to its own message, which the engine draws when the client has returned."""
        return jax.random.fold_in(self._levels[0].key, random_streams.OWN_NOISE)

    @contextmanager
    def turns(self, key: Key, count: int) -> Iterator[None]:
        """Inside, calls are those of one of so many turns of a loop of the engine's."""
        self._levels.append(_Level(key, _trace()))
        self._times *= count
        try:
            yield
        finally:
            self._times //= count
            self._levels.pop()

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

    def __deepcopy__(self, memo: Any) -> NoReturn:
        self.__reduce__()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a cohort, or a shard, is part of a round that runs: it can be neither pickled nor copied whole; use the "
            "one that is given"
        )


def _trace() -> Any:
    return get_opaque_trace_state(convention="flax")
