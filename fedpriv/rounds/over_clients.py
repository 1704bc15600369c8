"""What is done for each client that is drawn, with its records, laid out on the machine."""

from __future__ import annotations

from collections.abc import Callable

import jax

from fedpriv.core.types import PyTree
from fedpriv.data.federation import Federation
from fedpriv.devices.layout import sum_over
from fedpriv.rounds.samplers import Answer, Draw


def over_clients(
    fn: Callable[..., tuple[PyTree, PyTree]],
    drawn: Draw,
    federation: Federation,
    *per_client: PyTree,
) -> tuple[PyTree, PyTree]:
    """Runs `fn(i, records, size, answer, *own)` for each client i drawn; `own` is its slice of `per_client`.

    Args:
      per_client: leaves [slots, ...].

    Returns:
      (the sum over the clients of the first thing `fn` returns, the second thing stacked ([slots, ...], zeros in empty
      slots)).
    """
    records = federation.records(drawn.ids, drawn.mask)

    def client(i: jax.Array, answer: Answer, *own: PyTree) -> tuple[PyTree, PyTree]:
        return fn(i, records(i), federation.size[i], answer, *own)

    return sum_over(client, drawn.mask, drawn.ids, drawn.answer, *per_client)
