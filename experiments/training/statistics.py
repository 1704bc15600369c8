"""Before training: statistics of the clients' features are released, and the features normalised by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from experiments.config.experiment import Entry, Experiment
from experiments.config.settings import MOST_SEEDS, Settings
from experiments.config.statistics import Statistics
from experiments.runs.statistics import Moments, ReleasedStatistics
from fedpriv.core.arguments import require
from fedpriv.data.federation import Federation
from fedpriv.devices.layout import Strategy
from fedpriv.engine.simulate import simulate


def check(experiment: Experiment) -> None:
    """Raises ValueError: statistics are not released of what an algorithm trains on."""
    for name, entry in experiment.entries.items():
        remedy = "statistics are of a Federation in memory; leave statistics out"
        require(isinstance(entry.federations[0], Federation), name, entry.federations[0], remedy)


def on_normalised(
    experiment: Experiment,
    settings: Settings,
    known: Mapping[str, ReleasedStatistics],
    strategy: Strategy,
    secret_seed: int | None,
) -> tuple[Experiment, dict[str, ReleasedStatistics]]:
    """The experiment on features normalised by statistics of seed 0's clients, and these statistics.

    Algorithms with the same clients share a release. Each has a seed of its own, which no training has, so that no two
    share noise.

    Args:
      known: what was released before, where a run goes on; it is not released again.
    """
    entries, found = dict(experiment.entries), dict(known)
    first: dict[Any, str] = {}  # of those that share a release
    for name, entry in experiment.entries.items():
        assert entry.statistics
        federation = entry.federations[0]
        same = (*map(id, jax.tree.leaves(federation)), entry.statistics.noise_multiplier)
        of = first.setdefault(same, name)
        if of != name:
            found[name], shared = found[of], entries[of]
            entries[name] = entry._replace(federations=shared.federations, test=shared.test)
            continue
        if name not in found:
            alone = experiment.ledger.of_statistics(name, settings.view)
            seeds = [MOST_SEEDS + len(first) - 1]
            options: Any = {"seeds": seeds, "secret_seed": secret_seed, "strategy": strategy}
            found[name] = _released(entry.statistics, federation, alone, **options)
        by = found[name]
        normalised = replace(federation, examples=_normalised(federation.examples, by))
        entries[name] = entry._replace(
            federations=[normalised] * settings.seeds, test=_normalised(experiment.test, by)
        )
    return replace(experiment, entries=entries), found


def _released(statistics: Statistics, federation: Federation, alone: Any, **options: Any) -> ReleasedStatistics:
    algorithm, rounds, params = statistics.run
    done = simulate(algorithm, params, federation, federation.examples, score=lambda m, e: {"loss": (m * 0).sum()}, rounds=rounds, **options)
    low, high = statistics.bounds
    m = np.asarray(done.params(), np.float64) + 0.5
    size = len(m)
    error = (size ** 0.5 / 2) * statistics.noise_multiplier / federation.num_clients
    (name,) = statistics.features
    mean, square = np.split(m, 2)
    wide = high - low
    variance = np.maximum(square - mean**2, 1e-3) * wide**2
    one = tuple([error * wide] * len(mean))
    mo = Moments(tuple(map(float, mean * wide + low)), tuple(map(float, variance)), one, one)
    return ReleasedStatistics({name: mo}, statistics.bounds, statistics.noise_multiplier, alone)


def _normalised(examples: Any, by: ReleasedStatistics) -> Any:
    made = dict(examples)
    for name, of in by.features.items():
        made[name] = ((np.asarray(examples[name], np.float32) - np.float32(of.mean)) / np.sqrt(np.float32(of.variance)))
    return made
