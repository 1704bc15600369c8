"""The experiment that a config's settings describe: what the launcher runs, and what accounting needs of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike

from fedpriv.certification.certificate import of_all_seeds
from fedpriv.certification.checks import check_launch
from fedpriv.certification.together import certify_traced
from fedpriv.certification.traced_round import TracedRound
from fedpriv.certification.unit_kinds import UnitKind
from fedpriv.core.arguments import Count, Rate
from fedpriv.core.complaints import require
from fedpriv.core.types import Example
from fedpriv.data.datasets import Dataset
from fedpriv.data.federation import Federation
from fedpriv.data.partition import hold_out
from fedpriv.engine import measures
from fedpriv.engine.client_metric_names import names_of
from fedpriv.engine.group_metrics import labels_of, names_in
from fedpriv.engine.history import ClientValues
from fedpriv.engine.simulate import Measure
from fedpriv.experiments.base.formats import ClientEpsilons, GroupEpsilons
from fedpriv.experiments.config import further, public
from fedpriv.experiments.config.public import Public, sentences
from fedpriv.experiments.config.settings import Settings
from fedpriv.experiments.config.statistics import Statistics
from fedpriv.experiments.config.stopping import Stopping, check_metric, target
from fedpriv.models.networks import Model
from fedpriv.models.score import Score
from fedpriv.privacy import Certificate, Claim, Seen
from fedpriv.privacy.words import SEVERAL_RUNS
from fedpriv.proof.seen import ONE_RUN, RANDOM_SEED
from fedpriv.rounds.algorithm import Algorithm

_WITH_SECRET_SEED = {
    RANDOM_SEED: "the secret seed of the run stays secret",
    ONE_RUN: "one model, trained once, is released; runs with the same secret seed and the same number (seed-0, "
    "seed-1, ..) share their noise",
    SEVERAL_RUNS: "nothing but the statistics and one model, trained once, is released; the statistics have a number "
    "of their own; runs with the same secret seed and the same number (seed-0, seed-1, ..) share their noise",
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
      statistics: its traced round -> what is released before it trains, which its epsilons count; None: nothing is.
      test: what it is evaluated on, normalised by these; None: the experiment's.
    """

    algorithm: Algorithm
    federations: Sequence[Federation]
    settings: Mapping[str, Any] = MappingProxyType({})
    solved: Mapping[str, Any] = MappingProxyType({})
    name: str = ""
    statistics: Callable[[TracedRound], Statistics] | None = None
    test: Example | None = None


