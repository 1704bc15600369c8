"""The settings that every experiment has, and how they are changed: by name, nested ones by dots or mappings."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, TypeVar

import numpy as np

from fedpriv.core.arguments import NonNegative, checked
from fedpriv.core.complaints import require
from fedpriv.core.json_values import field_kinds, flat, of_kind, plain
from fedpriv.experiments.config.fields import Number, check_each
from fedpriv.experiments.config.folds import Fold, held_out
from fedpriv.experiments.config.groups import NO_GROUPS, Groups
from fedpriv.experiments.config.intervals import intervals_of
from fedpriv.experiments.config.stopping import target

View: TypeAlias = Literal["third_party", "server", "server_secagg"]
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
    """Settings of checkpoints, from which --resume continues: at an evaluation, whichever is due first."""

    rounds: int | None = None
    """Take a checkpoint at the first evaluation at least so many rounds after the last one."""
    minutes: float | None = 10.0
    """Likewise, in minutes; None: not by the clock."""

    def __post_init__(self) -> None:
        check_each(Number, **{"checkpoint.rounds": self.rounds})
        checked("checkpoint.minutes", self.minutes, NonNegative | None)


@dataclass(frozen=True)
class Settings:
    """Settings that every experiment has."""

    rounds: int = 100
    """Communication rounds T."""
    seeds: int = 1
    """Number of seeds. Seed s draws the partition, the initial model and everything random in training."""
    every: int = 5
    """Rounds between evaluations on the test set."""
    metric: str | None = None
    """Metric in progress, table and picture: one of the score or of further measures
    (held_out_accuracy_mean); by default accuracy, else loss. All are recorded, and --resume may show another. Of a
    private one the last value is shown, and no best one."""
    stop_at_epsilon: float | None = None
    """Stop each private algorithm before its certified epsilon (`view`) exceeds this; others train on."""
    target_epsilon: float | None = None
    """Choose each private algorithm's noise so that all its rounds cost this certified epsilon (`view`)."""
    statistics: float | None = None
    """Spend this share of target_epsilon on the features' mean and variance, released before training, which then is on
    features normalised by them. All seeds train on the clients of seed 0, of which these are."""
    statistics_bounds: tuple[float, float] | tuple[str, ...] | None = None
    """With statistics, what the features lie between, known without looking at them: LOW HIGH for all, by default 0 255
    for images of bytes; or NAME=LOW:HIGH for each that is normalised, as age=0:110 lab=0:300, and no other is."""
    view: View = "third_party"
    """View of the epsilon that is shown, solved for and stopped at."""
    views: Literal["one", "all"] = "one"
    """Epsilons in the table: that of `view`, or `all`."""
    stop_at: str | None = None
    """NAME=VALUE, such as accuracy=0.8: end each algorithm at the first evaluation where the metric, averaged over the
    seeds, is that good. The metric has to be public, or in not_covered. Choosing the end by the test set makes its
    accuracy optimistic."""
    patience: int | None = None
    """End each algorithm after so many evaluations without a better mean metric (see metric). The metric has to be
    public, or in not_covered."""
    not_covered: tuple[str, ...] = ()
    """Private metrics by which stop_at, patience, or the best of metric choose a round all the same: numbers on
    training records, and on those that clients hold out. No epsilon covers that: all are infinite, and say why."""
    per_client: int | None = None
    """Also evaluate so many clients, each on its held-out records, or on its training records if the config holds out
    none: mean over clients, pooled over records, median and worst tenth. Not private."""
    bound: float | None = None
    """With per_client: also give the share of clients whose metric is worse than this; by default 0.5 for accuracy."""
    fold: Fold | None = None
    """K N: hold out the K-th of N parts of the training records, and evaluate on it in place of the test records."""
    output: Path | None = None
    """New run folder; by default runs/CONFIG-DATE-TIME."""
    data_dir: Path | None = None
    """Folder of prepared data sets; by default $TFDS_DATA_DIR, else ~/tensorflow_datasets."""
    layout: Layout = Layout()
    checkpoint: Checkpoint = Checkpoint()
    record: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ()
    """Where to record evaluations beside metrics.jsonl; each needs an installed library. They get public numbers."""
    record_private: bool = False
    """Also give to `record`, and to `sinks` in Python, what no epsilon covers, under names that end in _not_private."""
    keep_model: bool = True
    """Keep each trained model in the run folder, for `fp.models.load_model`; --keep-model false does not."""

    def __post_init__(self) -> None:
        check_each(Number, rounds=self.rounds, seeds=self.seeds, every=self.every)
        check_each(Number, patience=self.patience, per_client=self.per_client)
        if self.bound is not None and self.per_client is None:
            raise ValueError(
                f"bound: {self.bound} has no effect without per_client; give --per-client"
            )
        if self.stop_at is not None:
            target(self.stop_at)
        if self.fold is not None and not 1 <= self.fold[0] <= self.fold[1] != 1:
            raise ValueError(
                f"fold: {self.fold[0]} {self.fold[1]} is not a part of several; give K N, the K-th of N, with N at "
                "least 2"
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
                f"stop_at_epsilon: {self.stop_at_epsilon} ends training early, while target_epsilon chooses the "
                "noise for all rounds; give one of them"
            )
        if self.group_epsilons and (self.stop_at_epsilon or self.target_epsilon) is not None:
            raise ValueError(
                f"groups.epsilons: {self.group_epsilons} choose the noise for all rounds; leave out target_epsilon and "
                "stop_at_epsilon"
            )
        self._check_statistics()
        for field in ("target_epsilon", "stop_at_epsilon"):
            remedy = f"every epsilon is infinite with not_covered ({' '.join(self.not_covered)}); leave one of them out"
            wanted = getattr(self, field)
            require(wanted is None or not self.not_covered, field, wanted, remedy)
        remedy = "with not_covered every epsilon is infinite; leave one of them out"
        budgets = self.group_epsilons
        require(not budgets or not self.not_covered, "groups.epsilons", budgets, remedy)

    @property
    def group_epsilons(self) -> tuple[float, ...]:
        """The epsilon of each public group, where a config has a field `groups` and they are wanted."""
        groups: Groups = getattr(self, "groups", NO_GROUPS)
        return groups.epsilons

    def _check_statistics(self) -> None:
        share, bounds = self.statistics, self.statistics_bounds
        inside = share is None or 0 < share < 1
        remedy = "give the share of target_epsilon that they may cost, between 0 and 1"
        require(inside, "statistics", share, remedy)
        remedy = "it is a share of target_epsilon, for which groups.epsilons leave no place; leave one of them out"
        require(share is None or not self.group_epsilons, "statistics", share, remedy)
        remedy = "it is a share of target_epsilon; give that, too"
        require(share is None or self.target_epsilon is not None, "statistics", share, remedy)
        if bounds is not None:
            remedy = "has no effect without statistics; give --statistics, such as 0.1"
            require(share is not None, "statistics_bounds", bounds, remedy)
            intervals_of(bounds)

    def records_left(self, total: int) -> int:
        """How many of so many training records are left for training where a fold is held out."""
        return total - len(range(total)[held_out(total, self.fold)]) if self.fold else total

    def rounds_of(self, algorithm: str) -> int:
        """Rounds that an algorithm trains: `rounds`, unless the config's class gives it more or fewer."""
        return self.rounds

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
        changes: dict[str, Any] = {"noise_multiplier": noise}
        return replace(self, **changes)


