"""The experiment that a config's settings describe: what the launcher runs, and what accounting needs of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from numpy.typing import ArrayLike

from experiments.base.formats import ClientEpsilons
from experiments.config import further
from experiments.config.folds import without_fold
from experiments.config.settings import Layout, Settings
from experiments.config.stopping import Stopping, check_metric, target
from fedpriv.certification.certificate import TracedRound
from fedpriv.certification.checks import check_launch
from fedpriv.core.arguments import Rate
from fedpriv.core.types import Example
from fedpriv.data.datasets import Dataset
from fedpriv.data.federation import Federation
from fedpriv.data.partition import hold_out
from fedpriv.devices.layout import Strategy
from fedpriv.engine import measures
from fedpriv.engine.client_metric_names import names_of
from fedpriv.engine.group_metrics import labels_of, names_in
from fedpriv.engine.history import ClientValues
from fedpriv.engine.simulate import Measure
from fedpriv.models.networks import Model
from fedpriv.models.score import Score
from fedpriv.privacy import Certificate, Claim
from fedpriv.privacy.release import ONE_RUN, RANDOM_SEED
from fedpriv.rounds.algorithm import Algorithm

Given = TypeVar("Given")

_WITH_SECRET_SEED = {
    RANDOM_SEED: "the secret seed of the run stays secret",
    ONE_RUN: "one model, trained once, is released; runs with the same secret seed and the same number (seed-0, "
    "seed-1, ..) share their noise",
}
"""What a certificate assumes of any seed, and of one that the launcher has drawn."""


class Entry(NamedTuple):
    """One algorithm of an experiment.

    Attributes:
      algorithm: what trains.
      federations: what it trains on, one per seed.
      settings: what it got in place of a config's default that depends on the algorithm.
      solved: settings that `target_epsilon` found for it.
      name: for people, in tables and figures; "": the entry's key, or the published name of one of ours.
    """

    algorithm: Algorithm
    federations: Sequence[Federation]
    settings: Mapping[str, Any] = MappingProxyType({})
    solved: Mapping[str, Any] = MappingProxyType({})
    name: str = ""


@dataclass(frozen=True)
class Ledger:
    """What accounting needs of an experiment: its algorithms, and shapes; no data.

    Attributes:
      entries: by the algorithm's name; of an entry's federations the first one's shapes count (`blank`).
      delta: of the differential privacy guarantees.
      params: the model, its shapes, or key -> model.
      notes: what the numbers assume or leave out, such as data that was not looked at.
      secret_seed: whether the launcher has drawn the seed, which then is random.
      traced: what was read off the algorithms' rounds so far.
      certified: the certificates that were asked for so far; evaluations, progress and summary ask for the same ones.
    """

    entries: dict[str, Entry]
    delta: float
    params: Any
    notes: tuple[str, ...] = ()
    secret_seed: bool = False
    traced: dict[str, TracedRound] = field(default_factory=dict, compare=False, repr=False)
    certified: dict[tuple[Any, ...], Certificate] = field(
        default_factory=dict, compare=False, repr=False
    )

    def of(self, name: str) -> tuple[Algorithm, Any, Federation]:
        """What `fp.certify`, `fp.trace_round` and `fp.calibrate_rounds` begin with."""
        entry = self.entries[name]
        return entry.algorithm, self.params, entry.federations[0]

    def trace(self, name: str) -> TracedRound:
        """What is read off the algorithm's round, which is traced once.

        Raises:
          ValueError: what `init` or the round is refused for, see `fedpriv.certification.checks.check_launch`.
        """
        if name not in self.traced:
            self.traced[name] = check_launch(*self.of(name))
        return self.traced[name]

    def certify(
        self,
        name: str,
        rounds: int,
        *,
        view: str = "third_party",
        honest: float = 1.0,
        best_of: float = 1.0,
    ) -> Certificate:
        """The certificate of so many rounds, which is computed once."""
        asked = (name, rounds, view, honest, best_of, self.delta, self.secret_seed)
        if asked not in self.certified:
            traced = self.trace(name)
            options: Any = {"view": view, "honest": honest, "best_of": best_of}
            certificate = traced.certify(rounds, self.delta, **options)
            if self.secret_seed:
                assumed = (_WITH_SECRET_SEED.get(text, text) for text in certificate.assumptions)
                certificate = replace(certificate, assumptions=tuple(assumed))
            self.certified[asked] = certificate
        return self.certified[asked]

    def client_epsilons(
        self,
        name: str,
        rounds: int,
        views: Sequence[str],
        *,
        honest: float = 1.0,
        best_of: float = 1.0,
    ) -> dict[str, ClientEpsilons]:
        """By view, where it is public how many records each client holds; nothing elsewhere.

        The more records a client holds, the smaller is its epsilon.
        """
        traced = self.trace(name)
        if traced.public_sizes is None:
            return {}
        sizes = sorted(traced.public_sizes)

        def epsilon(view: Any, size: int) -> float:
            options: Any = {"view": view, "honest": honest, "best_of": best_of, "size": size}
            return traced.certify(rounds, self.delta, **options).epsilon

        median = (len(sizes) - 1) // 2
        return {
            view: (epsilon(view, sizes[-1]), epsilon(view, sizes[median]), epsilon(view, sizes[0]))
            for view in views
        }

    def claim(self, name: str, rounds: int) -> Claim | None:
        """The paper's claim for so many rounds."""
        return self.entries[name].algorithm.claim(rounds, self.delta)


