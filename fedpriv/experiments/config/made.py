"""What a config's functions make of its settings: the experiment, what it would cost, the layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import jax

from fedpriv.data.datasets import Dataset
from fedpriv.devices.layout import Strategy
from fedpriv.experiments.config import public
from fedpriv.experiments.config.experiment import Experiment
from fedpriv.experiments.config.folds import without_fold
from fedpriv.experiments.config.ledger import Entry, Ledger
from fedpriv.experiments.config.public import Public
from fedpriv.experiments.config.settings import Layout, Settings
from fedpriv.experiments.config.statistics import planned

Given = TypeVar("Given", Experiment, Ledger)


def ledger_of(module: Any, settings: Settings) -> Ledger:
    """What these settings would cost, from the module's `ledger`, or from the experiment where it has none."""
    own = getattr(module, "ledger", None)
    if own is None:
        return experiment_of(module, settings).ledger
    found = _given_back(own(settings), Ledger, "ledger")
    not_covered = _named(settings)
    entries = with_statistics(found.entries, settings, found.delta)
    notes = (*found.notes, *public.sentences(not_covered))
    return replace(found, entries=entries, notes=notes, not_covered=not_covered)


def _named(settings: Settings) -> dict[str, tuple[str, ...]]:
    """What the metrics that `not_covered` names choose, where no experiment says which ones are private: these are."""
    names = settings.not_covered
    found = public.by_what(vars(settings), Public(names, own_test=True)) if names else {}
    own = {chosen: tuple(name for name in by if name in names) for chosen, by in found.items()}
    return {chosen: by for chosen, by in own.items() if by}


def experiment_of(module: Any, settings: Settings) -> Experiment:
    """What the settings describe, where they say so with a fold of the training records as its test records.

    Raises:
      ValueError: a fold is to be held out, and the module has a `build` alone.
    """
    if hasattr(module, "load") and hasattr(module, "on"):
        data = without_fold(module.load(settings), settings.fold)
        made = _given_back(module.on(settings, data), Experiment, "on")
        _check_whole(made, data, settings)
        made = replace(made, own_test=made.own_test or settings.fold is not None)
        return _completed(made, settings)
    if settings.fold is not None:
        raise ValueError(
            "fold: the config has only build, which loads all records; replace build by load and on"
        )
    return _completed(_given_back(module.build(settings), Experiment, "build"), settings)


def _completed(made: Experiment, settings: Settings) -> Experiment:
    """With what is released before each entry trains, and with notes on what private records may choose."""
    entries = with_statistics(made.entries, settings, made.delta)
    chooses = settings.stop_at is not None or settings.patience is not None or settings.not_covered
    not_covered = public.by_what(vars(settings), made.public) if chooses else {}
    notes = (*made.notes, *public.sentences(not_covered))
    notes += (public.DECLARED,) if made.public_held_out else ()
    return replace(made, entries=entries, notes=notes, not_covered=not_covered)


def _check_whole(made: Experiment, data: Dataset, settings: Settings) -> None:
    """Raises ValueError: persons are split by a fold, as only the federations know whose each record is."""
    of_persons = [each.persons for entry in made.entries.values() for each in entry.federations]
    if settings.fold is not None and data.persons is None and any(of_persons):
        raise ValueError(
            "fold: it would split persons, of whom the data set does not know; let load return a Dataset(..., "
            "persons=whose each training record is)"
        )


def with_statistics(
    entries: Mapping[str, Entry], settings: Settings, delta: float
) -> dict[str, Entry]:
    """The entries with what is released before each trains, where the settings ask for statistics."""
    found = dict(entries)
    if settings.statistics is not None:
        for name, entry in entries.items():
            federation = entry.federations[0]
            plan = partial(planned, federation=federation, settings=settings, delta=delta)
            found[name] = entry._replace(statistics=plan)
    return found


def _given_back(value: Any, kind: type[Given], function: str) -> Given:
    if not isinstance(value, kind):
        raise ValueError(
            f"config: its {function} gives {type(value).__name__}; return experiments.config.{kind.__name__}"
        )
    return value


def strategy_of(layout: Layout) -> Strategy:
    """The layout with its defaults filled in; starts the backend."""
    from fedpriv.devices.layout import default

    standard = default()
    return Strategy(
        standard.clients if layout.clients is None else layout.clients,
        standard.devices if layout.devices is None else layout.devices * jax.process_count(),
    )
