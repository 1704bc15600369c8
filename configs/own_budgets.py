"""Half of everybody asks for epsilon 1, half for 8: DP-FedAvg, Fed-SMP and DP-SGD with public groups.

    fedpriv run own_budgets --groups.epsilons 1 8 --data-dir DIR

Fashion-MNIST. DP-FedAvg and Fed-SMP (rand_k) protect 400 clients of 150 images, Poisson cohorts of 40 on average;
DP-SGD protects 6,000 images of one holder. Finds the noise and each group's rate; `--groups.by clip_scales` finds clip
norms.
Expect 78.7 % for DP-FedAvg, 80.7 % for rand_k, 77.8 % for DP-SGD (spread 0.5 to 0.7), where `--groups.names
--target-epsilon 1`, without groups, has 67.4, 71.7 and 66.7 %. What came out: experiments/results/own_budgets.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import optax

import fedpriv as fp
from fedpriv.core.arguments import Rate
from fedpriv.core.complaints import require
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.config import (
    Entry,
    Experiment,
    Groups,
    Layout,
    Ledger,
    blank,
    federations,
    image,
)
from fedpriv.experiments.config.fields import Number, Single, check_each
from fedpriv.experiments.papers import fed_smp
from fedpriv.experiments.papers.fed_smp import FedSMP, Local
from fedpriv.rounds.algorithm import Algorithm

IMAGES = 60_000
MODEL = fp.models.classifier(fp.models.MLP((64,), 10), (28, 28, 1))


@dataclass(frozen=True)
class OwnBudgets(FedSMP):
    """Fed-SMP and DP-FedAvg, which protect clients, and DP-SGD, which protects images."""

    algorithms: tuple[fed_smp.Name | Literal["dp_sgd"], ...] = ("dp_fed_avg", "rand_k", "dp_sgd")  # type: ignore[assignment]
    """Algorithms to train, one after another."""
    images: int = 6000
    """dp_sgd: images, all of which one client holds."""
    image_rate: float = 0.05
    """dp_sgd: probability of an image to be drawn in a step; with rates of groups, on average."""
    image_steps: int = 10
    """dp_sgd: steps of a round."""
    image_step: float = 0.5
    """dp_sgd: learning rate of a step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_each(Number, images=self.images, image_steps=self.image_steps)
        check_each(Rate, image_rate=self.image_rate)
        check_each(Single, image_step=self.image_step)
        require(self.images <= IMAGES, "images", self.images, f"there are {IMAGES}; choose fewer")


settings = OwnBudgets(
    rounds=60,
    seeds=3,
    every=20,
    clients=400,
    cohort=40,
    sampling="poisson",
    delta=1e-5,
    groups=Groups(("strict", "lenient")),
    local=Local(epochs=1, batch_size=10, learning_rate=0.1, momentum=0.0, decay=1.0),
    layout=Layout(devices=1),
)


def dp_sgd(settings: OwnBudgets) -> Algorithm:
    """DP-SGD of one client, which holds all images."""
    local = fp.LocalSteps(
        fp.per_example(MODEL.loss),
        settings.groups.records([settings.images], settings.image_rate),
        settings.image_steps,
        lambda t: optax.sgd(settings.image_step),
        fp.gaussian(settings.clip_norm, settings.noise_multiplier),
    )
    return fp.dp_sgd(local, sampler=fp.everyone(1))


def _entries(
    settings: OwnBudgets,
    of_clients: Callable[[OwnBudgets], Mapping[str, Entry]],
    of_images: Callable[[Algorithm], Entry],
) -> dict[str, Entry]:
    """In the order of the settings.

    Args:
      of_clients: makes entries of the algorithms that protect clients.
      of_images: makes that of dp_sgd.
    """
    names: Any = tuple(name for name in settings.algorithms if name != "dp_sgd")
    made = dict(of_clients(replace(settings, algorithms=names))) if names else {}
    if "dp_sgd" in settings.algorithms:
        made["dp_sgd"] = of_images(dp_sgd(settings))
    return {name: made[name] for name in settings.algorithms}


def ledger(settings: OwnBudgets) -> Ledger:
    example = image(28, 28, 1)
    entries = _entries(
        settings,
        lambda own: fed_smp.ledger(own, MODEL, example).entries,
        lambda algorithm: blank(algorithm, example, 1, settings.images),
    )
    return Ledger(entries, fed_smp.delta(settings, settings.clients), MODEL.init)


def load(settings: OwnBudgets) -> Dataset:
    return fp.datasets.load("fashion_mnist", settings.data_dir)


def on(settings: OwnBudgets, data: Dataset) -> Experiment:
    def deal(rng: np.random.Generator) -> list[np.ndarray]:
        return [rng.permutation(len(data.train["label"]))[: settings.images]]

    entries = _entries(
        settings,
        lambda own: fed_smp.experiment(own, data, MODEL).entries,
        lambda algorithm: Entry(algorithm, federations(data, settings.seeds, deal)),
    )
    return Experiment(MODEL, data.test, fed_smp.delta(settings, settings.clients), entries)
