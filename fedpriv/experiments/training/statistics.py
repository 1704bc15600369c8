"""Before training: statistics of the clients' features are released, and the features normalised by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax

import fedpriv as fp
from fedpriv.certification.traced_round import TracedRound
from fedpriv.experiments.config.experiment import Experiment
from fedpriv.experiments.config.settings import Settings
from fedpriv.experiments.config.statistics import Statistics, at_noise
from fedpriv.experiments.runs.statistics import ReleasedStatistics, released_of

MOST_LEAVES = 2**16
"""Of one algorithm's examples: each has a seed of its own."""


def on_normalised(
    experiment: Experiment,
    settings: Settings,
    known: Mapping[str, ReleasedStatistics],
    secret_seed: int | None,
) -> tuple[Experiment, dict[str, ReleasedStatistics]]:
    """The experiment on features normalised by statistics of seed 0's clients, and these statistics.

    All seeds train on these clients: their certificates count statistics of the same ones. Algorithms with the same
    clients share a release; each release has a seed of its own, so that no two share noise.

    Args:
      known: what was released before, where a run goes on; it is not released again.
    """
    entries, found = dict(experiment.entries), dict(known)
    first: dict[Any, str] = {}  # of those that share a release
    for name, entry in experiment.entries.items():
        federation, statistics = entry.federations[0], experiment.ledger.statistics(name)
        assert statistics
        if name in known:  # at the noise that was added, whatever this version would find
            statistics = at_noise(statistics.features, known[name].noise_multiplier)
        leaves = map(id, jax.tree.leaves(federation))
        same = (statistics.features, statistics.noise_multiplier, *leaves)
        of = first.setdefault(same, name)
        if of != name:
            found[name], shared = found[of], entries[of]
            entries[name] = entry._replace(
                federations=shared.federations, test=shared.test, statistics=shared.statistics
            )
            continue
        if name not in known:
            number = len(first) * MOST_LEAVES
            found[name] = _released(experiment, settings, name, number, secret_seed)
        by = found[name].by
        entries[name] = entry._replace(
            federations=[fp.normalised(federation, by=by)] * settings.seeds,
            test=fp.normalised(experiment.test, by=by),
            statistics=partial(_as_planned, statistics),
        )
    return replace(experiment, entries=entries), found


def _as_planned(statistics: Statistics, training: TracedRound) -> Statistics:
    """What was released, which is not planned again for the normalised features."""
    return statistics


def _released(
    experiment: Experiment, settings: Settings, name: str, number: int, secret_seed: int | None
) -> ReleasedStatistics:
    """Of an algorithm's clients.

    Args:
      number: of the first leaf's seed; the next leaf has the next.
    """
    ledger, federation = experiment.ledger, experiment.entries[name].federations[0]
    statistics, alone = ledger.statistics(name), ledger.of_statistics(name, settings.view)
    assert statistics
    assert alone
    options: Any = {"delta": ledger.delta, "view": settings.view, "secret_seed": secret_seed}
    options |= {"noise_multiplier": statistics.noise_multiplier, "unit": statistics.features.unit}
    released = {
        leaf: asked.release(federation, seed=seed, **options)
        for seed, (leaf, asked) in enumerate(statistics.features.asked.items(), number)
    }
    bounds = dict(statistics.features.limits)
    return released_of(released, bounds, statistics.noise_multiplier, alone)
