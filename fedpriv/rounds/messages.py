"""What is done with a message, or a sum of them: coded, clipped, weighed, perturbed, or given to a protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import jax
import jax.numpy as jnp

from fedpriv.compression.codecs import Codec
from fedpriv.core.array_arguments import check_leaves
from fedpriv.core.places import region
from fedpriv.core.types import Key, PyTree
from fedpriv.core.user_functions import asked, both
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.rounds.scheduled_samplers import AnySampler

Protocol: TypeAlias = Callable[[Key, PyTree], tuple[PyTree, PyTree]]
"""(key, messages, leaves [slots, ...]) -> (what comes of them, what travels meanwhile)."""


def shares_of(sampler: AnySampler, members: jax.Array) -> jax.Array | int:
    """Of how many shares the noise of a sum consists, if they are all there; `members` (i32[]) take part."""
    drawn = sampler.accounting
    return drawn.most if drawn.of_a_round.lossy else jnp.maximum(members, 1)


def agreed(protocol: Protocol, key: Key, messages: PyTree) -> tuple[PyTree, PyTree]:
    """What a protocol among the cohort's clients makes of messages, and what travels meanwhile.

    Raises:
      ValueError: the protocol is no function of (key, messages), or does not return both, as arrays.
    """
    returns = "(what comes of them, what travels)"
    found = both("protocol", protocol, "(key, messages)", returns, key, messages)
    check_leaves("protocol", found)
    return found


def clipped(
    mechanism: Mechanism, message: PyTree, scale: jax.Array | None
) -> tuple[PyTree, jax.Array]:
    """The message clipped to `scale` times the clip norm, and its norm."""
    if scale is not None:
        message = times(1 / scale, message)
    message, norm = both("clip", mechanism.clip, "(message)", "(clipped message, norm)", message)
    return (message, norm) if scale is None else (times(scale, message), scale * norm)


def times(factor: jax.Array | None, tree: PyTree) -> PyTree:
    """The tree times a factor, in its types; None: 1."""
    if factor is None:
        return tree
    return jax.tree.map(lambda u: (factor * u).astype(u.dtype), tree)


def perturbed(place: str, mechanism: Mechanism, key: Key, total: PyTree) -> PyTree:
    """With the noise of a mechanism, drawn in a region of this name, see `fedpriv.core.places`."""

    def perturb(key: Key, total: PyTree) -> PyTree:
        return asked("perturb", mechanism.perturb, "(key, total)", key, total)

    return region(place, perturb, key, total)


def coded(codec: Codec, key: Key, message: PyTree) -> tuple[PyTree, Mapping[str, jax.Array]]:
    """(The message as it is decoded, diagnostics)."""
    return both("code", codec.code, "(key, message)", "(decoded, diagnostics)", key, message)
