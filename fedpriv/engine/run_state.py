"""What a run has found so far, and all that it needs to go on from there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedpriv.core.complaints import require
from fedpriv.core.types import Metrics
from fedpriv.devices.layout import Strategy
from fedpriv.engine.history import (
    SHARES,
    ClientValues,
    DivergedError,
    Evaluation,
    History,
    add_traffic,
    divergence,
    means,
)
from fedpriv.rounds.one_round import Carried


class Snapshot(NamedTuple):
    """A run between two rounds. Keys follow from seeds and rounds: with the same arguments, it goes on to the bit.

    Attributes:
      round: rounds done.
      carried: the algorithm's state, and the noise and participations that are remembered; NumPy leaves with a leading
        axis of seeds, typed keys as their data.
      sent, received: bits so far, for every seed.
      evaluations: so far, oldest first.
      layout: how the clients were laid out, which decides the order of sums.
      stopped: whether the run is over before its last round.
      not_covered: as in `History`.
    """

    round: int
    carried: Carried
    sent: list[int]
    received: list[int]
    evaluations: list[Evaluation]
    layout: Strategy
    stopped: bool = False
    not_covered: tuple[str, ...] = ()


class RunState:
    """Collects what `simulate` fetches from the device.

    Attributes:
      round: rounds done.
      history: the evaluations so far.
      news: name -> f32[seeds, every], shares of what was not finite in the last rounds, where that is the first time.
      told: whether there was any so far.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        num_clients: int,
        earlier: Snapshot | None = None,
        not_covered: Sequence[str] = (),
    ):
        self.round = earlier.round if earlier else 0
        self.history = History(tuple(seeds), [*earlier.evaluations] if earlier else [])
        before = earlier.not_covered if earlier else ()  # what chose once has chosen
        self.history.not_covered = tuple(dict.fromkeys([*before, *not_covered]))
        self._sent = [*earlier.sent] if earlier else [0] * len(seeds)
        self._received = [*earlier.received] if earlier else [0] * len(seeds)
        self._bits_per_mb = 8e6 * num_clients
        self.news: dict[str, np.ndarray] = {}
        self.told = any(name in e.diagnostics for e in self.history.evaluations for name in SHARES)

    def add(self, seen: tuple, end: int, seconds: float) -> Evaluation:
        """The rounds up to `end`.

        Args:
          seen: (metrics, finite, scores, measures) of a chunk, as NumPy arrays; rounds beyond `end` do not count.
          end: rounds done.
          seconds: wall-clock time of these rounds.

        Raises:
          DivergedError: a model, or its loss on the test examples (any metric, without a loss), became NaN or infinite,
            but for a metric that is undefined.
          ValueError: what was measured on single clients is of other clients for another seed.
        """
        metrics, finite, scores, measures = seen
        rounds, finite = end - self.round, np.array(finite)
        finite[:, rounds - 1] &= ~scores.diverged
        if not finite.all():
            raise DivergedError(divergence(finite, self.round, self.history.seeds), self.history)
        add_traffic(self._sent, "uplink", metrics, rounds)
        add_traffic(self._received, "downlink", metrics, rounds)
        lost = _shares(metrics, rounds)
        diagnostics = metrics.get("diagnostics", {}) | lost
        evaluation = Evaluation(
            end,
            scores.metrics,
            np.array(self._sent) / self._bits_per_mb,
            np.array(self._received) / self._bits_per_mb,
            means(diagnostics, rounds),
            seconds,
            {name: x for name, x in measures.items() if not isinstance(x, ClientValues)},
            {
                kind: _one_list(kind, x)
                for kind, x in measures.items()
                if isinstance(x, ClientValues)
            },
        )
        self.round = end
        self.history.evaluations.append(evaluation)
        self.news, self.told = ({}, True) if self.told else (lost, bool(lost))
        return evaluation

    def snapshot(self, carried: Carried, layout: Strategy, stopped: bool) -> Snapshot:
        """With what is carried on after `self.round` rounds, on the host."""
        evaluations, sent, received = [*self.history.evaluations], [*self._sent], [*self._received]
        ended = stopped, self.history.not_covered
        return Snapshot(self.round, carried, sent, received, evaluations, layout, *ended)


def _one_list(kind: str, values: ClientValues) -> ClientValues:
    """With clients: i32[clients], of i32[seeds, clients]."""
    first = values.clients[0]
    alike = bool((values.clients == first).all())
    require(alike, f"measure[{kind!r}]: clients", values.clients, "give the same for every seed")
    return values._replace(clients=first)


def _shares(metrics: Metrics, rounds: int) -> dict[str, np.ndarray]:
    """Name -> f32[seeds, every], of what was not finite in the first `rounds`, where that is above 0."""
    by_name = {name: metrics["not_finite"][kind] for name, kind in SHARES.items()}
    return {name: shares for name, shares in by_name.items() if shares[:, :rounds].any()}
