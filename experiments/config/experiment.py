"""What a config file gives the launcher: settings that can be overridden, and the experiment they describe."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self, TypeAlias, TypeVar

import jax
import numpy as np

from experiments.config.fields import Number, check_each
from experiments.config.folds import Fold, held_out, without_fold
from experiments.config.stopping import Stopping, target
from fedpriv.certification.certificate import TracedRound
from fedpriv.certification.checks import check_launch
from fedpriv.core.arguments import NonNegative, Rate, checked
from fedpriv.core.types import Example
from fedpriv.data.datasets import Dataset
from fedpriv.data.federation import Federation
from fedpriv.data.partition import hold_out
from fedpriv.devices.layout import Strategy
from fedpriv.engine import measures
from fedpriv.engine.client_metrics import names_of, parsed
from fedpriv.engine.simulate import Measure
from fedpriv.models.networks import Model
from fedpriv.models.score import Score
from fedpriv.privacy import Certificate, Claim
from fedpriv.rounds.algorithm import Algorithm

View: TypeAlias = Literal["third_party", "server", "server_secagg"]
Given = TypeVar("Given")
MOST_DEVICES = 1024  # of a process: a CPU makes as many as it is told to
MOST_SEEDS = 2**16  # every one has a partition and a model of its own


@dataclass(frozen=True)
class Layout:
    """How the clients of a round are laid out on the machine (`fedpriv.Strategy`)."""

    devices: int | None = None
    """Devices of each process to use; by default all of them (on CPU: one per core)."""
    clients: Literal["map", "vmap", "fit"] | int | None = None
    """`map`: one client after another; a number: chunks of at most that many side by side; `vmap`: the whole cohort;
    `fit`: as many as fit the device's memory. By default `map` on CPU, `fit` elsewhere."""

    def __post_init__(self) -> None:
        check_each(Number, **{"layout.devices": self.devices})
        if self.devices is not None and self.devices > MOST_DEVICES:
            raise ValueError(
                f"layout.devices: {self.devices} exceeds {MOST_DEVICES}; leave it out to use all there are"
            )
        if isinstance(self.clients, int) and self.clients < 1:
            raise ValueError(
                f"layout.clients: {self.clients} is not map, vmap, fit or a number from 1 up"
            )


@dataclass(frozen=True)
class Checkpoint:
    """How often a checkpoint is taken, from which --resume goes on: always at an evaluation, whichever is due first."""

    rounds: int | None = None
    """At the first evaluation at or after so many rounds since the last one."""
    minutes: float | None = 10.0
    """Likewise after so many minutes; None: not by the clock."""

    def __post_init__(self) -> None:
        check_each(Number, **{"checkpoint.rounds": self.rounds})
        checked("checkpoint.minutes", self.minutes, NonNegative | None)


