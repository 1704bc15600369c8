"""Budgets: the noise with which a config's algorithms cost one epsilon, and the rounds that an epsilon allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

from experiments.base.json_values import flat, plain
from experiments.config.experiment import Entry, Experiment, Ledger
from experiments.config.made import ledger_of
from experiments.config.modules import Config
from experiments.config.settings import Settings
from fedpriv.certification.calibration import (
    UnreachableError,
    calibrate_noise,
    calibrate_rounds,
    calibrate_together,
)
from fedpriv.core.arguments import require
from fedpriv.privacy import Release
from fedpriv.rounds.algorithm import Algorithm

Made = TypeVar("Made", Experiment, Ledger)
LedgerOf = Callable[[Any], Ledger]  # of the settings' own type

MUCH = (1e3, 1e6)  # noise with which whatever has a finite epsilon has one
CLOSE = 1e-3  # relative: so little below the target, another algorithm's noise will do


class Solved(NamedTuple):
    """A noise that was found, and what it was found for: with equal releases, epsilons are equal."""

    noise: float
    target: tuple[Any, ...]
    releases: tuple[Release, ...]


def solved(
    module: Config, settings: Settings, known: list[Solved] | None = None
) -> dict[str, float]:
    """The noise of each algorithm for `target_epsilon`, where there is one; not of those that have no epsilon at all.

    Args:
      known: what was found for other settings, where what is found here is added.

    Raises:
      ValueError: no noise reaches the target, or the config does not say how to change it.
    """
    found: dict[str, float] = {}
    known = [] if known is None else known
    if settings.target_epsilon is None:
        return found
    for name in _algorithms(module, settings):
        own = only(settings, [name])
        ledger_at = cache(partial(_ledger_at, module, own, name))  # each traces a round, once
        same = (s.noise for s in known if _seen(ledger_at, own, name, s.noise) == s)
        if (noise := next(same, None)) is None:
            epsilon_at = partial(_epsilon, ledger_at, own, name)
            alike = (s for s in dict.fromkeys(found.values()) if _reached(own, epsilon_at(s)))
            if (noise := next(alike, None)) is None:
                if not any(math.isfinite(epsilon_at(much)) for much in MUCH):
                    continue
                noise = _solve(partial(ledger_of, module), own, name)
            known.append(_seen(ledger_at, own, name, noise))
        found[name] = noise
    remedy = f"none of {', '.join(_algorithms(module, settings))} has an epsilon to share; name one that adds noise"
    require(bool(found) or settings.statistics is None, "statistics", settings.statistics, remedy)
    return found


def _ledger_at(module: Config, settings: Settings, name: str, noise: float) -> Ledger:
    return ledger_of(module, settings.with_noise(name, noise))


def _seen(
    ledger_at: Callable[[float], Ledger], settings: Settings, name: str, noise: float
) -> Solved:
    ledger = ledger_at(noise)
    target = (settings.target_epsilon, settings.view, ledger.delta)
    return Solved(noise, target, ledger.releases(name, settings.rounds))


def _algorithms(module: Config, settings: Settings) -> Iterable[str]:
    return getattr(settings, "algorithms", None) or ledger_of(module, settings).entries


def only(settings: Settings, names: Iterable[str]) -> Settings:
    """The settings for these algorithms alone, for which a noise is solved, where they say which there are."""
    chosen: dict[str, Any] = {"algorithms": tuple(names)} if hasattr(settings, "algorithms") else {}
    return replace(settings, **chosen)


def _epsilon(
    ledger_at: Callable[[float], Ledger], settings: Settings, name: str, noise: float
) -> float:
    return ledger_at(noise).certify(name, settings.rounds, view=settings.view).epsilon


def _reached(settings: Settings, epsilon: float) -> bool:
    target = settings.target_epsilon or 0.0
    return target * (1 - CLOSE) < epsilon <= target


def _solve(ledger_of: LedgerOf, settings: Settings, name: str) -> float:
    target = settings.target_epsilon or 0.0
    try:
        return noise_for(ledger_of, settings, name, epsilon=target, view=settings.view)
    except UnreachableError as error:
        raise ValueError(
            f"target_epsilon: {name} cannot reach {target:g} ({error}); choose another, or leave {name} out"
        ) from None


def noise_for(ledger_of: LedgerOf, settings: Settings, name: str, **target: Any) -> float:
    """The noise with which all rounds of an algorithm reach a target, see `fp.calibrate_noise`.

    Where statistics are released before, training gets what these leave, see `fp.calibrate_together`.
    """
    start = ledger_of(settings.with_noise(name, 1.0))
    _, *shapes = start.of(name)
    rounds, statistics = settings.rounds, start.statistics(name)

    def algorithm(noise: float) -> Algorithm:
        return ledger_of(settings.with_noise(name, noise)).of(name)[0]

    if statistics is None:
        return calibrate_noise(algorithm, *shapes, rounds=rounds, delta=start.delta, **target)
    return calibrate_together(
        lambda noise: [*statistics.runs, (algorithm(noise), rounds)],
        *shapes,
        delta=start.delta,
        **target,
    )


def turned(settings: Settings, name: str, noise: float) -> dict[str, Any]:
    """The fields in which an algorithm's noise is given, with their values."""
    here, there = (flat(plain(settings.with_noise(name, n))) for n in (noise, 2 * noise))
    return {field: value for field, value in here.items() if there[field] != value}


