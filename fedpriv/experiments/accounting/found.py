"""What a budget finds for an algorithm: a noise, and, where public groups have epsilons of their own, their numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from fedpriv.certification.calibration import calibrate_noise, calibrate_together
from fedpriv.core.json_values import flat, plain
from fedpriv.experiments.config.ledger import Ledger
from fedpriv.experiments.config.settings import AnySettings, Settings
from fedpriv.experiments.runs.unfinished import Earlier
from fedpriv.mechanisms.integers import WrapsError
from fedpriv.rounds.algorithm import Algorithm

LedgerOf = Callable[[Any], Ledger]  # of the settings' own type


class GroupsFound(NamedTuple):
    """What `groups.epsilons` find for an algorithm.

    Attributes:
      noise: its noise.
      numbers: of each group, what `groups.by` names.
    """

    noise: float
    numbers: tuple[float, ...]


Found: TypeAlias = float | GroupsFound


def read_back(recorded: Any) -> Found:
    """What was found, of what config.json says of it."""
    if isinstance(recorded, list):
        noise, numbers = recorded
        return GroupsFound(noise, tuple(numbers))
    return float(recorded)


def recorded_noise(run: Earlier) -> dict[str, Found]:
    """What was solved when a run was begun.

    Raises:
      ValueError: it is not there.
    """
    noise, settings = run.about.get("noise"), run.settings
    target = settings.group_epsilons or settings.target_epsilon
    if target is not None and noise is None:
        raise ValueError(
            f"{run.folder}: config.json lacks the noise for epsilon {target}; restore it, or begin again"
        )
    return {name: read_back(recorded) for name, recorded in (noise or {}).items()}


def noise_of(found: Found) -> float:
    """The noise that was found."""
    return found.noise if isinstance(found, GroupsFound) else found


def given(settings: AnySettings, name: str, found: Found) -> AnySettings:
    """The settings with what was found for an algorithm."""
    own = settings.with_noise(name, noise_of(found))
    if not isinstance(found, GroupsFound):
        return own
    changes: Any = {"groups": own.groups.found(found.numbers)}  # type: ignore[attr-defined]
    return replace(own, **changes)


def turned(settings: Settings, name: str, found: Found) -> dict[str, Any]:
    """The fields in which what was found for an algorithm is given, with their values."""
    noise = noise_of(found)
    here, there = (flat(plain(settings.with_noise(name, n))) for n in (noise, 2 * noise))
    fields = {field: value for field, value in here.items() if there[field] != value}
    if isinstance(found, GroupsFound):
        groups: Any = settings.groups  # type: ignore[attr-defined]
        fields[f"groups.{groups.by}"] = groups.of_each(found.numbers)
    return fields


def noise_for(
    ledger_of: LedgerOf, settings: Settings, name: str, *, best_of: float = 1.0, **target: Any
) -> float:
    """The noise with which all rounds of an algorithm reach a target, see `fp.calibrate_noise`.

    Where statistics are released before, training gets what these leave, see `fp.calibrate_together`.

    Args:
      best_of: as `fp.calibrate_noise`; with statistics there is no such certificate, see `Ledger.certify`.
      target: other arguments of `fp.calibrate_noise`.

    Raises:
      WrapsError: sums of integers of so few bits have no room for it.
    """
    start = ledger_of(settings.with_noise(name, 1.0))
    _, *shapes = start.of(name)
    rounds, statistics = settings.rounds_of(name), start.statistics(name)

    def algorithm(noise: float) -> Algorithm:
        return ledger_of(settings.with_noise(name, noise)).of(name)[0]

    try:
        if statistics is None:
            run: Any = {"rounds": rounds, "delta": start.delta, "best_of": best_of, **target}
            return calibrate_noise(algorithm, *shapes, **run)
        return calibrate_together(
            lambda noise: [*statistics.runs, (algorithm(noise), rounds)],
            *shapes,
            delta=start.delta,
            **target,
        )
    except WrapsError:
        real: Any = {"bits": None, "integer_noise": None}
        noise = noise_for(ledger_of, replace(settings, **real), name, best_of=best_of, **target)
        ledger_of(settings.with_noise(name, noise)).trace(name)  # raises, says how many bits
        raise
