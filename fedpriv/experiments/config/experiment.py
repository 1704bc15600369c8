"""The experiment that a config's settings describe: what the launcher runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike

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
from fedpriv.experiments.config import further, public
from fedpriv.experiments.config.ledger import Entry, Ledger
from fedpriv.experiments.config.public import Public
from fedpriv.experiments.config.settings import Settings
from fedpriv.experiments.config.stopping import Stopping, check_metric, target
from fedpriv.models.networks import Model
from fedpriv.models.score import Score


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
