"""Audits training runs by canaries in them, and trained models by telling members from others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.attacks.audit.row import Row, Unaudited
from experiments.base.time_left import Remaining
from experiments.config.experiment import Entry, Experiment, Ledger
from experiments.config.settings import Settings
from fedpriv.attacks.bounds import epsilon_estimate, epsilon_one_run
from fedpriv.attacks.canaries import VIEWS, CanaryState, NoPlaceError, with_canaries
from fedpriv.attacks.membership import Membership, infer_membership, losses
from fedpriv.core.types import Example, State
from fedpriv.data.federation import Federation
from fedpriv.devices.layout import Strategy
from fedpriv.engine.simulate import simulate
from fedpriv.rounds.algorithm import Algorithm

PARTS = 5  # of a training, each of which is timed
MOST_RECORDS = 10_000
"""Whose losses are looked at, of members and of others."""


class Inferred(NamedTuple):
    """Membership inference on the models of a run, one for each seed."""

    name: str
    seeds: tuple[Membership, ...]


def audit_runs(
    experiment: Experiment, settings: Settings, strategy: Strategy, canaries: int | None
) -> tuple[list[Row], list[Unaudited]]:
    """Every algorithm that hides anything from those who see its models or sums, trained with canaries."""
    rows: list[Row] = []
    skipped = []
    if canaries is not None and _most(canaries * settings.seeds, experiment.delta) <= 0:
        raise ValueError(
            f"--canaries: {canaries} in each of {settings.seeds} run(s) bound nothing even if all are told apart; give "
            "more, or more --seeds: 40 in all, better hundreds"
        )
    remaining = Remaining("runs with canaries", len(experiment.entries) * settings.rounds)
    for name, entry in experiment.entries.items():
        seen = [r for r in experiment.ledger.trace(name).releases(1) if r.view in VIEWS]
        noisy = [r for r in seen if r.mechanism is not None and r.multiplier > 0]
        if not noisy:
            remaining.skip(settings.rounds)
            continue
        count, per_client = _places(canaries, entry.federations[0], noisy[0].unit)
        longest = float(np.max(jax.tree.leaves(noisy[0].mechanism.clip_norm)))
        try:
            given = {"per_client": per_client, "clip_norm": longest}
            audited = with_canaries(entry.algorithm, count, **given)
            state = _trained(experiment, entry, audited, settings, strategy, remaining)
        except NoPlaceError as error:
            skipped.append(Unaudited((name,), str(error)))
        else:
            rows += _canaried(name, experiment.ledger, settings, state)
    return rows, skipped


def _trained(
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


def _canaried(name: str, ledger: Ledger, settings: Settings, state: CanaryState) -> Iterator[Row]:
    """The one-run bound (Steinke et al.) and an estimate of the average canary's epsilon (after Andrew et al.).

    The bound gives up delta for every canary: more than a hundredth in all would leave nothing to find.
    """
    present, scores = np.asarray(state.present), np.asarray(state.scores)
    delta = _delta(present.size, ledger.delta)
    ledger = replace(ledger, delta=delta)
    claim = ledger.claim(name, settings.rounds)
    most = _most(present.size, ledger.delta)
    for v, view in enumerate(VIEWS):
        least = epsilon_one_run(scores[:, v], present, delta)
        estimate = epsilon_estimate(scores[:, v], present, delta)
        yield Row(
            (name,),
            (view,),
            claim if claim is not None and claim.view == view else None,
            ledger.certify(name, settings.rounds, view=view),
            least=least,
            surely=least,
            most=most,
            about={"canaries": present.shape[1], "seeds": settings.seeds},
            audited={"significance": 0.05, "estimate": estimate},
        )


def _delta(canaries: int, delta: float) -> float:
    return min(delta, 0.01 / canaries)


def _most(canaries: int, delta: float) -> float:
    """The bound that so many give if all of them are told apart."""
    guesses = np.arange(2 * max(1, canaries // 2))
    return epsilon_one_run(guesses, guesses >= len(guesses) // 2, _delta(canaries, delta))


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


def infer(experiment: Experiment, settings: Settings, strategy: Strategy) -> list[Inferred]:
    """Trains every algorithm as the config says, and tries to tell its records from the test set's."""
    found = []
    outside = jax.tree.map(lambda leaf: jnp.asarray(leaf[:MOST_RECORDS]), experiment.test)
    remaining = Remaining("runs without canaries", len(experiment.entries) * settings.rounds)
    for name, entry in experiment.entries.items():
        state = _trained(experiment, entry, entry.algorithm, settings, strategy, remaining)
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
    real = np.arange(federation.capacity) < np.asarray(federation.size)[:, None]
    rows = np.random.default_rng(seed).permutation(np.asarray(federation.rows)[real])
    rows = np.sort(rows[:MOST_RECORDS])
    return jax.tree.map(lambda leaf: leaf[rows], federation.examples)
