"""Fresh noise beside correlated noise, for clients whose turns everybody knows, and beside secret Poisson cohorts.

    fedpriv run correlated --target-epsilon 8 --data-dir DIR

An MLP of 32 units on MNIST over 1,200 clients of 50 images, whose classes are mixed by Dirichlet(1). Cohorts of 60 take
turns in a shuffled order, so that a client takes part every 20 rounds, 10 times in 200. Certificates are of clients who
are zeroed out, as their turns are no secret; those of `poisson` are of clients who are added or removed, and hold only
where nobody knows who takes part. Every server but that of `dp_fed_avg` has momentum. What came out, and the server's
rates: experiments/results/correlated.md.
"""

from dataclasses import dataclass

import numpy as np

import fedpriv as fp
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.config import Experiment, Layout, Ledger, federations, image
from fedpriv.experiments.config.fields import Single, check_each
from fedpriv.experiments.papers import correlated
from fedpriv.experiments.papers.correlated import Correlated, experiment
from fedpriv.experiments.papers.fed_smp import Local

IMAGES = 60_000
MODEL = fp.models.classifier(fp.models.MLP((32,), 10), (28, 28, 1))


@dataclass(frozen=True)
class OnImages(Correlated):
    """On images that are dealt out to clients."""

    alpha: float = 1.0
    """Concentration of each client's mixture of classes; small: few classes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_each(Single, alpha=self.alpha)


settings = OnImages(
    rounds=200,
    seeds=3,
    every=40,
    local=Local(epochs=1, batch_size=10, learning_rate=0.1, momentum=0.0, decay=1.0),
    layout=Layout(devices=1),
)


def ledger(settings: OnImages) -> Ledger:
    each = -(-settings.records_left(IMAGES) // settings.clients)
    return correlated.ledger(settings, MODEL, image(28, 28, 1), each)


def load(settings: OnImages) -> Dataset:
    return fp.datasets.load("mnist", settings.data_dir)


def on(settings: OnImages, data: Dataset) -> Experiment:
    labels = np.asarray(data.train["label"])

    def deal(rng: np.random.Generator) -> list[np.ndarray]:
        return fp.partition.dirichlet_mixtures(rng, labels, settings.clients, settings.alpha)

    return experiment(settings, data, MODEL, federations(data, settings.seeds, deal))
