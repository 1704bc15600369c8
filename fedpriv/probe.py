"""What an attack sees of a round, and whom it replaces: hooks that cost nothing while nobody probes.

A round is one function that says what it releases, but not how it looks from inside. While it is traced under `probed`,
`for_each_client` and some algorithms show what travels, and `train` lets canaries take the place of clients. Nothing is
seen of what happens inside `lax.scan` or `lax.cond`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jax

from fedpriv.types import Params

Impostor: TypeAlias = Callable[[jax.Array, Params, Params], Params]
"""(client i32[], model as received, model as trained) -> the model that the client goes on with."""


@dataclass
class _Probe:
    impostor: Impostor | None
    client: jax.Array | None = None
    seen: dict[str, Any] = field(default_factory=dict)


_ACTIVE: ContextVar[_Probe | None] = ContextVar("probe", default=None)


def probed(
    fn: Callable[..., Any], impostor: Impostor | None = None
) -> Callable[..., tuple[Any, dict[str, Any]]]:
    """`fn` that also gives back what was shown while it ran: (result, name -> value).

    `for_each_client` shows "cohort" and "messages" (with a leading axis of slots), Fed-SMP "kept" (the coordinates),
    model splitting "transcript" (f32[K + 1, M, d]), and what adds up the clients' shares of noise "perturb" (the
    mechanism's function).

    Args:
      impostor: stands in for what a client has trained; messages are then not kept.
    """

    def both(*args: Any) -> tuple[Any, dict[str, Any]]:
        probe = _Probe(impostor)
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
    return probe is not None and probe.impostor is None


def show(name: str, value: Any) -> None:
    """Shows a value to whoever probes."""
    probe = _ACTIVE.get()
    if probe is not None:
        probe.seen[name] = value


@contextmanager
def client(i: jax.Array) -> Iterator[None]:
    """What is traced inside is done by client i."""
    probe = _ACTIVE.get()
    if probe is not None:
        probe.client = i
    try:
        yield
    finally:
        if probe is not None:
            probe.client = None


def trained(received: Params, model: Params) -> Params:
    """The model that a client goes on with."""
    probe = _ACTIVE.get()
    if probe is None or probe.impostor is None or probe.client is None:
        return model
    return probe.impostor(probe.client, received, model)
