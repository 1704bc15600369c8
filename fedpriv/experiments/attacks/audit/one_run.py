"""Audits a training by many canaries in one run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fedpriv.attacks.canaries import CanaryState, with_canaries
from fedpriv.attacks.canary_places import NoPlaceError
from fedpriv.attacks.mechanism_audit import Scores
from fedpriv.attacks.one_run import Method, epsilon_one_run, p_value_one_run
from fedpriv.core.types import State
from fedpriv.data.federation import Federation
from fedpriv.devices.layout import Strategy
from fedpriv.engine.simulate import simulate
from fedpriv.experiments.attacks.audit.canary import SEEN, seen_of
from fedpriv.experiments.attacks.audit.mechanisms import LIMITS, exact_pair, parts_of
from fedpriv.experiments.attacks.audit.row import LIKELY, Row, Unaudited, rows_of
from fedpriv.experiments.base.time_left import Remaining
from fedpriv.experiments.config.experiment import Experiment
from fedpriv.experiments.config.ledger import Entry, Ledger
from fedpriv.experiments.config.settings import Settings
from fedpriv.privacy import Certificate
from fedpriv.rounds.algorithm import Algorithm

APART = 2**27
"""Seed of draws of the exact pair, from those of other audits."""
ANY: Method = "epsilon_delta"
"""Holds for any mechanism."""
PARTS = 5  # of a training, each of which is timed


def audit_one_run(
    experiment: Experiment,
    settings: Settings,
    strategy: Strategy,
    canaries: int | None,
    deltas: tuple[float, ...],
) -> tuple[list[Row], list[Unaudited]]:
    """Audits by one run every algorithm that hides anything from those who see its models or sums, with canaries."""
    rows: list[Row] = []
    skipped = []
    if canaries is not None and _most(canaries * settings.seeds, max(deltas)) <= 0:
        raise ValueError(
            f"--canaries: {canaries} in each of {settings.seeds} run(s) bound nothing at delta {max(deltas):.2g} "
            "even if all are told apart; give hundreds, more --seeds, or smaller --deltas"
        )
    remaining = Remaining("runs with canaries", len(experiment.entries) * settings.rounds)
    for name, entry in experiment.entries.items():
        seen = seen_of(experiment.ledger, name, settings.rounds)
        if seen is None:
            remaining.skip(settings.rounds)
            continue
        count, per_client = _places(canaries, entry.federations[0], seen.unit)
        try:
            played = with_canaries(entry.algorithm, count, seen, per_client=per_client)
            state = trained(experiment, entry, played, settings, strategy, remaining)
        except NoPlaceError as error:
            skipped.append(Unaudited((name,), str(error)))
        else:
            rows += _rows(name, experiment.ledger, settings, state, deltas)
    return rows, skipped


def trained(
    experiment: Experiment,
    entry: Entry,
    algorithm: Algorithm,
    settings: Settings,
    strategy: Strategy,
    remaining: Remaining,
) -> State:
    """The state in which a run with canaries ends, with a leading axis of seeds."""
    every = -(-settings.rounds // PARTS)
    return simulate(
        algorithm,
        experiment.model.init,
        entry.federations,
        experiment.test,
        score=experiment.model.score,
        rounds=settings.rounds,
        every=every,
        seeds=range(settings.seeds),
        strategy=strategy,
        record=lambda e: remaining.advance((e.round - 1) % every + 1, e.seconds),
        progress=False,
    ).state


def _rows(
    name: str, ledger: Ledger, settings: Settings, state: CanaryState, deltas: tuple[float, ...]
) -> Iterator[Row]:
    present, scores = np.asarray(state.present), np.asarray(state.scores)
    for v, view in enumerate(SEEN):  # of many canaries the last model is not scored
        draws = (LIMITS * present.size, APART)
        exact = exact_pair(ledger.trace(name), view, settings.rounds, *draws)
        seen = _Guesses(scores[:, v], present, exact)
        yield from rows_of(seen, name, view, ledger, settings.rounds, deltas)


class _Guesses(NamedTuple):
    """What a view saw of the canaries, by f-DP for any mechanism; as `Seen`.

    Attributes:
      scores: f32[seeds, canaries].
      present: bool[seeds, canaries].
      exact: draws of the exact pair.
    """

    scores: np.ndarray
    present: np.ndarray
    exact: Scores | None

    @property
    def method(self) -> str:
        return "f-DP in one run"

    @property
    def about(self) -> dict[str, Any]:
        return {"canaries": self.present.shape[1], "seeds": self.present.shape[0]}

    def bound(self, delta: float, significance: float) -> float:
        return epsilon_one_run(self.scores, self.present, delta, significance, method=ANY)

    def limits(self, delta: float) -> list[float]:
        """As if canaries did not disturb each other."""
        there = self.present.ravel()
        each = [np.where(there, one.present, one.absent) for one in parts_of(self.exact)]
        return [epsilon_one_run(one, there, delta, LIKELY, method=ANY) for one in each]

    def most(self, delta: float, limit: float | None) -> float:
        return _most(self.present.size, delta)

    def beside(self, certificate: Certificate) -> dict[str, Any]:
        """As if the mechanism were Gaussian, by Steinke et al., and how probable so many right guesses are."""
        own, delta = (self.scores, self.present), certificate.delta
        return {
            "as_gaussian": epsilon_one_run(*own, delta, LIKELY, method="f_dp"),
            "steinke": epsilon_one_run(*own, delta, LIKELY, method="steinke"),
            "p_value": p_value_one_run(*own, certificate.profile()),
        }


def _most(canaries: int, delta: float) -> float:
    """The bound that so many give if all of them are told apart."""
    guesses = np.arange(2 * max(1, canaries // 2))
    return epsilon_one_run(guesses, guesses >= len(guesses) // 2, delta, method=ANY)


def _places(canaries: int | None, federation: Federation, unit: str) -> tuple[int, int]:
    """(canaries, records of a client that are canaries, 0 where clients are).

    By default half the clients, 500 at most; or 500 records, at most 10 of a client.
    """
    clients = federation.num_clients
    if unit == "client":
        return canaries or max(1, min(500, clients // 2)), 0
    most = min(10, int(np.min(federation.size)), math.ceil(500 / clients))
    per_client = math.ceil(canaries / clients) if canaries else most
    return canaries or per_client * clients, per_client
