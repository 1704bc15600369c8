"""Budgets: the noise with which a config's algorithms cost one epsilon, and the rounds that an epsilon allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

from fedpriv.certification.monotone_search import Range, UnreachableError, search
from fedpriv.core.complaints import require
from fedpriv.experiments.accounting.found import Found, LedgerOf, given, noise_for, turned
from fedpriv.experiments.accounting.group_budgets import (
    check_groups_reached,
    for_groups,
    groups_reached,
)
from fedpriv.experiments.config.experiment import Experiment
from fedpriv.experiments.config.ledger import Entry, Ledger
from fedpriv.experiments.config.made import ledger_of
from fedpriv.experiments.config.modules import Config
from fedpriv.experiments.config.settings import Settings
from fedpriv.mechanisms.integers import WrapsError

Made = TypeVar("Made", Experiment, Ledger)

MUCH = (1e3, 1e6)  # noise with which whatever has a finite epsilon has one
CLOSE = 1e-3  # relative: so little below the target, another algorithm's noise will do


class Solved(NamedTuple):
    """What was found, and what it was found for: where the same is seen, epsilons are equal."""

    found: Found
    target: tuple[Any, ...]
    seen: tuple[Any, ...]


def solved(
    module: Config,
    settings: Settings,
    known: list[Solved] | None = None,
    best_of: float = 1.0,
) -> dict[str, Found]:
    """The noise of each algorithm for `target_epsilon`, where there is one; not of those that have no epsilon at all.

    Where public groups have epsilons of their own, also their numbers.

    Args:
      known: what was found for other settings, where what is found here is added.
      best_of: mean number of runs of which the best is released, which together are to cost the target.

    Raises:
      ValueError: no noise reaches the target, or the config does not say how to change it; the best of several runs is
        to meet budgets of groups.
    """
    remedy = "groups.epsilons are met by one run; leave one of them out"
    require(best_of == 1 or not settings.group_epsilons, "best_of", best_of, remedy)
    found: dict[str, Found] = {}
    known = [] if known is None else known
    if settings.target_epsilon is None and not settings.group_epsilons:
        return found
    for name in _algorithms(module, settings):
        own = only(settings, [name])
        ledger_at = cache(partial(_ledger_at, module, own, name))  # each traces a round, once
        same = (s.found for s in known if _is(ledger_at, own, name, s))
        if (it := next(same, None)) is None:
            alike = (
                f
                for f in dict.fromkeys(found.values())
                if _reached(ledger_at(f), own, name, best_of)
            )
            if (it := next(alike, None)) is None:
                if not any(_has_epsilon(ledger_at(much), own, name, best_of) for much in MUCH):
                    continue
                it = _solve(partial(ledger_of, module), own, name, best_of)
            known.append(_seen(ledger_at, own, name, it))
        found[name] = it
    remedy = f"none of {', '.join(_algorithms(module, settings))} has an epsilon to share; name one that adds noise"
    require(bool(found) or settings.statistics is None, "statistics", settings.statistics, remedy)
    return found


def _ledger_at(module: Config, settings: Settings, name: str, found: Found) -> Ledger:
    return ledger_of(module, given(settings, name, found))


def _seen(
    ledger_at: Callable[[Found], Ledger], settings: Settings, name: str, found: Found
) -> Solved:
    ledger = ledger_at(found)
    seen = ledger.seen(name, settings.rounds_of(name))
    return Solved(found, _target(ledger, settings), seen)


def _is(ledger_at: Callable[[Found], Ledger], settings: Settings, name: str, known: Solved) -> bool:
    """Whether it is what is sought; a round with the noise of another target, which could wrap, is not traced."""
    if _target(ledger_at(known.found), settings) != known.target:
        return False
    return _seen(ledger_at, settings, name, known.found) == known


def _target(ledger: Ledger, settings: Settings) -> tuple[Any, ...]:
    groups = getattr(settings, "groups", None) if settings.group_epsilons else None
    return settings.target_epsilon, groups, settings.view, ledger.delta


def _algorithms(module: Config, settings: Settings) -> Iterable[str]:
    return getattr(settings, "algorithms", None) or ledger_of(module, settings).entries


def only(settings: Settings, names: Iterable[str]) -> Settings:
    """The settings for these algorithms alone, for which a noise is solved, where they say which there are."""
    chosen: dict[str, Any] = {"algorithms": tuple(names)} if hasattr(settings, "algorithms") else {}
    return replace(settings, **chosen)


def _epsilon(ledger: Ledger, settings: Settings, name: str, best_of: float) -> float:
    rounds = settings.rounds_of(name)
    return ledger.certify(name, rounds, view=settings.view, best_of=best_of).epsilon


def _has_epsilon(ledger: Ledger, settings: Settings, name: str, best_of: float) -> bool:
    try:
        return math.isfinite(_epsilon(ledger, settings, name, best_of))
    except WrapsError:  # as sums of integers do that hide their members
        return True


def _reached(ledger: Ledger, settings: Settings, name: str, best_of: float) -> bool:
    if settings.group_epsilons:
        return groups_reached(ledger, settings, name)
    target = settings.target_epsilon or 0.0
    return target * (1 - CLOSE) < _epsilon(ledger, settings, name, best_of) <= target


def _solve(ledger_of: LedgerOf, settings: Settings, name: str, best_of: float) -> Found:
    if settings.group_epsilons:
        return for_groups(ledger_of, settings, name)
    target = settings.target_epsilon or 0.0
    wanted: Any = {"epsilon": target, "view": settings.view, "best_of": best_of}
    try:
        return noise_for(ledger_of, settings, name, **wanted)
    except UnreachableError as error:
        raise ValueError(
            f"target_epsilon: {name} cannot reach {target:g} ({error}); choose another, or leave {name} out"
        ) from None


def made(make: Callable[[Any], Made], settings: Settings, found: Mapping[str, Found]) -> Made:
    """What `make` (a `build`, or a ledger) makes of the settings, each algorithm with what was solved for it."""
    if not found:
        return make(settings)
    names = getattr(settings, "algorithms", None) or list(make(settings).entries)
    parts: list[Made] = []
    entries: dict[str, Entry] = {}
    for own, members in _alike(settings, names, found):
        parts.append(make(only(own, members)))
        for name in members:
            said = turned(settings, name, found[name]) if name in found else {}
            entries[name] = parts[-1].entries[name]._replace(solved=said)
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    return replace(parts[0], entries={name: entries[name] for name in names}, notes=notes)


def _alike(
    settings: Settings, names: Sequence[str], found: Mapping[str, Found]
) -> list[tuple[Settings, list[str]]]:
    """The different settings that the algorithms need, and who needs them."""
    needed: list[tuple[Settings, list[str]]] = []
    for name in names:
        own = given(settings, name, found[name]) if name in found else settings
        members = next((members for other, members in needed if other == own), None)
        if members is None:
            needed.append((own, [name]))
        else:
            members.append(name)
    return needed


def check_reached(ledger: Ledger, settings: Settings, found: Mapping[str, Found]) -> None:
    """Raises ValueError: with the data there are, an algorithm costs more than what its noise was solved for."""
    for name in found:
        if settings.group_epsilons:
            check_groups_reached(ledger, settings, name)
            continue
        epsilon = ledger.certify(name, settings.rounds_of(name), view=settings.view).epsilon
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
    planned = {name: settings.rounds_of(name) for name in ledger.entries}
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
            budget = settings.stop_at_epsilon
            planned[name] = _affordable(ledger, name, budget, settings.view, planned[name])
    return planned


def _affordable(ledger: Ledger, name: str, budget: float, view: str, most: int) -> int:
    """Rounds of an algorithm, of which one is affordable, and all that is certified of a run is counted."""

    def cost(rounds: float) -> float:
        return ledger.certify(name, int(rounds), view=view).epsilon

    rounds = Range(most, 1, begin=(1, 1), factor=2, whole=True)
    return int(search(cost, budget, rounds, lambda least: f"stop_at_epsilon: {budget:g}"))