def blank(
    algorithm: Algorithm, example: Example, clients: int, records: int, public: int = 0
) -> Entry:
    """An entry of a ledger: clients with so many records each (and the server), of the shapes of `example`."""
    return Entry(algorithm, [Federation.blank(example, clients, records, public=public)])


def image(*shape: int, dtype: Any = np.uint8) -> Example:
    """For a ledger, the shapes of a labelled image."""
    return {"image": np.zeros(shape, dtype), "label": np.int32(0)}


def text(length: int) -> Example:
    """For a ledger, the shapes of a text whose next characters are predicted."""
    label, mask = np.zeros(length, np.int32), np.zeros(length, bool)
    return {"text": np.zeros(length, np.uint8), "label": label, "mask": mask}


@dataclass(frozen=True, eq=False)
class Experiment:
    """What the launcher runs: the entries one after the other, on the same model and test set.

    Attributes:
      model: what is trained.
      test: records that every evaluation scores and no client trains on, leaves [n, ...]: public ones, or some that the
        clients hold out (`fp.partition.hold_out`).
      delta: of the differential privacy guarantees.
      entries: by the algorithm's name.
      measure: makes what `simulate` takes for further numbers of every evaluation.
      notes: what the certificates assume or leave out.
      own_test: whether the test records are the clients' own. Then no epsilon covers a choice by their scores, and
        `sweep --best-of` is refused.
      secret_seed: whether the launcher has drawn the seed.
      groups: a public label for each client, by which every evaluation tells who is hurt, see `measures.per_group`.
      groups_of_test: likewise for each of the test records; a config with `load` and `on` labels those of a fold, too.
    """

    model: Model
    test: Example
    delta: float
    entries: dict[str, Entry]
    measure: Callable[[], Measure] | None = None
    notes: tuple[str, ...] = ()
    own_test: bool = False
    secret_seed: bool = False
    groups: Sequence[str] | ArrayLike | None = None
    groups_of_test: Sequence[str] | ArrayLike | None = None

    @property
    def names(self) -> dict[str, str]:
        """For people, of the entries that say one."""
        return {key: entry.name for key, entry in self.entries.items() if entry.name}

    @cached_property
    def metrics(self) -> list[str]:
        """Names of what the model's score gives; traces it.

        Raises:
          ValueError: it gives no numbers with names.
        """
        params = jax.eval_shape(self.model.init, jax.random.key(0))
        return Score.of(self.model.score).names(params, self.test)

    @property
    def higher(self) -> tuple[str, ...]:
        """Metrics that are better when higher, beside accuracies."""
        own = Score.of(self.model.score).higher
        each = [of for of in (self.groups, self.groups_of_test) if of is not None]
        groups = {name for of in each for name in names_in(labels_of("groups", of))}
        return (*own, *(name for metric in own for name in names_of(metric, groups)))

    def measured(self, settings: Settings, name: str) -> Measure | None:
        """What `simulate` takes for further numbers of every evaluation of one algorithm."""
        entry, score = self.entries[name], self.model.score
        federation = entry.federations[0]
        every = [e.algorithm for e in self.entries.values()]
        models = further.whose_models(entry.algorithm, every)
        each = [self.measure()] if self.measure else []
        if settings.per_client is not None:
            bound = further.bound(settings, self.metrics)
            each += further.of_clients(score, federation, models, settings.per_client, bound)
        if self.groups is not None:
            each += further.of_groups(score, federation, models, self.groups)
        if self.groups_of_test is not None:
            each.append(measures.per_group(score, self.groups_of_test, on=self.test))
        return measures.together(*each) if each else None

    def selectable(self, settings: Settings) -> list[str]:
        """What the settings' `metric` and `stop_at` may name: metrics of the score, and what is measured beside them.

        Raises:
          ValueError: they name another; or what is measured is refused for.
        """
        stop = target(settings.stop_at).metric if settings.stop_at is not None else None
        measured = settings.per_client is not None or self.groups is not None
        measured = measured or self.groups_of_test is not None
        if not measured and {settings.metric, stop} <= {None, *self.metrics}:
            return self.metrics  # measuring may take long to prepare
        name, entry = next(iter(self.entries.items()))
        names = [*self.metrics]
        if measure := self.measured(settings, name):
            before, federation = self.ledger.trace(name).before, entry.federations[0]
            given = jax.eval_shape(lambda state: measure(state, federation), before)
            names += [name for name, x in given.items() if not isinstance(x, ClientValues)]
        for field_name, metric in (("metric", settings.metric), ("stop_at", stop)):
            if metric is not None:
                check_metric(field_name, metric, names)
        return names

    def stopping(self, settings: Settings) -> Stopping | None:
        """When to stop an algorithm before its last round, if the settings say so.

        Raises:
          ValueError: the score has no such metric.
        """
        if settings.stop_at is None and settings.patience is None:
            return None
        given = (settings.stop_at, settings.patience, settings.metric)
        return Stopping.of(*given, self.selectable(settings), self.higher)

    @cached_property
    def ledger(self) -> Ledger:
        """With the shapes of the data."""
        return Ledger(self.entries, self.delta, self.model.init, self.notes, self.secret_seed)


