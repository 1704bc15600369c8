"""Personal heads and personal models beside DP-FedAvg, on clients of few classes, each evaluated on its own records.

    fedpriv run personal --metric personal_accuracy_mean --data-dir DIR

Fashion-MNIST over 1,000 clients of 60 images, whose classes are mixed by Dirichlet(0.1). A fifth of each client's
images is held out. In FedPer and FedRep a client keeps the last layer of an MLP, in Ditto a whole model of its own.
What is shared is certified alike for all four; what a client keeps is no release. `held_out_accuracy_mean` is that of
the shared model on the images held out (of FedPer and FedRep with a head that nobody trained), `personal_accuracy_mean`
that of the clients' own.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import optax

import fedpriv as fp
from fedpriv.core.arguments import Probability
from fedpriv.core.types import LossFn
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.config import (
    Entry,
    Experiment,
    Layout,
    Ledger,
    Settings,
    blank,
    federations,
    image,
)
from fedpriv.experiments.config.fields import (
    Clients,
    Number,
    Single,
    SingleOrZero,
    check_each,
    each_once,
    mechanism,
)
from fedpriv.rounds.algorithm import Algorithm

Name = Literal["dp_fed_avg", "fed_per", "fed_rep", "ditto"]
IMAGES = 60_000
HEAD = ("Dense_1",)
MODEL = fp.models.classifier(fp.models.MLP((64,), 10), (28, 28, 1))


@dataclass(frozen=True)
class Personal(Settings):
    """DP-FedAvg, FedPer, FedRep and Ditto."""

    algorithms: tuple[Name, ...] = ("dp_fed_avg", "fed_per", "fed_rep", "ditto")
    """Algorithms to train, one after another."""
    clients: int = 1000
    """Number of clients, among which all images are divided equally."""
    alpha: float = 0.1
    """Concentration of each client's mixture of classes; small: few classes."""
    held_out: float = 0.2
    """Share of each client's images that are held out for evaluation."""
    cohort: int = 100
    """Expected clients per round; each takes part independently."""
    epochs: int = 1
    """Passes over a client's images per round."""
    head_epochs: int = 5
    """fed_rep: passes that train the head, before those for the body."""
    batch_size: int = 10
    """Images per step."""
    learning_rate: float = 0.1
    """Learning rate of the clients' SGD."""
    lam: float = 0.1
    """ditto: how strongly personal models are pulled to the global one; with 0 clients train theirs alone."""
    clip_norm: float = 1.0
    """Bound on the l2 norm of a client's update of the shared part."""
    noise_multiplier: float = 1.0
    """sigma; the cohort's sum gets noise of standard deviation clip_norm sigma."""
    delta: float = 1e-4
    """delta of the privacy guarantee."""

    def __post_init__(self) -> None:
        super().__post_init__()
        each_once(self.algorithms)
        check_each(Clients, clients=self.clients)
        check_each(Number, cohort=self.cohort, epochs=self.epochs, head_epochs=self.head_epochs)
        check_each(Number, batch_size=self.batch_size)
        check_each(Single, alpha=self.alpha, learning_rate=self.learning_rate)
        check_each(SingleOrZero, lam=self.lam)
        check_each(Probability, delta=self.delta, held_out=self.held_out)
        mechanism(self.clip_norm, self.noise_multiplier)
        if self.cohort > self.clients:
            raise ValueError(
                f"cohort: {self.cohort} exceeds the {self.clients} clients; choose fewer"
            )


settings = Personal(rounds=100, seeds=3, every=20, per_client=1000, layout=Layout(devices=1))


def algorithm(name: Name, settings: Personal, loss: LossFn) -> Algorithm:
    """One of the four, with the config's settings."""
    common: dict[str, Any] = {
        "sampler": fp.poisson(settings.clients, settings.cohort / settings.clients),
        "optimizer": lambda t: optax.sgd(settings.learning_rate),
        "batches": fp.epochs(settings.epochs, settings.batch_size),
    }
    private = {"clip_norm": settings.clip_norm, "noise_multiplier": settings.noise_multiplier}
    if name == "dp_fed_avg":
        return fp.dp_fed_avg(loss, **common, **private)
    common["mechanism"] = fp.gaussian(**private)
    if name == "ditto":
        return fp.ditto(loss, lam=settings.lam, **common)
    if name == "fed_per":
        return fp.fed_per(loss, head=HEAD, **common)
    head_batches = fp.epochs(settings.head_epochs, settings.batch_size)
    return fp.fed_rep(loss, head=HEAD, head_batches=head_batches, **common)


def ledger(settings: Personal) -> Ledger:
    each = -(-settings.records_left(IMAGES) // settings.clients)
    clients: Any = {"clients": settings.clients, "records": each, "held_out": settings.held_out}
    entries = {
        name: blank(algorithm(name, settings, MODEL.loss), image(28, 28, 1), **clients)
        for name in settings.algorithms
    }
    return Ledger(entries, settings.delta, MODEL.init)


def load(settings: Personal) -> Dataset:
    return fp.datasets.load("fashion_mnist", settings.data_dir)


def on(settings: Personal, data: Dataset) -> Experiment:
    labels = np.asarray(data.train["label"])

    def deal(rng: np.random.Generator) -> list[np.ndarray]:
        return fp.partition.dirichlet_mixtures(rng, labels, settings.clients, settings.alpha)

    dealt = federations(data, settings.seeds, deal, settings.held_out)
    entries = {
        name: Entry(algorithm(name, settings, MODEL.loss), dealt) for name in settings.algorithms
    }
    return Experiment(MODEL, data.test, settings.delta, entries)
