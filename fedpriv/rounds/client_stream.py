"""The hidden stream of a client: of its private means, of its loops, and of noise of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax
from jax.extend.core import get_opaque_trace_state

from fedpriv.core import random_streams
from fedpriv.core.types import Key
from fedpriv.proof.stream import NoiseStream


class ClientStream(NoiseStream):
    """Numbers the calls of a client, also in the loops that the engine makes for it.

    Args:
      key: the branch of the client.
    """

    remedy = "call it in the client itself, or take the client's steps by shard.private_steps"

    def __init__(self, key: Key):
        super().__init__(key)
        self._root, self._times = key, 1

    @property
    def times(self) -> int:
        """How often a call that is made now is repeated: by all turns of the engine's loops around it."""
        return self._times

    @property
    def own_noise_key(self) -> Key:
        """Of the noise that a client adds to its own message, which the engine draws when the client has returned."""
        return jax.random.fold_in(self._root, random_streams.OWN_NOISE)

    @contextmanager
    def turns(self, key: Key, count: int) -> Iterator[None]:
        """Inside, calls are those of one of so many turns of a loop of the engine's; its children have this key."""
        around = self._key, self._trace, self._calls, self._times
        self._key, self._trace, self._calls = key, get_opaque_trace_state(convention="flax"), 0
        self._times *= count
        try:
            yield
        finally:
            self._key, self._trace, self._calls, self._times = around