@dataclass(frozen=True)
class Run:
    """Settings that every experiment has."""

    rounds: int = 100
    """Communication rounds T."""
    seeds: int = 1
    """Number of seeds; seed s draws the partition, the initial model and everything random in training."""
    every: int = 5
    """Rounds between evaluations on the test set."""
    metric: str | None = None
    """Metric to show in progress, table and picture, one of the score or of what is measured beside it
    (held_out_accuracy_mean); by default accuracy, else loss."""
    stop_at_epsilon: float | None = None
    """Stop each private algorithm before its certified epsilon (`view`) exceeds this; the others run on."""
    target_epsilon: float | None = None
    """Give each private algorithm the noise with which all its rounds cost this certified epsilon (`view`)."""
    view: View = "third_party"
    """Whose view the epsilon is of that is shown, solved for and stopped at."""
    views: Literal["one", "all"] = "one"
    """The epsilons in the table: that of `view`, or `all`."""
    stop_at: str | None = None
    """NAME=VALUE, such as accuracy=0.8: end each algorithm at the first evaluation where the metric, on average over
    the seeds, is that good. Choosing the end by the test set makes its accuracy optimistic, and no epsilon here covers
    the test records."""
    patience: int | None = None
    """End each algorithm after so many evaluations whose mean metric (see metric) is no better than the best before."""
    per_client: int | None = None
    """Also evaluate so many clients, each on those of its records that the config holds out, else on its training
    records: mean over clients, pooled over records, median and worst tenth. Not private."""
    bound: float | None = None
    """With per_client: the share of clients whose metric is worse than this, too; by default 0.5 for accuracy."""
    fold: Fold | None = None
    """K N: hold out the K-th of N parts of the training records, and evaluate on it in place of the test records."""
    output: Path | None = None
    """Run folder to make; by default runs/CONFIG-DATE-TIME."""
    data_dir: Path | None = None
    """Folder of prepared data sets; by default $TFDS_DATA_DIR, else ~/tensorflow_datasets."""
    layout: Layout = Layout()
    checkpoint: Checkpoint = Checkpoint()
    record: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Where else evaluations are recorded, beside metrics.jsonl; each needs a library that is installed."""
    keep_model: bool = True
    """Keep each trained model in the run folder, for `fp.load_model`; --keep-model false leaves it out."""

    def __post_init__(self) -> None:
        check_each(Number, rounds=self.rounds, seeds=self.seeds, every=self.every)
        check_each(Number, patience=self.patience, per_client=self.per_client)
        if self.bound is not None and self.per_client is None:
            raise ValueError(
                f"bound: {self.bound} has no use without per_client; give --per-client"
            )
        if self.stop_at is not None:
            target(self.stop_at)
        if self.fold is not None and not 1 <= self.fold[0] <= self.fold[1] != 1:
            raise ValueError(
                f"fold: {self.fold[0]} {self.fold[1]} is no part of several; give K N, the K-th of N from 2 up"
            )
        if self.seeds > MOST_SEEDS:
            raise ValueError(f"seeds: {self.seeds} exceeds {MOST_SEEDS}; choose fewer")
        for name in ("stop_at_epsilon", "target_epsilon"):
            budget = getattr(self, name)
            if budget is not None and not 0 < budget < math.inf:
                raise ValueError(
                    f"{name}: {budget} is not above 0 and finite; leave it out to train without"
                )
        if self.stop_at_epsilon is not None and self.target_epsilon is not None:
            raise ValueError(
                f"stop_at_epsilon: {self.stop_at_epsilon} ends training early, while target_epsilon finds the noise "
                "for all rounds; give one of them"
            )

    def records_left(self, total: int) -> int:
        """How many of so many training records are left for training where a fold is held out."""
        return total - len(range(total)[held_out(total, self.fold)]) if self.fold else total

    def with_noise(self, algorithm: str, noise: float) -> Self:
        """These settings with that much noise for the algorithm: what `target_epsilon` turns. More must cost less.

        Raises:
          ValueError: there is no field noise_multiplier, and the config's class does not say what to turn instead.
        """
        if not hasattr(self, "noise_multiplier"):
            raise ValueError(
                f"target_epsilon: the config has no field noise_multiplier for {algorithm}; give it one, or a method "
                "with_noise, or leave target_epsilon out"
            )
        return replace(self, noise_multiplier=noise)


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
      traced: what was read off the algorithms' rounds so far.
    """

    entries: dict[str, Entry]
    delta: float
    params: Any
    notes: tuple[str, ...] = ()
    traced: dict[str, TracedRound] = field(default_factory=dict, compare=False, repr=False)

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
        """The certificate of so many rounds."""
        traced = self.trace(name)
        return traced.certify(rounds, self.delta, view=view, honest=honest, best_of=best_of)

    def claim(self, name: str, rounds: int) -> Claim | None:
        """The paper's claim for so many rounds."""
        return self.entries[name].algorithm.claim(rounds, self.delta)


def blank(
    algorithm: Algorithm, example: Example, clients: int, records: int, public: int = 0
) -> Entry:
    """Of a ledger: clients with so many records each (and the server), of the shapes of `example`."""
    return Entry(algorithm, [Federation.blank(example, clients, records, public=public)])


def image(*shape: int, dtype: Any = np.uint8) -> Example:
    """The shapes of a labelled image."""
    return {"image": np.zeros(shape, dtype), "label": np.int32(0)}


