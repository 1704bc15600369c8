"""A batch in parts, one after another: what is computed on the way is in memory for one part alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.core.arguments import Count, checked
from fedpriv.core.complaints import require
from fedpriv.core.trees import widened
from fedpriv.core.types import Example, Params, PyTree
from fedpriv.mechanisms.not_finite_counts import add_records, counted_records

Sum = TypeVar("Sum")


def checked_micro(micro: Any, batch_size: int | None = None) -> int | None:
    """`micro`, the records of a part; None: batches are not divided.

    Raises:
      ValueError: below 1, or above the batch size.
    """
    micro = checked("micro", micro, Count | None)
    if micro is not None and batch_size is not None:
        remedy = f"a batch has {batch_size}; give fewer, or leave it out"
        require(micro <= batch_size, "micro", micro, remedy)
    return micro


def sum_of_parts(
    of_part: Callable[[Example, jax.Array], tuple[Sum, PyTree]],
    start: Sum,
    batch: Example,
    mask: jax.Array,
    micro: int,
) -> tuple[Sum, PyTree]:
    """(`start` and the first of what `of_part(part, its mask)` gives, added up; the second, leaves [parts, ...]).

    Args:
      of_part: takes `micro` records; the last part is filled up with the batch's first ones, which its mask leaves out.
      start: zeros in the types of the sum.
      batch: leaves [B, ...], of arrays or keys.
      mask: bool[B].
      micro: records of a part, below B.
    """

    def divided(leaf: jax.Array, filling: jax.Array) -> jax.Array:
        whole = jnp.concatenate([leaf, filling[: -leaf.shape[0] % micro]])
        return whole.reshape(-1, micro, *leaf.shape[1:])

    def add(total: Sum, part: tuple[Example, jax.Array]) -> tuple[Sum, PyTree]:
        own, beside = of_part(*part)
        return jax.tree.map(jnp.add, total, own), beside

    parts = jax.tree.map(lambda leaf: divided(leaf, leaf), batch)
    return lax.scan(add, start, (parts, divided(mask, jnp.zeros_like(mask))))


def mean_of_parts(
    gradient: Callable[[Params, Example, jax.Array], Params], micro: int | None
) -> Callable[[Params, Example, jax.Array], Params]:
    """`gradient`, a mean over the records of a batch, as the mean of its parts, added up in 32 bits or more.

    A part counts as many times as `mask` leaves records in it. The same up to rounding.
    """
    if micro is None:
        return gradient

    def of_parts(params: Params, batch: Example, mask: jax.Array) -> Params:
        if mask.shape[0] <= micro:
            return gradient(params, batch, mask)

        # What a gradient adds for no record, such as a control variate, is the mean of its parts, too.
        empty = ~jnp.any(mask)

        def of_part(part: Example, there: jax.Array) -> tuple[Params, jax.Array]:
            count = jnp.where(empty, 1, jnp.sum(there))
            with counted_records() as seen:
                mean = widened(gradient(params, part, there))
            total = jax.tree.map(lambda g: jnp.where(count > 0, g * count.astype(g.dtype), 0), mean)
            return total, seen.total()

        start = jax.tree.map(jnp.zeros_like, widened(params))
        total, lost = sum_of_parts(of_part, start, batch, mask, micro)
        add_records(jnp.sum(lost, 0))
        most = jnp.where(empty, lost.shape[0], jnp.sum(mask))
        return jax.tree.map(lambda s, p: (s / most.astype(s.dtype)).astype(p.dtype), total, params)

    return of_parts