AnySettings = TypeVar("AnySettings", bound=Settings)


def changed(settings: AnySettings, given: Mapping[str, Any]) -> AnySettings:
    """The settings, with others in their place: `{"rounds": 10, "local.epochs": 2}` or `{"local": {"epochs": 2}}`.

    Raises:
      ValueError: there is no such setting, or a value is not of its kind.
    """
    known = list(flat(plain(settings)))
    return _changed(settings, given, "", known)


def _changed(part: Any, given: Mapping[str, Any], prefix: str, known: list[str]) -> Any:
    hints, values = field_kinds(type(part)), dict[str, Any]()
    for name, value in given.items():
        field, _, inner = str(name).replace("-", "_").partition(".")
        if field not in {f.name for f in fields(part)}:
            near = difflib.get_close_matches(prefix + field, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"{prefix}{name}: there is no such setting{hint}")
        now = values.get(field, getattr(part, field))
        value = {inner: value} if inner else value
        if is_dataclass(now) and isinstance(value, Mapping):
            values[field] = _changed(now, value, f"{prefix}{field}.", known)
        else:
            values[field] = of_kind(hints[field], _python(value), prefix + field)
    return replace(part, **values)


def _python(value: Any) -> Any:
    """NumPy's and JAX's numbers as Python's."""
    if isinstance(value, list | tuple):
        return [_python(one) for one in value]
    if isinstance(value, np.generic) or getattr(value, "shape", None) == ():
        return value.item()
    return value


def as_typed(value: Any) -> str:
    """A value as a user types it; several words are those of a list."""
    if isinstance(value, list | tuple):
        return " ".join(map(as_typed, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
