"""Fine-tuning under privacy: a network that knows digits (public) learns clothes by adapters, by its head, or whole.

    fedpriv run fine_tuning --trained head --local.learning-rate 0.3 --target-epsilon 2 --data-dir DIR

The base is trained on MNIST, in the open; then 3,000 clients of 20 images of Fashion-MNIST train what `--trained` says
by DP-FedAvg: low-rank adapters of both kernels (LoRA, arXiv:2106.09685; 3,976 numbers), the last layer (1,010), or all
parameters from the base on (79,510). Client-level privacy. Expect 70.7, 72.1 and 77.4 % at epsilon 2, with rates of
0.1, 0.3 and 0.1 (experiments/results/fine_tuning.md). The other algorithms of the quickstart are there, too.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

import optax

import fedpriv as fp
from fedpriv import datasets, models
from fedpriv.core.types import Params
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.config import Experiment, Ledger, image
from fedpriv.experiments.papers import fed_smp
from fedpriv.experiments.papers.fed_smp import Local, experiment
from fedpriv.experiments.papers.fine_tuning import FineTuning, trained_openly


@dataclass(frozen=True)
class ToClothes(FineTuning):
    """DP-FedAvg of a part of a network that was trained on digits."""

    NETWORK: ClassVar[models.Model] = models.classifier(models.MLP((100,), 10), (28, 28, 1))
    HEAD: ClassVar[str] = "Dense_1"
    PUBLIC: ClassVar[str] = "the base was trained on MNIST, whose images are taken to be public"


settings = ToClothes(
    algorithms=("dp_fed_avg",),
    rounds=60,
    seeds=3,
    every=10,
    clients=3000,
    cohort=100,
    sampling="poisson",
    delta=1e-4,
    local=Local(epochs=2, batch_size=10, learning_rate=0.1, momentum=0.0, decay=1.0),
)


@cache
def trained_on_digits(data_dir: Path) -> Params:
    """The network's parameters after two passes over MNIST."""
    digits = datasets.load("mnist", data_dir)
    batches = fp.epochs(2, batch_size=20)
    return trained_openly(ToClothes.NETWORK, digits, batches, lambda t: optax.sgd(0.1))


def ledger(settings: ToClothes) -> Ledger:
    return fed_smp.ledger(settings, settings.model(), image(28, 28, 1))


def load(settings: ToClothes) -> Dataset:
    return datasets.load("fashion_mnist", settings.data_dir)


def on(settings: ToClothes, data: Dataset) -> Experiment:
    base = trained_on_digits(settings.data_dir or datasets.default_data_dir())
    return experiment(settings, data, settings.model(base))
