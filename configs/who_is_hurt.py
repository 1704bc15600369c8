"""What epsilon costs the smallest group: clients in three public groups of unequal size, each of its own kind of image.

    fedpriv sweep who_is_hurt --grid target-epsilon=8,2,1 --data-dir DIR
    fedpriv sweep who_is_hurt --data emnist --grid target-epsilon=8,2,1 --data-dir DIR

3,000 clients train an MLP together. Of Fashion-MNIST, 80 % of the clients take pictures upright, 15 % sideways, 5 %
upside down. Of EMNIST ByMerge (its test split alone), a client writes digits (half of all images), capitals (a third)
or small letters (a sixth). FedAvg is not private; `no_noise` has the clip of DP-FedAvg and not its noise. Every
evaluation has each group's accuracy on the images that its clients hold out, and on the test images of its kind.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import optax

import fedpriv as fp
from fedpriv.core.arguments import Probability
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
    check_each,
    each_once,
    mechanism,
)
from fedpriv.models.networks import Model
from fedpriv.rounds.algorithm import Algorithm

Name = Literal["fed_avg", "no_noise", "dp_fed_avg"]
TURNED = {"upright": 0, "sideways": 1, "upside down": 2}  # quarter turns
SHARES = (0.8, 0.15, 0.05)
WRITTEN = {"digits": 0, "capitals": 10, "small letters": 36}  # the first class of each


@dataclass(frozen=True)
class WhoIsHurt(Settings):
    """FedAvg and DP-FedAvg on clients in three groups of unequal size."""

    algorithms: tuple[Name, ...] = ("fed_avg", "no_noise", "dp_fed_avg")
    """Algorithms to train, one after another."""
    data: Literal["fashion_mnist", "emnist"] = "fashion_mnist"
    """Images; of `emnist` the test split of ByMerge, of which a seventh is the test set."""
    clients: int = 3000
    """Number of clients; each group's number is its share of the images."""
    held_out: float = 0.2
    """Share of each client's images that are held out for evaluation."""
    cohort: int = 300
    """Expected clients per round; each takes part independently."""
    hidden: int = 32
    """Width of the MLP's hidden layer."""
    epochs: int = 4
    """Passes over a client's images per round."""
    batch_size: int = 8
    """Images per step."""
    learning_rate: float = 0.1
    """Learning rate of the clients' SGD."""
    clip_norm: float = 1.0
    """Bound on the l2 norm of a client's update."""
    noise_multiplier: float = 1.0
    """sigma; the cohort's sum gets noise of standard deviation clip_norm sigma."""
    delta: float = 1e-5
    """delta of the privacy guarantee."""

    def __post_init__(self) -> None:
        super().__post_init__()
        each_once(self.algorithms)
        check_each(Clients, clients=self.clients)
        check_each(Number, cohort=self.cohort, epochs=self.epochs, hidden=self.hidden)
        check_each(Number, batch_size=self.batch_size)
        check_each(Single, learning_rate=self.learning_rate)
        check_each(Probability, delta=self.delta, held_out=self.held_out)
        mechanism(self.clip_norm, self.noise_multiplier)
        if not self.cohort <= self.clients:
            raise ValueError(
                f"cohort: {self.cohort} exceeds the {self.clients} clients; choose fewer"
            )


settings = WhoIsHurt(rounds=100, seeds=3, every=20, layout=Layout(devices=1))


def model(settings: WhoIsHurt) -> Model:
    classes = 10 if settings.data == "fashion_mnist" else 47
    return fp.models.classifier(fp.models.MLP((settings.hidden,), classes), (28, 28, 1))


def algorithm(name: Name, settings: WhoIsHurt) -> Algorithm:
    loss = model(settings).loss
    common: dict[str, Any] = {
        "sampler": fp.poisson(settings.clients, settings.cohort / settings.clients),
        "optimizer": lambda t: optax.sgd(settings.learning_rate),
        "batches": fp.epochs(settings.epochs, settings.batch_size),
    }
    if name == "fed_avg":
        return fp.fed_avg(loss, **common)
    noise = 0.0 if name == "no_noise" else settings.noise_multiplier
    return fp.dp_fed_avg(loss, **common, clip_norm=settings.clip_norm, noise_multiplier=noise)


def ledger(settings: WhoIsHurt) -> Ledger:
    total = 60_000 if settings.data == "fashion_mnist" else 100_038
    each = -(-settings.records_left(total) // settings.clients)
    clients: Any = {"clients": settings.clients, "records": each, "held_out": settings.held_out}
    entries = {
        name: blank(algorithm(name, settings), image(28, 28, 1), **clients)
        for name in settings.algorithms
    }
    return Ledger(entries, settings.delta, model(settings).init)


def load(settings: WhoIsHurt) -> Dataset:
    if settings.data == "fashion_mnist":
        return fp.datasets.load("fashion_mnist", settings.data_dir)
    whole = fp.datasets.load("emnist/bymerge", settings.data_dir, train=("test",))
    test = np.arange(len(whole.train["label"])) % 7 == 6  # the prepared files are shuffled
    train, held = ({k: v[rows] for k, v in whole.train.items()} for rows in (~test, test))
    return whole._replace(train=train, test=held)


def on(settings: WhoIsHurt, data: Dataset) -> Experiment:
    train, kinds = in_kinds(settings, data.train)
    test, test_kinds = in_kinds(settings, data.test)
    names, shares = np.unique(kinds, return_counts=True)
    each = clients_of(settings, shares / len(kinds))

    def deal(rng: np.random.Generator) -> list[np.ndarray]:
        parts: list[np.ndarray] = []
        for name, number in zip(names, each, strict=True):
            parts += np.array_split(rng.permutation(np.flatnonzero(kinds == name)), number)
        return parts

    dealt = federations(data._replace(train=train), settings.seeds, deal, settings.held_out)
    entries = {name: Entry(algorithm(name, settings), dealt) for name in settings.algorithms}
    groups = np.repeat(names, each)
    return Experiment(
        model(settings), test, settings.delta, entries, groups=groups, groups_of_test=test_kinds
    )


def in_kinds(
    settings: WhoIsHurt, images: dict[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Images of three kinds, and the kind of each, which is public: a column of the camera, or of what was written."""
    label = np.asarray(images["label"])
    if settings.data == "emnist":
        return images, np.array([*WRITTEN])[
            np.searchsorted([*WRITTEN.values()], label, "right") - 1
        ]
    ends = np.round(np.cumsum(SHARES) * len(label)).astype(int)
    turns = np.searchsorted(ends, np.random.default_rng(0).permutation(len(label)), "right")
    pixels = np.array(images["image"])
    for quarters in TURNED.values():
        own = turns == quarters
        pixels[own] = np.rot90(pixels[own], quarters, (1, 2))
    return {**images, "image": pixels}, np.array([*TURNED])[turns]


def clients_of(settings: WhoIsHurt, shares: np.ndarray) -> np.ndarray:
    """How many clients each group has, at least one, in all as many as the settings say."""
    each = np.maximum(1, np.round(settings.clients * shares).astype(int))
    each[np.argmax(each)] += settings.clients - each.sum()
    if each.min() < 1:
        raise ValueError(f"clients: {settings.clients} is too few for three groups; give 3 or more")
    return each