def federations(
    data: Dataset,
    seeds: int,
    deal: Callable[[np.random.Generator], Sequence[np.ndarray]],
    held_out: Rate | None = None,
    stratify: ArrayLike | None = None,
) -> list[Federation]:
    """One federation per seed, on the same examples; `deal` gives every client its rows, from the seed's generator.

    Args:
      held_out: the share of every client's rows that it is evaluated on and does not train on.
      stratify: [N], labels of the training examples, each of which has that share, see `partition.hold_out`.
    """
    each: list[Federation] = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        rows, out = deal(rng), None
        if held_out is not None:
            out, rows = hold_out(rng, rows, held_out, stratify=stratify)
        if each:
            each.append(each[0].repartition(rows, held_out=out))
        else:
            options: Any = {"held_out": out, "num_classes": data.num_classes}
            each.append(Federation.from_arrays(data.train, rows, **options))
    return each


def ledger_of(module: Any, settings: Settings) -> Ledger:
    """What these settings would cost, from the module's `ledger`, or from the experiment where it has none."""
    own = getattr(module, "ledger", None)
    if own is None:
        return experiment_of(module, settings).ledger
    return _given_back(own(settings), Ledger, "ledger")


def experiment_of(module: Any, settings: Settings) -> Experiment:
    """What the settings describe, where they say so with a fold of the training records as its test records.

    Raises:
      ValueError: a fold is to be held out, and the module has a `build` alone.
    """
    if hasattr(module, "load") and hasattr(module, "on"):
        data = without_fold(module.load(settings), settings.fold)
        made = _given_back(module.on(settings, data), Experiment, "on")
        return replace(made, own_test=made.own_test or settings.fold is not None)
    if settings.fold is not None:
        raise ValueError(
            "fold: the config has only build, which loads all records; replace build by load and on"
        )
    return _given_back(module.build(settings), Experiment, "build")


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
