"""What is seen of the calls of a round beside their sums: diagnostics, traffic, and what was not finite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from fedpriv.compression.codecs import Wire
from fedpriv.core.types import Metrics
from fedpriv.mechanisms.not_finite_counts import Tally
from fedpriv.proof.calls import Calls

NORM = "mean_update_norm"


class CohortMetrics:
    """Those of a round with these calls, gathered while it is traced."""

    def __init__(self, calls: Calls):
        self._calls = calls
        self._wire: Wire | None = None
        self._messages, self._records = Tally(), Tally()

    def of_call(
        self, wire: Wire, seen: Mapping[str, jax.Array], of_sum: Mapping[str, Any]
    ) -> Metrics:
        """Of a call whose messages are of this size: means of what was seen of members, and of the sum."""
        self._wire = wire if self._wire is None else self._wire.beside(wire)
        seen, of_sum = self._calls.of_all((dict(seen), dict(of_sum)))
        size = self._calls.given.members
        most = jnp.maximum(size, 1)
        means = {
            name: jnp.sum(values, 0) / most.astype(values.dtype) for name, values in seen.items()
        }
        if NORM in means:  # of those that are finite, NaN if none is
            lost = ~jnp.isfinite(seen[NORM])
            some = (size - jnp.sum(lost)).astype(means[NORM].dtype)
            of_finite = jnp.sum(jnp.where(lost, 0.0, seen[NORM])) / some
            means[NORM] = jnp.where(jnp.any(lost), of_finite, means[NORM])
        means |= of_sum
        return {"uplink": jax.tree.map(jnp.int32, self._wire), "diagnostics": means}

    def count(self, lost: jax.Array, records: jax.Array) -> None:
        """Counts which messages are not finite, bool[slots], and how many records' gradients of each, i32[slots, 2]."""
        self._messages.add(jnp.stack([jnp.sum(lost).astype(jnp.int32), self._calls.given.members]))
        self._records.add(jnp.sum(records, 0))

    @property
    def not_finite(self) -> dict[str, jax.Array]:
        """The shares f32[] of messages, and of records' gradients, that were NaN or infinite."""
        return {"messages": self._messages.share(), "records": self._records.share()}
