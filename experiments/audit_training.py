"""Part of experiments.audit: real training runs, with canaries in them, and judged by who was in them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.audit_mechanisms import refutes
from experiments.config import Entry, Experiment, Ledger, Run
from fedpriv.attacks.bounds import epsilon_estimate, epsilon_one_run
from fedpriv.attacks.canaries import VIEWS, CanaryState, NoPlaceError, with_canaries
from fedpriv.attacks.membership import Membership, infer_membership, losses
from fedpriv.certification.certificate import Looked
from fedpriv.core.types import Example, State
from fedpriv.data.federation import Federation
from fedpriv.devices.layout import Strategy
from fedpriv.engine.simulate import simulate
from fedpriv.privacy import Certificate, Claim, Release
from fedpriv.rounds.algorithm import Algorithm

MOST_RECORDS = 10_000
"""Whose losses are looked at, of members and of others."""


class Canaried(NamedTuple):
    """One algorithm and view, after a run with canaries.

    Attributes:
      name: of the algorithm.
      canaries: number in each run.
      runs: seeds.
      claim, certificate: of the run, at the delta of this audit.
      least: what epsilon is at least, with 95 % confidence (Steinke et al.).
      estimate: of the average canary's epsilon, no bound (after Andrew et al.): it scatters, and exceeds small ones.
    """

    name: str
    canaries: int
    runs: int
    claim: Claim | None
    certificate: Certificate
    least: float
    estimate: float

    @property
    def refuted(self) -> bool:
        return self.least > self.certificate.epsilon

    @property
    def claim_refuted(self) -> bool:
        return refutes(self.least, self.certificate, self.claim)

    @property
    def powerless(self) -> bool:
        """Whether less than a tenth was seen of what is certified, or of what so many guesses can show at most."""
        best = epsilon_one_run(
            np.arange(2 * self.guesses),
            np.arange(2 * self.guesses) >= self.guesses,
            self.certificate.delta,
        )
        return best == 0 or self.least < 0.1 * min(self.certificate.epsilon, best)

    @property
    def guesses(self) -> int:
        return max(1, self.canaries * self.runs // 2)


class Skipped(NamedTuple):
    """An algorithm that no canary fits into, and why."""

    name: str
    reason: str


class Inferred(NamedTuple):
    """Membership inference on the models of a run, one for each seed."""

    name: str
    seeds: tuple[Membership, ...]


def audit_runs(
    experiment: Experiment, config: Run, strategy: Strategy, canaries: int | None
) -> list[Canaried | Skipped]:
    """Every algorithm that hides anything from those who see its models or sums, trained with canaries."""
    found: list[Canaried | Skipped] = []
    ledger = experiment.ledger
    for name, entry in experiment.entries.items():
        release = _hiding(ledger.looked(name))
        try:
            if release and release.mechanism:
                count, per_client = _places(canaries, entry.federations[0], release.unit)
                longest = float(np.max(jax.tree.leaves(release.mechanism.clip_norm)))
                audited = with_canaries(
                    entry.algorithm, count, per_client=per_client, clip_norm=longest
                )
                state = _trained(experiment, entry, audited, config, strategy)
                found += _canaried(name, ledger, config, state)
        except NoPlaceError as error:
            found.append(Skipped(name, str(error)))
    return found


def _hiding(looked: Looked) -> Release | None:
    """What an audit of a run can look at: noise that is added to sums, or to records' gradients."""
    seen = [r for r in looked.releases(1) if r.view in VIEWS and r.mechanism is not None]
    return next((r for r in seen if r.multiplier > 0), None)


def _trained(
    experiment: Experiment, entry: Entry, algorithm: Algorithm, config: Run, strategy: Strategy
) -> State:
    """The state in which a run ends, with a leading axis of seeds."""
    return simulate(
        algorithm,
        experiment.model.init,
        entry.federations,
        experiment.test,
        score=experiment.model.score,
        rounds=config.rounds,
        every=config.rounds,
        seeds=range(config.seeds),
        strategy=strategy,
    ).state


def _canaried(name: str, ledger: Ledger, config: Run, state: CanaryState) -> Iterator[Canaried]:
    present, scores = np.asarray(state.present), np.asarray(state.scores)
    delta = _delta(ledger.delta, present.size)
    ledger = replace(ledger, delta=delta)
    claim = ledger.claim(name, config.rounds)
    for v, view in enumerate(VIEWS):
        yield Canaried(
            name,
            present.shape[1],
            config.seeds,
            claim if claim is not None and claim.view == view else None,
            ledger.certify(name, config.rounds, view=view),
            epsilon_one_run(scores[:, v], present, delta),
            epsilon_estimate(scores[:, v], present, delta),
        )


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


def _delta(delta: float, coins: int) -> float:
    """The one-run bound gives up delta for every canary: more than a hundredth in all would leave nothing to find."""
    return min(delta, 0.01 / coins)


def infer(experiment: Experiment, config: Run, strategy: Strategy) -> list[Inferred]:
    """Trains every algorithm as the config says, and tries to tell its records from the test set's."""
    found = []
    for name, entry in experiment.entries.items():
        state = _trained(experiment, entry, entry.algorithm, config, strategy)
        seeds = []
        for seed in range(config.seeds):
            params = jax.tree.map(lambda leaf, s=seed: jnp.asarray(leaf[s]), state.params)
            members = losses(experiment.model.loss, params, _members(entry, seed))
            others = losses(experiment.model.loss, params, _some(experiment.test, MOST_RECORDS))
            seeds.append(infer_membership(members, others, _rates(len(others))))
        found.append(Inferred(name, tuple(seeds)))
    return found


def _rates(others: int) -> tuple[float, ...]:
    return tuple(rate for rate in (0.1, 0.01, 0.001) if rate * others >= 1)


def _members(entry: Entry, seed: int) -> Example:
    """Records of the clients, at random."""
    federation = entry.federations[seed]
    real = np.arange(federation.capacity) < np.asarray(federation.size)[:, None]
    rows = np.random.default_rng(seed).permutation(np.asarray(federation.rows)[real])
    rows = np.sort(rows[:MOST_RECORDS])
    return jax.tree.map(lambda leaf: leaf[rows], federation.examples)


def _some(examples: Example, most: int) -> Example:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[:most]), examples)
