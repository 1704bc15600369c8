"""Fine-tuning under privacy: a network that knows digits (public) learns clothes by adapters, by its head, or whole.

    python -m experiments.run fine_tuning --trained head --local.learning-rate 0.3 --target-epsilon 2 --data-dir DIR

The base is trained on MNIST, in the open; then 3,000 clients of 20 images of Fashion-MNIST train what `--trained` says
by DP-FedAvg: low-rank adapters of both kernels (LoRA, arXiv:2106.09685; 3,976 numbers), the last layer (1,010), or all
parameters from the base on (79,510). Client-level privacy. Expect 70.7, 72.1 and 77.4 % at epsilon 2, with rates of
0.1, 0.3 and 0.1 (experiments/results/fine_tuning.md). The other algorithms of the quickstart are there, too.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fedpriv as fp
from experiments.config import Experiment, Ledger, image
from experiments.config.fields import Number, check_each
from experiments.papers import fed_smp
from experiments.papers.fed_smp import FedSMP, Local, experiment
from fedpriv import datasets, models
from fedpriv.core.types import Params
from fedpriv.data.datasets import Dataset

NETWORK = models.classifier(models.MLP((100,), 10), (28, 28, 1))


@dataclass(frozen=True)
class FineTuning(FedSMP):
    """DP-FedAvg of a part of a network whose base is public."""

    trained: Literal["adapters", "head", "all"] = "adapters"
    """What the clients train of the network: low-rank adapters of its kernels, its last layer, or all of it."""
    rank: int = 4
    """Of the adapters."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_each(Number, rank=self.rank)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the certificates leave out."""
        return ("the base was trained on MNIST, whose images are taken to be public",)

    def model(self, base: Params) -> models.Model:
        """The network with `base`, and what is trained of it."""
        if self.trained == "adapters":
            return models.adapters(NETWORK, base, self.rank)
        if self.trained == "head":
            return models.frozen(NETWORK, base, trainable="Dense_1")
        return NETWORK._replace(init=lambda key: base)


settings = FineTuning(
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
    """The network's parameters after two passes over MNIST: FedAvg of one client who holds all of it."""
    data = datasets.load("mnist", data_dir)
    everything = [np.arange(len(data.train["label"]))]
    digits = fp.Federation.from_arrays(data.train, everything, num_classes=10)
    algorithm = fp.fed_avg(
        NETWORK.loss,
        sampler=fp.everyone(1),
        optimizer=lambda t: optax.sgd(0.1),
        batches=fp.epochs(2, batch_size=20),
    )
    given = {"score": NETWORK.score, "rounds": 1, "strategy": fp.Strategy(devices=1)}
    return fp.simulate(algorithm, NETWORK.init, digits, data.test, **given).params()


def ledger(settings: FineTuning) -> Ledger:
    shapes = jax.eval_shape(NETWORK.init, jax.random.key(0))
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return fed_smp.ledger(settings, settings.model(blank), image(28, 28, 1))


def load(settings: FineTuning) -> Dataset:
    return datasets.load("fashion_mnist", settings.data_dir)


def on(settings: FineTuning, data: Dataset) -> Experiment:
    base = trained_on_digits(settings.data_dir or datasets.default_data_dir())
    return experiment(settings, data, settings.model(base))
