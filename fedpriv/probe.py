"""What an attack sees of a round, and whom it replaces: hooks that cost nothing while nobody probes.

A round is one function that says what it releases, but not how it looks from inside. While it is traced under `probed`,
`for_each_client` and some algorithms show what travels; `for_each_client`, `train` and `LocalSteps` let an audit's
impostors take the places of clients and records. Nothing is seen of what happens inside `lax.scan` or `lax.cond`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax

from fedpriv.types import Params, PyTree


class Impostors(NamedTuple):
    """Clients or records that an audit plays itself.

    Attributes:
      keep_out: (clients i32[slots]) -> bool[slots], which of a cohort do not contribute.
      train: (client i32[], model received, model trained) -> the model that the client goes on with.
      records: (client i32[], positions i32[slots], mask bool[slots], mechanism, like) -> (the mask of a step's
        records, what is added to the sum of their clipped gradients, a tree as `like`).
    """

    keep_out: Callable[[jax.Array], jax.Array]
    train: Callable[[jax.Array, Params, Params], Params]
    records: Callable[[jax.Array, jax.Array, jax.Array, Any, Params], tuple[jax.Array, Params]]


@dataclass
class _Probe:
    impostors: Impostors | None
    client: jax.Array | None = None
    seen: dict[str, Any] = field(default_factory=dict)


_ACTIVE: ContextVar[_Probe | None] = ContextVar("probe", default=None)


def probed(
    fn: Callable[..., Any], impostors: Impostors | None = None
) -> Callable[..., tuple[Any, dict[str, Any]]]:
    """`fn` that also gives back what was shown while it ran: (result, name -> value).

    `for_each_client` shows "cohort" and "messages" (with a leading axis of slots), Fed-SMP "kept" (the coordinates),
    model splitting "transcript" (f32[K + 1, M, d]), and what perturbs the sum of messages "perturb" (the
    mechanism's function).

    Args:
      impostors: who takes whose place; messages are then not kept, and "impostor clients" or "impostor records"
        shown where there was a place for them.
    """

    def both(*args: Any) -> tuple[Any, dict[str, Any]]:
        probe = _Probe(impostors)
        token = _ACTIVE.set(probe)
        try:
            result = fn(*args)
        finally:
            _ACTIVE.reset(token)
        return result, probe.seen

    return both


def keeping() -> bool:
    """Whether somebody wants all messages."""
    probe = _ACTIVE.get()
    return probe is not None and probe.impostors is None


def show(name: str, value: Any) -> None:
    """Shows a value to whoever probes."""
    probe = _ACTIVE.get()
    if probe is not None:
        probe.seen[name] = value


@contextmanager
def client(i: jax.Array) -> Iterator[None]:
    """What is traced inside is done by client i (i32[])."""
    probe = _ACTIVE.get()
    if probe is not None:
        probe.client = i
    try:
        yield
    finally:
        if probe is not None:
            probe.client = None


def contributing(ids: jax.Array, mask: jax.Array) -> jax.Array:
    """bool[slots]: the members of a cohort that are not kept out."""
    probe = _ACTIVE.get()
    if probe is None or probe.impostors is None:
        return mask
    return mask & ~probe.impostors.keep_out(ids)


def trained(received: Params, model: Params) -> Params:
    """The model that a client goes on with after local training."""
    probe = _ACTIVE.get()
    if probe is None or probe.impostors is None or probe.client is None:
        return model
    probe.seen["impostor clients"] = True
    return probe.impostors.train(probe.client, received, model)


def records(
    positions: jax.Array, mask: jax.Array, mechanism: Any, like: PyTree
) -> tuple[jax.Array, PyTree | None]:
    """(mask of a step's records bool[slots], what is added to the sum of their clipped gradients, None for nothing).

    Arguments are those of `Impostors.records`: positions i32[slots], mask bool[slots].
    """
    probe = _ACTIVE.get()
    if probe is None or probe.impostors is None or probe.client is None:
        return mask, None
    probe.seen["impostor records"] = True
    return probe.impostors.records(probe.client, positions, mask, mechanism, like)
