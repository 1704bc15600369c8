"""Trains an entry of an experiment once per seed, as the launcher does, for what is attacked afterwards."""

from __future__ import annotations

from experiments.base.time_left import Remaining
from experiments.config.experiment import Entry, Experiment
from experiments.config.settings import Settings
from fedpriv.core.types import State
from fedpriv.devices.layout import Strategy
from fedpriv.engine.simulate import simulate
from fedpriv.rounds.algorithm import Algorithm

PARTS = 5  # of a training, each of which is timed


def trained(
    experiment: Experiment,
    entry: Entry,
    algorithm: Algorithm,
    settings: Settings,
    strategy: Strategy,
    remaining: Remaining,
) -> State:
    """The state in which a run ends, with a leading axis of seeds."""
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
        on_evaluation=lambda e: remaining.advance((e.round - 1) % every + 1, e.seconds),
    ).state