@dataclass(frozen=True)
class Ledger:
    """What accounting needs of an experiment: its algorithms, and shapes; no data.

    Attributes:
      entries: by the algorithm's name; of an entry's federations the first one's shapes count (`blank`).
      delta: of the differential privacy guarantees.
      params: the model, its shapes, or key -> model.
      notes: what the numbers assume or leave out, such as data that was not looked at.
      secret_seed: whether the launcher has drawn the seed, which then is random.
      not_covered: what private numbers choose in the run -> their names, see `config.public.by_what`.
      traced: what was read off the algorithms' rounds so far.
      certified: the certificates that were asked for so far; evaluations, progress and summary ask for the same ones.
    """

    entries: dict[str, Entry]
    delta: float
    params: Any
    notes: tuple[str, ...] = ()
    secret_seed: bool = False
    not_covered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    traced: dict[str, TracedRound] = field(default_factory=dict, compare=False, repr=False)
    certified: dict[tuple[Any, ...], Certificate] = field(
        default_factory=dict, compare=False, repr=False
    )

    def of(self, name: str) -> tuple[Algorithm, Any, Federation]:
        """What `fp.certify`, `fp.trace_round` and `fp.calibrate_rounds` begin with."""
        entry = self.entries[name]
        return entry.algorithm, self.params, entry.federations[0]

    def trace(self, name: str) -> TracedRound:
        """What is read off the algorithm's round, which is traced once; its persons are those of every seed.

        Raises:
          ValueError: what `init` or the round is refused for, see `fedpriv.certification.checks.check_launch`.
        """
        if name not in self.traced:
            traced = check_launch(*self.of(name))
            self.traced[name] = of_all_seeds(traced, self.entries[name].federations)
        return self.traced[name]

    def statistics(self, name: str) -> Statistics | None:
        """What is released before an algorithm trains.

        Raises:
          ValueError: there is nothing that it could be of, see `fedpriv.experiments.config.statistics.limits_of`.
        """
        plan = self.entries[name].statistics
        return plan(self.trace(name)) if plan else None

    def seen(self, name: str, rounds: int) -> tuple[tuple[UnitKind, tuple[Seen, ...]], ...]:
        """By kind of unit, what views see of an algorithm's statistics, if any, and of so many rounds."""
        traced, statistics = self.trace(name), self.statistics(name)
        before = statistics.traced if statistics else ()
        runs = [*((each, 1) for each in before), (traced, rounds)]
        return tuple(
            (kind, tuple(one for run, length in runs for one in run.seen(length, kind)))
            for kind in traced.kinds
        )

    def certify(
        self,
        name: str,
        rounds: int,
        *,
        view: str = "third_party",
        honest: float = 1.0,
        best_of: float = 1.0,
        kind: UnitKind | None = None,
    ) -> Certificate:
        """The certificate of so many rounds, and of statistics before them, if any, which is computed once.

        Args:
          kind: of the unit; by default all.

        Raises:
          ValueError: the best of several runs that release statistics is asked for.
        """
        asked = (name, rounds, view, honest, best_of, kind, self.delta, self.secret_seed)
        if asked not in self.certified:
            options: Any = {"view": view, "honest": honest, "best_of": best_of, "kind": kind}
            certificate = self._certified(name, rounds, **options)
            if self.secret_seed:
                assumed = (_WITH_SECRET_SEED.get(text, text) for text in certificate.assumptions)
                certificate = replace(certificate, assumptions=tuple(assumed))
            for chosen, names in self.not_covered.items():
                certificate = certificate.not_covered(names, chosen)
            self.certified[asked] = certificate
        return self.certified[asked]

    def _certified(self, name: str, rounds: int, best_of: float, **options: Any) -> Certificate:
        remedy = "the best of several runs is certified of training alone; leave statistics out"
        alone = best_of == 1 or self.entries[name].statistics is None
        require(alone, "best_of", best_of, remedy)  # before the noise of statistics is solved for
        training, statistics = self.trace(name), self.statistics(name)
        if statistics is None:
            return training.certify(rounds, self.delta, best_of=best_of, **options)
        before = [("statistics", traced, 1) for traced in statistics.traced]
        return certify_traced([*before, ("training", training, rounds)], self.delta, **options)

    def of_statistics(self, name: str, view: Any, honest: float = 1.0) -> Certificate | None:
        """Of the statistics that are released before an algorithm trains, alone; None without any."""
        statistics = self.statistics(name)
        return statistics and statistics.alone(self.trace(name), self.delta, view, honest)

    def client_epsilons(
        self,
        name: str,
        rounds: int,
        views: Sequence[str],
        *,
        honest: float = 1.0,
        best_of: float = 1.0,
    ) -> dict[str, ClientEpsilons]:
        """By view, where it is public how many records each client holds; not with groups or persons.

        The more records a client holds, the smaller is its epsilon.
        """
        traced = self.trace(name)
        if traced.public_sizes is None or any(kind.group or kind.held for kind in traced.kinds):
            return {}
        sizes = sorted(traced.public_sizes)

        def epsilon(view: str, size: int) -> float:
            options: Any = {"view": view, "honest": honest, "best_of": best_of}
            return self.certify(name, rounds, kind=UnitKind(size=size), **options).epsilon

        median = (len(sizes) - 1) // 2
        return {
            view: (epsilon(view, sizes[-1]), epsilon(view, sizes[median]), epsilon(view, sizes[0]))
            for view in views
        }

    def group_epsilons(
        self,
        name: str,
        rounds: int,
        views: Sequence[str],
        *,
        honest: float = 1.0,
        best_of: float = 1.0,
    ) -> dict[str, GroupEpsilons]:
        """By view, the smallest first, where units have public groups; nothing elsewhere."""
        groups = {kind.group: kind for kind in self.trace(name).kinds if kind.group}
        options: Any = {"honest": honest, "best_of": best_of}

        def epsilons(view: str) -> GroupEpsilons:
            found = {
                group: self.certify(name, rounds, view=view, kind=kind, **options).epsilon
                for group, kind in groups.items()
            }
            return dict(sorted(found.items(), key=lambda each: each[1]))

        return {view: epsilons(view) for view in views if groups}

    def claim(self, name: str, rounds: int) -> Claim | None:
        """The paper's claim for so many rounds; not for statistics that are released before these."""
        claim = self.entries[name].algorithm.claim(rounds, self.delta)
        if claim and (said := sentences(self.not_covered)):
            claim = replace(claim, sound=False, reasons=(*said, *claim.reasons))
        if claim is None or self.entries[name].statistics is None:
            return claim
        reason = "The formula does not count the statistics that are released before training."
        return replace(claim, sound=False, reasons=(reason, *claim.reasons))


