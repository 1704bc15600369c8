"""Half of everybody asks for epsilon 1, half for 8: Fed-SMP, DP-FedAvg and DP-SGD with public groups.

    python -m experiments.run own_budgets --data-dir DIR
    python -m experiments.run own_budgets --groups.by clip_scales --data-dir DIR

"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import optax

import fedpriv as fp
from experiments.config import Entry, Experiment, Layout, Ledger, blank, federations, image
from experiments.config.fields import Clients, check_each
from experiments.config.groups import Groups
from experiments.papers import fed_smp
from experiments.papers.fed_smp import FedSMP, Local
from fedpriv.core.arguments import Rate
from fedpriv.data.datasets import Dataset
from fedpriv.rounds.algorithm import Algorithm

IMAGES = 60_000
MODEL = fp.models.classifier(fp.models.MLP((64,), 10), (28, 28, 1))


@dataclass(frozen=True)
class OwnBudgets(FedSMP):
    """Fed-SMP and DP-FedAvg, which protect clients, and DP-SGD, which protects images."""

    algorithms: tuple[fed_smp.Name | Literal["dp_sgd"], ...] = ("dp_fed_avg", "rand_k", "dp_sgd")  # type: ignore[assignment]
    """Algorithms to train, one after another."""
    holders: int = 10
    """dp_sgd: number of clients, each of which takes part in every round and holds images of every group."""
    record_rate: float = 0.05
    """dp_sgd: probability of an image to be drawn in a round, where no other is given for its group."""
    record_step: float = 1.0
    """dp_sgd: learning rate of the step that a round is."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_each(Clients, holders=self.holders)
        check_each(Rate, record_rate=self.record_rate)


settings = OwnBudgets(
    rounds=60,
    seeds=3,
    every=20,
    clients=400,
    cohort=40,
    sampling="poisson",
    delta=1e-5,
    groups=Groups(("strict", "lenient"), epsilons=(1.0, 8.0)),
    local=Local(epochs=1, batch_size=10, learning_rate=0.1, momentum=0.0, decay=1.0),
    layout=Layout(devices=1),
)


def dp_sgd(settings: OwnBudgets) -> Algorithm:
    sizes = [len(rows) for rows in np.array_split(np.arange(settings.records_left(IMAGES)), settings.holders)]
    local = fp.LocalSteps(
        fp.per_example(MODEL.loss),
        settings.groups.records(sizes, settings.record_rate),
        1,
        lambda t: optax.sgd(settings.record_step),
        fp.gaussian(settings.clip_norm, settings.noise_multiplier),
    )
    return fp.dp_sgd(local, sampler=fp.everyone(settings.holders), together=True)


def _of_clients(settings: OwnBudgets) -> OwnBudgets:
    names = tuple(name for name in settings.algorithms if name != "dp_sgd")
    return replace(settings, algorithms=names)


def ledger(settings: OwnBudgets) -> Ledger:
    made = fed_smp.ledger(settings, MODEL, image(28, 28, 1))
    return made


def load(settings: OwnBudgets) -> Dataset:
    return fp.datasets.load("fashion_mnist", settings.data_dir)
