"""Budgets: the noise with which a config's algorithms cost one epsilon, and the rounds that an epsilon allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

from experiments import config as configuration
from experiments.base.json_values import flat, plain
from experiments.config import Entry, Experiment, Ledger, Run
from experiments.config.modules import Config
from fedpriv.certification.calibration import UnreachableError, calibrate_noise, calibrate_rounds
from fedpriv.privacy import Release

Made = TypeVar("Made", Experiment, Ledger)
LedgerOf = Callable[[Any], Ledger]  # of the config's own type

MUCH = (1e3, 1e6)  # noise with which whatever has a finite epsilon has one
CLOSE = 1e-3  # relative: so little below the target, another algorithm's noise will do


class Solved(NamedTuple):
    """A noise that was found, and what it was found for: with equal releases, epsilons are equal."""

    noise: float
    target: tuple[Any, ...]
    releases: tuple[Release, ...]


def solved(module: Config, config: Run, known: list[Solved] | None = None) -> dict[str, float]:
    """The noise of each algorithm for `target_epsilon`, where there is one; not of those that have no epsilon at all.

    Args:
      known: what was found for other settings, where what is found here is added.

    Raises:
      ValueError: no noise reaches the target, or the config does not say how to change it.
    """
    found: dict[str, float] = {}
    known = [] if known is None else known
    if config.target_epsilon is None:
        return found
    for name in _algorithms(module, config):
        own = only(config, [name])
        ledger_at = cache(partial(_ledger_at, module, own, name))  # each traces a round, once
        same = (s.noise for s in known if _seen(ledger_at, own, name, s.noise) == s)
        if (noise := next(same, None)) is None:
            epsilon_at = partial(_epsilon, ledger_at, own, name)
            alike = (s for s in dict.fromkeys(found.values()) if _reached(own, epsilon_at(s)))
            if (noise := next(alike, None)) is None:
                if not any(math.isfinite(epsilon_at(much)) for much in MUCH):
                    continue
                noise = _solve(partial(configuration.ledger_of, module), own, name)
            known.append(_seen(ledger_at, own, name, noise))
        found[name] = noise
    return found


def _ledger_at(module: Config, config: Run, name: str, noise: float) -> Ledger:
    return configuration.ledger_of(module, config.with_noise(name, noise))


def _seen(ledger_at: Callable[[float], Ledger], config: Run, name: str, noise: float) -> Solved:
    ledger = ledger_at(noise)
    target = (config.target_epsilon, config.view, ledger.delta)
    return Solved(noise, target, ledger.trace(name).releases(config.rounds))


def _algorithms(module: Config, config: Run) -> Iterable[str]:
    return getattr(config, "algorithms", None) or configuration.ledger_of(module, config).entries


def only(config: Run, names: Iterable[str]) -> Run:
    """The settings for these algorithms alone, where they say which there are."""
    chosen: dict[str, Any] = {"algorithms": tuple(names)} if hasattr(config, "algorithms") else {}
    return replace(config, **chosen)


def _epsilon(ledger_at: Callable[[float], Ledger], config: Run, name: str, noise: float) -> float:
    return ledger_at(noise).certify(name, config.rounds, view=config.view).epsilon


def _reached(config: Run, epsilon: float) -> bool:
    target = config.target_epsilon or 0.0
    return target * (1 - CLOSE) < epsilon <= target


def _solve(ledger_of: LedgerOf, config: Run, name: str) -> float:
    target = config.target_epsilon or 0.0
    try:
        return noise_for(ledger_of, config, name, epsilon=target, view=config.view)
    except UnreachableError as error:
        raise ValueError(
            f"target_epsilon: {target:g} cannot be had by {name} ({error}); choose another, or leave {name} out"
        ) from None


def noise_for(ledger_of: LedgerOf, config: Run, name: str, **target: Any) -> float:
    """The noise with which all rounds of an algorithm reach a target, see `fp.calibrate_noise`."""
    start = ledger_of(config.with_noise(name, 1.0))
    _, *shapes = start.of(name)
    return calibrate_noise(
        lambda noise: ledger_of(config.with_noise(name, noise)).of(name)[0],
        *shapes,
        rounds=config.rounds,
        delta=start.delta,
        **target,
    )


def turned(config: Run, name: str, noise: float) -> dict[str, Any]:
    """The fields in which an algorithm's noise is given, with their values."""
    here, there = (flat(plain(config.with_noise(name, n))) for n in (noise, 2 * noise))
    return {field: value for field, value in here.items() if there[field] != value}


def made(make: Callable[[Any], Made], config: Run, noise: Mapping[str, float]) -> Made:
    """What `make` (a `build`, or a ledger) makes of a config, each algorithm with the noise that was solved for it."""
    if not noise:
        return make(config)
    names = getattr(config, "algorithms", None) or list(make(config).entries)
    parts: list[Made] = []
    entries: dict[str, Entry] = {}
    for own, members in _alike(config, names, noise):
        parts.append(make(only(own, members)))
        for name in members:
            said = turned(config, name, noise[name]) if name in noise else {}
            entries[name] = parts[-1].entries[name]._replace(solved=said)
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    return replace(parts[0], entries={name: entries[name] for name in names}, notes=notes)


def _alike(
    config: Run, names: Sequence[str], noise: Mapping[str, float]
) -> list[tuple[Run, list[str]]]:
    """The different settings that the algorithms need, and who needs them."""
    found: list[tuple[Run, list[str]]] = []
    for name in names:
        own = config.with_noise(name, noise[name]) if name in noise else config
        members = next((members for other, members in found if other == own), None)
        if members is None:
            found.append((own, [name]))
        else:
            members.append(name)
    return found


def check_reached(ledger: Ledger, config: Run, noise: Mapping[str, float]) -> None:
    """Raises ValueError: with the data there are, an algorithm costs more than what its noise was solved for."""
    for name in noise:
        epsilon = ledger.certify(name, config.rounds, view=config.view).epsilon
        if epsilon > (config.target_epsilon or 0.0):
            raise ValueError(
                f"target_epsilon: {config.target_epsilon:g} was solved for other clients than the data has, with whom "
                f"{name} costs {epsilon:.4g}; set the config's clients to theirs"
            )


def planned_rounds(ledger: Ledger, config: Run) -> dict[str, int]:
    """Rounds of each algorithm: the config's, or as many as `stop_at_epsilon` allows a private one.

    Raises:
      ValueError: the first round costs more than the budget.
    """
    planned = dict.fromkeys(ledger.entries, config.rounds)
    if config.stop_at_epsilon is None:
        return planned
    for name in ledger.entries:
        first = ledger.certify(name, 1, view=config.view).epsilon
        if first > config.stop_at_epsilon and math.isfinite(first):
            raise ValueError(
                f"stop_at_epsilon: {config.stop_at_epsilon} is less than the certified {first:.4g} ({config.view}) of "
                f"the first round of {name}; raise it or the noise"
            )
        if math.isfinite(first):
            planned[name] = calibrate_rounds(
                *ledger.of(name),
                epsilon=config.stop_at_epsilon,
                delta=ledger.delta,
                view=config.view,
                at_most=config.rounds,
            )
    return planned
