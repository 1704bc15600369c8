"""Late clients: synchronous rounds, of all or of quick clients, beside buffered ones, in equal simulated hours.

    python -m experiments.run late --target-epsilon 8 --data-dir DIR

An MLP of 32 units on Fashion-MNIST over 1,200 clients of 50 images, whose classes are mixed by Dirichlet(1). An answer
takes 60 % of the clients one hour, 30 % two, and 10 % eight. 60 clients work at any time: a synchronous round of theirs
lasts eight hours, one of quick clients two, and a buffer of 30 answers is full after one. All are certified alike, each
for its own rounds and cohorts. What came out, and the server's rates: experiments/results/late.md.
"""

from dataclasses import dataclass

import numpy as np

import fedpriv as fp
from experiments.config import Experiment, Layout, Ledger, image
from experiments.config.fields import Single, check_each
from experiments.papers import late
from experiments.papers.fed_smp import Local
from experiments.papers.late import Late
from fedpriv.data.datasets import Dataset

IMAGES = 60_000
MODEL = fp.models.classifier(fp.models.MLP((32,), 10), (28, 28, 1))


@dataclass(frozen=True)
class OnImages(Late):
    """On images that are dealt out to clients."""

    alpha: float = 1.0
    """Concentration of each client's mixture of classes; small: few classes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_each(Single, alpha=self.alpha)


settings = OnImages(
    rounds=320,
    seeds=3,
    every=8,
    local=Local(epochs=1, batch_size=10, learning_rate=0.1, momentum=0.0, decay=1.0),
    layout=Layout(devices=1),
)


def ledger(settings: OnImages) -> Ledger:
    each = -(-settings.records_left(IMAGES) // settings.clients)
    return late.ledger(settings, MODEL, image(28, 28, 1), each)


def load(settings: OnImages) -> Dataset:
    return fp.datasets.load("fashion_mnist", settings.data_dir)


def on(settings: OnImages, data: Dataset) -> Experiment:
    labels = np.asarray(data.train["label"])

    def deal(rng: np.random.Generator) -> list[np.ndarray]:
        return fp.partition.dirichlet_mixtures(rng, labels, settings.clients, settings.alpha)

    return late.experiment(settings, data, MODEL, deal)
