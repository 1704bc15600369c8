"""The noise with which every public group of a config costs its own epsilon, and what each group needs beside it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from fedpriv.certification.group_budgets import calibrate_groups
from fedpriv.certification.monotone_search import Range, UnreachableError, search
from fedpriv.experiments.accounting.found import GroupsFound, LedgerOf, given, noise_for
from fedpriv.experiments.config.groups import Groups
from fedpriv.experiments.config.ledger import Ledger
from fedpriv.experiments.config.settings import Settings
from fedpriv.rounds.algorithm import Algorithm

CLOSE = 1e-3  # relative: so little below an epsilon will do
AS_MANY = 1e-2  # relative: so many more or fewer drawn are as many


def for_groups(ledger_of: LedgerOf, settings: Settings, name: str) -> GroupsFound:
    """The noise and the groups' numbers for `groups.epsilons`.

    By rates: the noise with which as many are drawn, in all groups together, as without groups. By clip norms: the
    noise with which everybody has the largest of the epsilons; who has it keeps the whole clip norm.

    Raises:
      ValueError: nothing reaches the epsilons.
    """
    groups: Groups = settings.groups  # type: ignore[attr-defined]
    try:
        if groups.by == "rates":
            return _with_as_many(ledger_of, settings, name)
        noise = _noise(ledger_of, _without(settings), name, max(groups.epsilons))
        return _at(ledger_of, settings, name, noise)
    except UnreachableError as error:
        epsilons = ", ".join(
            f"{group} {x:g}" for group, x in groups.of_each(groups.epsilons).items()
        )
        raise ValueError(
            f"groups.epsilons: {name} cannot reach {epsilons} ({error}); choose others, or leave {name} out"
        ) from None


def _without(settings: Settings) -> Settings:
    """All groups alike."""
    groups: Any = settings.groups  # type: ignore[attr-defined]
    changes: Any = {"groups": replace(groups, epsilons=())}
    return replace(settings, **changes)


def _noise(ledger_of: LedgerOf, settings: Settings, name: str, epsilon: float) -> float:
    return noise_for(ledger_of, settings, name, epsilon=epsilon, view=settings.view)


def _at(
    ledger_of: LedgerOf, settings: Settings, name: str, noise: float, close: float = CLOSE
) -> GroupsFound:
    """The groups' numbers for one noise."""
    groups: Groups = settings.groups  # type: ignore[attr-defined]

    def make(numbers: Any) -> Algorithm:
        each = GroupsFound(noise, tuple(numbers[group] for group in groups.names))
        return ledger_of(given(settings, name, each)).of(name)[0]

    start = ledger_of(_without(settings))
    _, *shapes = start.of(name)
    numbers = calibrate_groups(
        make,
        *shapes,
        epsilon=groups.of_each(groups.epsilons),
        rounds=settings.rounds_of(name),
        delta=start.delta,
        view=settings.view,
        tolerance=close,
    )
    return GroupsFound(noise, tuple(numbers[group] for group in groups.names))


def _with_as_many(ledger_of: LedgerOf, settings: Settings, name: str) -> GroupsFound:
    """The noise and the rates with which as many are drawn as without groups.

    With the noise for everybody at the largest epsilon fewer are drawn, with that at the smallest more. There is none
    beyond that with which who is always drawn, at rate 1, has the largest epsilon.
    """
    groups: Groups = settings.groups  # type: ignore[attr-defined]
    least, most = min(groups.epsilons), max(groups.epsilons)
    plain, changes = _without(settings), {"groups": groups.found((1.0,) * len(groups.names))}
    always: Any = replace(settings, **changes)  # type: ignore[arg-type]
    wanted = _drawn(ledger_of(plain), name)

    def drawn(noise: float) -> float:
        found = _at(ledger_of, settings, name, noise, AS_MANY)
        return _drawn(ledger_of(given(settings, name, found)), name)

    def refusal(noise: float) -> str:
        return f"so few cannot be drawn: {drawn(noise):.4g} are with noise {noise:.4g}; raise the cohort"

    low = _noise(ledger_of, plain, name, most) * (1 - AS_MANY)
    high = _noise(ledger_of, plain, name, least) * (1 + AS_MANY)
    high = min(high, _noise(ledger_of, always, name, most) * (1 - AS_MANY))
    between = Range(dearest=high, cheapest=low, begin=(high, low), factor=1.0)
    close: Any = {"tolerance": 2 * AS_MANY, "below": AS_MANY}
    noise = search(drawn, wanted * (1 + AS_MANY), between, refusal, **close)
    if noise == high:
        raise UnreachableError(
            f"so many cannot be drawn: who has {most:g} is always drawn, and still too few are; lower the cohort"
        )
    return _at(ledger_of, settings, name, noise)


def _drawn(ledger: Ledger, name: str) -> float:
    """How many are drawn on average: records of a client in a step, or clients in a round."""
    traced = ledger.trace(name)
    of_records = [mean.step.sampling for stage in traced.stages for mean in stage.means]
    return (of_records or [traced.algorithm.sampler])[0].expected_size


def groups_reached(ledger: Ledger, settings: Settings, name: str) -> bool:
    """Whether every group's epsilon is what it is to be, or little less."""
    each = zip(*_wanted_and_found(ledger, settings, name), strict=True)
    return all(wanted * (1 - CLOSE) < found <= wanted for wanted, found in each)


def check_groups_reached(ledger: Ledger, settings: Settings, name: str) -> None:
    """Raises ValueError: with the data there are, a group costs more than what was solved for."""
    groups: Groups = settings.groups  # type: ignore[attr-defined]
    for group, wanted, found in zip(
        groups.names, *_wanted_and_found(ledger, settings, name), strict=True
    ):
        if found > wanted:
            raise ValueError(
                f"groups.epsilons: {wanted:g} was solved for other clients than the data's, for which {group} costs "
                f"{found:.4g} with {name}; set the config's clients to the data's"
            )


def _wanted_and_found(
    ledger: Ledger, settings: Settings, name: str
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    groups: Groups = settings.groups  # type: ignore[attr-defined]
    by_view = ledger.group_epsilons(name, settings.rounds_of(name), [settings.view])
    found = by_view.get(settings.view, {})
    return groups.epsilons, tuple(found.get(group, math.inf) for group in groups.names)