def made(make: Callable[[Any], Made], settings: Settings, noise: Mapping[str, float]) -> Made:
    """What `make` (a `build`, or a ledger) makes of the settings, each algorithm with the noise solved for it."""
    if not noise:
        return make(settings)
    names = getattr(settings, "algorithms", None) or list(make(settings).entries)
    parts: list[Made] = []
    entries: dict[str, Entry] = {}
    for own, members in _alike(settings, names, noise):
        parts.append(make(only(own, members)))
        for name in members:
            said = turned(settings, name, noise[name]) if name in noise else {}
            entries[name] = parts[-1].entries[name]._replace(solved=said)
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    return replace(parts[0], entries={name: entries[name] for name in names}, notes=notes)


def _alike(
    settings: Settings, names: Sequence[str], noise: Mapping[str, float]
) -> list[tuple[Settings, list[str]]]:
    """The different settings that the algorithms need, and who needs them."""
    found: list[tuple[Settings, list[str]]] = []
    for name in names:
        own = settings.with_noise(name, noise[name]) if name in noise else settings
        members = next((members for other, members in found if other == own), None)
        if members is None:
            found.append((own, [name]))
        else:
            members.append(name)
    return found


def check_reached(ledger: Ledger, settings: Settings, noise: Mapping[str, float]) -> None:
    """Raises ValueError: with the data there are, an algorithm costs more than what its noise was solved for."""
    for name in noise:
        epsilon = ledger.certify(name, settings.rounds, view=settings.view).epsilon
        if epsilon > (settings.target_epsilon or 0.0):
            raise ValueError(
                f"target_epsilon: {settings.target_epsilon:g} was solved for other clients than the data's, for "
                f"which {name} costs {epsilon:.4g}; set the config's clients to the data's"
            )


def planned_rounds(ledger: Ledger, settings: Settings) -> dict[str, int]:
    """Rounds of each algorithm: those of the settings, or as many as a budget, `stop_at_epsilon`, allows a private one.

    Raises:
      ValueError: the first round costs more than the budget.
    """
    planned = dict.fromkeys(ledger.entries, settings.rounds)
    if settings.stop_at_epsilon is None:
        return planned
    for name in ledger.entries:
        first = ledger.certify(name, 1, view=settings.view).epsilon
        if first > settings.stop_at_epsilon and math.isfinite(first):
            raise ValueError(
                f"stop_at_epsilon: {settings.stop_at_epsilon} is less than the certified {first:.4g} ({settings.view}) "
                f"of the first round of {name}; raise it or the noise"
            )
        if math.isfinite(first):
            planned[name] = calibrate_rounds(
                *ledger.of(name),
                epsilon=settings.stop_at_epsilon,
                delta=ledger.delta,
                view=settings.view,
                at_most=settings.rounds,
            )
    return planned
