"""What a run has found so far, and all that it needs to go on from there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedpriv.core.types import State
from fedpriv.devices.layout import Strategy
from fedpriv.engine.history import (
    DivergedError,
    Evaluation,
    History,
    add_traffic,
    divergence,
    means,
)


class Snapshot(NamedTuple):
    """A run between two rounds. Keys follow from seeds and rounds: with the same arguments, it goes on to the bit.

    Attributes:
      round: rounds done.
      state: the algorithm's; NumPy leaves with a leading axis of seeds, typed keys as their data.
      sent, received: bits so far, for every seed.
      evaluations: so far, oldest first.
      layout: how the clients were laid out, which decides the order of sums.
      stopped: whether the run is over before its last round.
    """

    round: int
    state: State
    sent: list[int]
    received: list[int]
    evaluations: list[Evaluation]
    layout: Strategy
    stopped: bool = False


class RunState:
    """Collects what `simulate` fetches from the device.

    Attributes:
      round: rounds done.
      history: the evaluations so far.
    """

    def __init__(self, seeds: Sequence[int], num_clients: int, earlier: Snapshot | None = None):
        self.round = earlier.round if earlier else 0
        self.history = History(tuple(seeds), [*earlier.evaluations] if earlier else [])
        self._sent = [*earlier.sent] if earlier else [0] * len(seeds)
        self._received = [*earlier.received] if earlier else [0] * len(seeds)
        self._bits_per_mb = 8e6 * num_clients

    def add(self, seen: tuple, end: int, seconds: float) -> Evaluation:
        """The rounds up to `end`.

        Args:
          seen: (metrics, finite, scores, measures) of a chunk, as NumPy arrays; rounds beyond `end` do not count.
          end: rounds done.
          seconds: wall-clock time of these rounds.

        Raises:
          DivergedError: a model, or its loss on the test examples (any metric, without a loss), became NaN or infinite.
        """
        metrics, finite, scores, measures = seen
        rounds, finite = end - self.round, np.array(finite)
        judged = [scores["loss"]] if "loss" in scores else scores.values()
        finite[:, rounds - 1] &= np.isfinite([*judged]).all(0)
        if not finite.all():
            raise DivergedError(divergence(finite, self.round, self.history.seeds), self.history)
        add_traffic(self._sent, "uplink", metrics, rounds)
        add_traffic(self._received, "downlink", metrics, rounds)
        evaluation = Evaluation(
            end,
            scores,
            np.array(self._sent) / self._bits_per_mb,
            np.array(self._received) / self._bits_per_mb,
            means(metrics.get("diagnostics", {}), rounds),
            seconds,
            measures,
        )
        self.round = end
        self.history.evaluations.append(evaluation)
        return evaluation

    def snapshot(self, state: State, layout: Strategy, stopped: bool) -> Snapshot:
        """With the state after `self.round` rounds, on the host."""
        evaluations, sent, received = [*self.history.evaluations], [*self._sent], [*self._received]
        return Snapshot(self.round, state, sent, received, evaluations, layout, stopped)
