"""Audits trained models by telling members from others."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.attacks.membership import Membership, infer_membership, losses
from fedpriv.core.types import Example
from fedpriv.devices.layout import Strategy
from fedpriv.experiments.attacks.audit.one_run import trained
from fedpriv.experiments.base.time_left import Remaining
from fedpriv.experiments.config.experiment import Experiment
from fedpriv.experiments.config.ledger import Entry
from fedpriv.experiments.config.settings import Settings

MOST_RECORDS = 10_000
"""Whose losses are looked at, of members and of others."""


class Inferred(NamedTuple):
    """Membership inference on the models of a run, one for each seed."""

    name: str
    seeds: tuple[Membership, ...]


def infer(experiment: Experiment, settings: Settings, strategy: Strategy) -> list[Inferred]:
    """Trains every algorithm as the config says, and tries to tell its records from the test set's."""
    found = []
    outside = jax.tree.map(lambda leaf: jnp.asarray(leaf[:MOST_RECORDS]), experiment.test)
    remaining = Remaining("runs without canaries", len(experiment.entries) * settings.rounds)
    for name, entry in experiment.entries.items():
        state = trained(experiment, entry, entry.algorithm, settings, strategy, remaining)
        seeds = []
        for seed in range(settings.seeds):
            params = jax.tree.map(lambda leaf, s=seed: jnp.asarray(leaf[s]), state.params)
            members = losses(experiment.model.loss, params, _members(entry, seed))
            others = losses(experiment.model.loss, params, outside)
            rates = tuple(rate for rate in (0.1, 0.01, 0.001) if rate * len(others) >= 1)
            seeds.append(infer_membership(members, others, rates))
        found.append(Inferred(name, tuple(seeds)))
    return found


def _members(entry: Entry, seed: int) -> Example:
    """Records of the clients, at random."""
    federation = entry.federations[seed]
    rows = np.random.default_rng(seed).permutation(federation.client_rows.on_host().rows)
    rows = np.sort(rows[:MOST_RECORDS])
    return jax.tree.map(lambda leaf: leaf[rows], federation.examples)
