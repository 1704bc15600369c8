"""Late clients: synchronous rounds, of all or of quick clients, beside buffered ones, in equal simulated hours.

    fedpriv run late --target-epsilon 8 --data-dir DIR

An MLP of 32 units on Fashion-MNIST over 1,200 clients of 50 images, whose classes are mixed by Dirichlet(1). An answer
takes 60 % of the clients one hour, 30 % two, and 10 % eight. 60 clients work at any time: a synchronous round of theirs
lasts eight hours, one of quick clients two, and a buffer of 30 answers is full after one. All are certified alike, each
for its own rounds and cohorts. What came out, and the server's rates: experiments/results/late.md.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

import fedpriv as fp
from fedpriv.core.arguments import checked
from fedpriv.core.complaints import require
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.config import Experiment, Layout, Ledger, image
from fedpriv.experiments.config.fields import NumberOrZero, Single, check_each
from fedpriv.experiments.papers import late
from fedpriv.experiments.papers.fed_smp import Local
from fedpriv.experiments.papers.late import Late

IMAGES, LABELS = 60_000, 10
MODEL = fp.models.classifier(fp.models.MLP((32,), 10), (28, 28, 1))


@dataclass(frozen=True)
class OnImages(Late):
    """On images that are dealt out to clients."""

    alpha: float = 1.0
    """Concentration of each client's mixture of classes; small: few classes."""
    slow_labels: int = 0
    """The last so many of the ten labels are held by the slowest clients alone, who hold no other."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_each(Single, alpha=self.alpha)
        remedy = f"give at most {LABELS - 1} of the {LABELS} labels"
        few = checked("slow_labels", self.slow_labels, NumberOrZero) < LABELS
        require(few, "slow_labels", self.slow_labels, remedy)


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
    slow = settings.classes == np.argmax(settings.hours)
    theirs = labels >= LABELS - settings.slow_labels

    def deal(rng: np.random.Generator) -> list[np.ndarray]:
        mixtures = partial(fp.partition.dirichlet_mixtures, rng, labels, alpha=settings.alpha)
        if not settings.slow_labels:
            return mixtures(clients=settings.clients)
        both = [
            iter(mixtures(clients=int(who.sum()), rows=np.flatnonzero(rows)))
            for who, rows in ((~slow, ~theirs), (slow, theirs))
        ]
        return [next(both[int(is_slow)]) for is_slow in slow]

    return late.experiment(settings, data, MODEL, deal)