def blank(
    algorithm: Algorithm,
    example: Example,
    clients: int,
    records: int,
    public: int = 0,
    held_out: float = 0.0,
) -> Entry:
    """An entry of a ledger: clients with so many records each (and the server), of the shapes of `example`.

    Args:
      held_out: the share of every client's records on which it does not train, as of `federations`.
    """
    out = int(held_out * records + 0.5)
    remedy = f"it leaves a client none of its {records} records; hold out less, or let fewer clients share"
    require(out < records, "held_out", held_out, remedy)
    given = {"public": public, "held_out": out}
    return Entry(algorithm, [Federation.blank(example, clients, records - out, **given)])


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
      own_test: whether the test records are the clients' own, and so private.
      public_held_out: declares that the records which clients hold out are public, so that a metric of the shared model
        on them may choose a round.
      secret_seed: whether the launcher has drawn the seed.
      not_covered: what private numbers choose in the run, as in `Ledger`; the launcher says so.
      client_names: a public name for each client, in the federation's order, by which tables call it: pd.unique(column)
        of the column whose values are the clients.
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
    public_held_out: bool = False
    secret_seed: bool = False
    not_covered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    client_names: Sequence[str] | ArrayLike | None = None
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
        each = {"groups": self.groups, "groups_of_test": self.groups_of_test}
        given = [labels_of(field, of) for field, of in each.items() if of is not None]
        groups = {name for labels in given for name in names_in(labels)}
        return (*own, *(name for metric in own for name in names_of(metric, groups)))

    @property
    def named_clients(self) -> tuple[str, ...]:
        """The name of each client, by its number in the federation; () where the config gives none.

        Raises:
          ValueError: another number of names than of clients; one that is missing, or given twice.
        """
        if self.client_names is None:
            return ()
        names = labels_of("client_names", self.client_names)
        federation = next(iter(self.entries.values())).federations[0]
        if federation.persons is not None and federation.persons.kept.max() < len(names):
            names = names[federation.persons.kept]
        number, there = federation.num_clients, f"{len(names)} names"
        require(
            len(names) == number, "client_names", there, f"give one to each of {number} clients"
        )
        given = [name for name in names if name]
        remedy = "give every client a name of its own"
        require(len({*given}) == number, "client_names", names.tolist(), remedy)
        return tuple(given)

    def test_of(self, name: str) -> Example:
        """What an algorithm is evaluated on: the test records, normalised as those that it trains on."""
        own = self.entries[name].test
        return self.test if own is None else own

    def measured(self, settings: Settings, name: str) -> Measure | None:
        """What `simulate` takes for further numbers of every evaluation of one algorithm."""
        entry, score = self.entries[name], self.model.score
        federation = entry.federations[0]
        every = [e.algorithm for e in self.entries.values()]
        models = further.whose_models(entry.algorithm, every)
        each = [self._private(self.measure())] if self.measure else []
        if settings.per_client is not None:
            bound = further.bound(settings, self.metrics)
            each += further.of_clients(score, federation, models, settings.per_client, bound)
        if self.groups is not None:
            each += further.of_groups(score, federation, models, self.groups)
        if self.groups_of_test is not None:
            each.append(measures.per_group(score, self.groups_of_test, on=self.test_of(name)))
        return measures.together(*each) if each else None

    @property
    def public(self) -> Public:
        """What of all that is measured is public."""
        return Public(self.metrics, self.own_test, self.public_held_out)

    def _private(self, measure: Measure) -> Measure:
        """The config's own measure, none of whose numbers may be called like one that is known to be public."""

        def checked(state: Any, federation: Any) -> Mapping[str, Any]:
            given = measure(state, federation)
            for name in given if isinstance(given, Mapping) else ():
                remedy = "it would be taken for a public number; give another name, or groups_of_test or per_client"
                require(name not in self.public, "measure", name, remedy)
            return given

        return checked

    def selectable(self, settings: Settings) -> list[str]:
        """What the settings' `metric` and `stop_at` may name: metrics of the score, and what is measured beside them.

        Raises:
          ValueError: they name another; a private one chooses a round; or what is measured is refused for.
        """
        stop = target(settings.stop_at).metric if settings.stop_at is not None else None
        measured = settings.per_client is not None or self.groups is not None
        measured = measured or self.groups_of_test is not None
        if not measured and {settings.metric, stop} <= {None, *self.metrics}:
            public.check(vars(settings), self.public)
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
        public.check(vars(settings), self.public)
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
        given = (self.entries, self.delta, self.model.init, self.notes, self.secret_seed)
        return Ledger(*given, self.not_covered)


def federations(
    data: Dataset,
    seeds: int,
    deal: Callable[[np.random.Generator], Sequence[np.ndarray]],
    held_out: Rate | None = None,
    stratify: ArrayLike | None = None,
    time: ArrayLike | None = None,
    per_person: Count | None = None,
) -> list[Federation]:
    """One federation per seed, on the same examples; `deal` gives every client its rows, from the seed's generator.

    Where the data say whose each record is, certificates are of a person.

    Args:
      held_out: the share of every client's rows that it is evaluated on and does not train on; of its persons, where
        the data say whose each record is.
      stratify: [N], labels of the training examples, each of which has that share, see `partition.hold_out`.
      time: [N] or [N, 2], when each was: the last ones are held out, of whichever persons, see `partition.hold_out`.
      per_person: as `Federation.from_arrays`.
    """
    how = {"stratify": stratify, "time": time, "person": data.persons if time is None else None}
    each: list[Federation] = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        rows, out = deal(rng), None
        if held_out is not None:
            out, rows = hold_out(rng, rows, held_out, **how)
        if each and data.persons is None:
            each.append(each[0].repartition(rows, held_out=out))
            continue
        options: Any = {"held_out": out, "num_classes": data.num_classes}
        options |= {"person": data.persons, "per_person": per_person}
        made = Federation.from_arrays(data.train, rows, **options)
        each.append(replace(made, examples=each[0].examples) if each else made)
    return each
