"""Audits a training by many canaries in one run."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from experiments.attacks.audit.canary import SEEN, bounded, release_of
from experiments.attacks.audit.exact_pair import LIMITS, exact_pair, of_limits
from experiments.attacks.audit.row import LIKELY, SURE, Row, Unaudited
from experiments.attacks.audit.training import trained
from experiments.base.time_left import Remaining
from experiments.config.experiment import Experiment, Ledger
from experiments.config.settings import Settings
from fedpriv.attacks.canaries import CanaryState, NoPlaceError, with_canaries
from fedpriv.attacks.estimates import gaussian_estimate
from fedpriv.attacks.mechanism_audit import Scores
from fedpriv.attacks.one_run import Method, epsilon_one_run, p_value_one_run
from fedpriv.data.federation import Federation
from fedpriv.devices.layout import Strategy

APART = 2**27
"""Seed of draws of the exact pair, from those of other audits."""
ANY: Method = "epsilon_delta"
"""Holds for any mechanism."""


def audit_one_run(
    experiment: Experiment,
    settings: Settings,
    strategy: Strategy,
    canaries: int | None,
    deltas: tuple[float, ...],
) -> tuple[list[Row], list[Unaudited]]:
    """Every algorithm that hides anything from those who see its models or sums, trained with canaries."""
    rows: list[Row] = []
    skipped = []
    if canaries is not None and _most(canaries * settings.seeds, max(deltas)) <= 0:
        raise ValueError(
            f"--canaries: {canaries} in each of {settings.seeds} run(s) bound nothing at delta {max(deltas):.2g} "
            "even if all are told apart; give hundreds, more --seeds, or smaller --deltas"
        )
    remaining = Remaining("runs with canaries", len(experiment.entries) * settings.rounds)
    for name, entry in experiment.entries.items():
        release = release_of(experiment.ledger, name, settings.rounds)
        if release is None:
            remaining.skip(settings.rounds)
            continue
        count, per_client = _places(canaries, entry.federations[0], release.unit)
        try:
            played = with_canaries(entry.algorithm, count, release, per_client=per_client)
            state = trained(experiment, entry, played, settings, strategy, remaining)
        except NoPlaceError as error:
            skipped.append(Unaudited((name,), str(error)))
        else:
            rows += _rows(name, experiment.ledger, settings, state, deltas)
    return rows, skipped


def _rows(
    name: str, ledger: Ledger, settings: Settings, state: CanaryState, deltas: tuple[float, ...]
) -> Iterator[Row]:
    """By f-DP for any mechanism; as if it were Gaussian, by Steinke et al., and an estimate beside it."""
    present, scores = np.asarray(state.present), np.asarray(state.scores)
    for v, view in enumerate(SEEN):  # of many canaries the last model is not scored
        draws = (LIMITS * present.size, APART)
        exact = exact_pair(ledger.trace(name), view, settings.rounds, *draws)
        for delta in deltas:
            said = bounded(ledger, name, settings.rounds, view, delta)
            own = scores[:, v], present
            limits = _limits(exact, present, delta)
            least = epsilon_one_run(*own, delta, LIKELY, method=ANY)
            yield Row(
                (name,),
                (view,),
                said.claim,
                said.certificate,
                least=least,
                surely=epsilon_one_run(*own, delta, SURE, method=ANY),
                most=_most(present.size, delta),
                about={"canaries": present.shape[1], "seeds": settings.seeds},
                audited={
                    "method": "f-DP in one run",
                    "significance": LIKELY,
                    **of_limits(least, limits),
                    "as_gaussian": epsilon_one_run(*own, delta, LIKELY, method="f_dp"),
                    "steinke": epsilon_one_run(*own, delta, LIKELY, method="steinke"),
                    "p_value": p_value_one_run(*own, said.certificate.profile()),
                    "estimate": gaussian_estimate(*own, delta)._asdict(),
                },
            )


def _limits(exact: Scores | None, present: np.ndarray, delta: float) -> list[float]:
    """The same bound of as many draws of the exact pair, as if canaries did not disturb each other, several times."""
    if exact is None:
        return []
    parts = (np.split(side, LIMITS) for side in (exact.present, exact.absent))
    there = present.ravel()
    return [
        epsilon_one_run(np.where(there, on, off), there, delta, LIKELY, method=ANY)
        for on, off in zip(*parts, strict=True)
    ]


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
