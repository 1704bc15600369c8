"""What the published code of DP-SCAFFOLD's authors does and their paper, arXiv:2111.09278, does not say.

Read off github.com/maxencenoble/Differential-Privacy-for-Heterogeneous-Federated-Learning, commit ecad8ac. Its
batches, the first s R of a fresh shuffle, are exact subsets, as here. Its optimisers ignore their `weight_decay`, so
that it has no l2 term.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np

import fedpriv as fp
from fedpriv.core.types import Key, Metrics, PyTree, State
from fedpriv.data.datasets import Dataset
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.privacy import Claim
from fedpriv.proof.calls import Calls
from fedpriv.proof.given import CallKeys, Member
from fedpriv.proof.seen import NO_NOISE
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.cohort import Cohort, Summed
from fedpriv.rounds.local_dp_sgd import LocalSteps

ONE_SEED = (
    "all clients of a round draw the same noise, from a seed made of round and step: the difference of two messages "
    "has none, and who knows the code subtracts it"
)
"""Why nothing is certified, towards anybody."""


def with_one_seed(make: Callable[[LocalSteps], Algorithm], local: LocalSteps) -> Algorithm:
    """As DP-SCAFFOLD's authors: `make(local)`, all of whose clients draw the same records and noise in a round.

    Formal guarantees: none, and it says so.
    """
    made = make(local)
    used: Any = local.mechanism
    reason = ONE_SEED if used.noise_multiplier else NO_NOISE
    if isinstance(used, Mechanism):  # the median's has no multiplier to lose
        used = used._replace(certified_multiplier=0.0, reason=reason)
    alike = make(local._replace(mechanism=used))

    def round(key: Key, state: State, cohort: Cohort) -> tuple[State, Metrics]:
        one_key: Any = _Alike(cohort, reason)
        return alike.round(key, state, one_key)

    def claim(rounds: int, delta: float) -> Claim | None:
        found = made.claim(rounds, delta)
        return found and replace(found, sound=False, reasons=(ONE_SEED, *found.reasons))

    return made._replace(round=round, claim=claim)


@dataclass
class _Alike:
    """A cohort whose clients all get one key, and one stream of noise."""

    _cohort: Cohort
    _reason: str

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cohort, name)

    def sum(self, client: Callable[..., Any], key: Key, *, mechanism: Any, **how: Any) -> Summed:
        common, rest = jax.random.split(key)

        def alike(_: Key, shard: Shard, *own: PyTree) -> Any:
            return client(common, shard, *own)

        cohort: Any = copy(self._cohort)
        cohort._calls = calls = copy(cohort._calls)
        calls.over_all = partial(_of_one_stream, calls)
        return cohort.sum(alike, rest, mechanism=fp.unprotected(self._reason), **how)


def _of_one_stream(
    calls: Calls, client: Callable[..., tuple], keys: CallKeys, own: PyTree
) -> tuple[PyTree, PyTree]:
    """As `Calls.over_all`, where all clients draw the same."""

    def alike(member: Member, *mine: PyTree) -> tuple:
        return client(member._replace(hidden=jax.random.fold_in(keys.hidden, 0)), *mine)

    return Calls.over_all(calls, alike, keys, own)


def ranged_by_records(data: Dataset, clients: int) -> Dataset:
    """Raw features f32[N, d, 1, 1] of equally many records per client as `authors.record_ranges` says, at unit norm.

    Raises:
      ValueError: a client has fewer training records than there are features.
    """
    train, test = (
        part["image"].astype(np.float64).reshape(clients, -1, part["image"].shape[1])
        for part in (data.train, data.test)
    )
    x, records = np.concatenate([train, test], axis=1), train.shape[1]
    if records < x.shape[2]:
        raise ValueError(
            f"records: {records} of a client for training are fewer than its {x.shape[2]} features, which "
            "authors.record_ranges takes a record for each of; give more"
        )
    for d in range(x.shape[2]):
        low, high = (extreme(x[:, d], axis=1)[:, None] for extreme in (np.min, np.max))
        x[:, :, d] = (x[:, :, d] - low) / (high - low)
    x = (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)

    def part(of: dict[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
        return of | {"image": rows.reshape(of["image"].shape)}

    return data._replace(
        train=part(data.train, x[:, :records]), test=part(data.test, x[:, records:])
    )