@dataclass(frozen=True, eq=False)
class Experiment:
    """What the launcher runs: the entries one after the other, on the same model and test set.

    Attributes:
      model: what is trained.
      test: test examples, leaves [n, ...].
      delta: of the differential privacy guarantees.
      entries: by the algorithm's name.
      measure: makes what `simulate` takes for further numbers of every evaluation.
      notes: what the certificates assume or leave out.
      own_test: the test records are the clients', as is what they choose.
    """

    model: Model
    test: Example
    delta: float
    entries: dict[str, Entry]
    measure: Callable[[], Measure] | None = None
    notes: tuple[str, ...] = ()
    own_test: bool = False

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
        return (*own, *(name for metric in own for name in names_of(metric)))

    def measured(self, config: Run, name: str) -> Measure | None:
        """What `simulate` takes for further numbers of every evaluation of one algorithm."""
        each = [self.measure()] if self.measure else []
        if config.per_client is not None:
            each += self._of_clients(config, config.per_client, name)
        return measures.together(*each) if each else None

    def _of_clients(self, config: Run, clients: int, name: str) -> list[Measure]:
        """On what clients hold out, where they do; of their own models, too, where any algorithm has such."""
        entry = self.entries[name]
        of_clients = parsed(config.metric or "")
        metric = of_clients.metric if of_clients else config.metric
        metric = metric if metric in self.metrics else None
        on = "train" if entry.federations[0].held_out_rows is None else "held_out"
        what: tuple[Any, ...] = (self.model.score, clients, metric, config.bound, on)
        each = [measures.per_client(*what)]
        if any(e.algorithm.personal for e in self.entries.values()):
            personal = entry.algorithm.personal or (lambda state, client: state.params)
            each.append(measures.per_client(*what, personal))
        return each

    def selectable(self, config: Run) -> list[str]:
        """What the config's `metric` and `stop_at` may name: metrics of the score, and what is measured beside them.

        Raises:
          ValueError: what is measured is refused for.
        """
        stop = target(config.stop_at).metric if config.stop_at is not None else None
        if config.per_client is None and {config.metric, stop} <= {None, *self.metrics}:
            return self.metrics  # measuring may take long to prepare
        name, entry = next(iter(self.entries.items()))
        measure = self.measured(config, name)
        if measure is None:
            return self.metrics
        before, federation = self.ledger.trace(name).before, entry.federations[0]
        numbers = jax.eval_shape(lambda state: measure(state, federation), before)
        return [*self.metrics, *numbers]

    def stopping(self, config: Run) -> Stopping | None:
        """When to stop an algorithm before its last round, if the config says so.

        Raises:
          ValueError: the score has no such metric.
        """
        if config.stop_at is None and config.patience is None:
            return None
        given = (config.stop_at, config.patience, config.metric)
        return Stopping.of(*given, self.selectable(config), self.higher)

    @cached_property
    def ledger(self) -> Ledger:
        """With the shapes of the data."""
        return Ledger(self.entries, self.delta, self.model.init, self.notes)


def federations(
    data: Dataset,
    seeds: int,
    deal: Callable[[np.random.Generator], Sequence[np.ndarray]],
    held_out: Rate | None = None,
) -> list[Federation]:
    """One federation per seed, on the same examples; `deal` gives every client its rows, from the seed's generator.

    Args:
      held_out: the share of every client's rows that it is evaluated on and does not train on.
    """
    each: list[Federation] = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        rows, out = deal(rng), None
        if held_out is not None:
            out, rows = hold_out(rng, rows, held_out)
        if each:
            each.append(each[0].repartition(rows, held_out=out))
        else:
            options: Any = {"held_out": out, "num_classes": data.num_classes}
            each.append(Federation.from_arrays(data.train, rows, **options))
    return each


def ledger_of(module: Any, config: Run) -> Ledger:
    """What `config` would cost, from the module's `ledger`, or from the experiment where it has none."""
    own = getattr(module, "ledger", None)
    if own is None:
        return experiment_of(module, config).ledger
    return _given_back(own(config), Ledger, "ledger")


def experiment_of(module: Any, config: Run) -> Experiment:
    """What `config` describes, where it says so with a fold of the training records as its test records.

    Raises:
      ValueError: a fold is to be held out, and the module has a `build` alone.
    """
    if hasattr(module, "load") and hasattr(module, "on"):
        data = without_fold(module.load(config), config.fold)
        made = _given_back(module.on(config, data), Experiment, "on")
        return replace(made, own_test=made.own_test or config.fold is not None)
    if config.fold is not None:
        raise ValueError(
            "fold: the config has build alone, which loads all records; give it load and on, of which build is made"
        )
    return _given_back(module.build(config), Experiment, "build")


def _given_back(value: Any, kind: type[Given], function: str) -> Given:
    if not isinstance(value, kind):
        raise ValueError(
            f"config: its {function} gives {type(value).__name__}; give back experiments.config.{kind.__name__}"
        )
    return value


def strategy(layout: Layout) -> Strategy:
    """The layout with its defaults filled in; starts the backend."""
    from fedpriv.devices.layout import default

    standard = default()
    return Strategy(
        standard.clients if layout.clients is None else layout.clients,
        standard.devices if layout.devices is None else layout.devices * jax.process_count(),
    )
