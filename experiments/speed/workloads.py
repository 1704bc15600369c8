"""Workloads A, B, D, E and F: the rounds that are timed, and what work there is in them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np
import optax

import fedpriv
from experiments.speed import examples


class Trains(Protocol):
    """A workload's model and what trains it."""

    def model(self) -> fedpriv.models.Model: ...


class Workload(Trains, Protocol):
    """A workload: a round of `clients` clients."""

    @property
    def clients(self) -> int:
        """By default."""

    def flop_per_client(self) -> int:
        """Of the matrix products alone."""

    def algorithm(self, clients: int) -> fedpriv.Algorithm: ...

    def federation(self, clients: int) -> fedpriv.Federation: ...


@dataclass(frozen=True)
class LocalSGD(ABC):
    """A DP-FedAvg round. A client's batch is all of its examples, so that it takes `epochs` steps."""

    clients: int = 100
    examples: int = 10
    epochs: int = 10
    rate: float = 0.125
    momentum: float = 0.5
    clip_norm: float = 1.0
    noise_multiplier: float = 1.4

    @abstractmethod
    def model(self) -> fedpriv.models.Model:
        """What clients train."""

    def algorithm(self, clients: int) -> fedpriv.Algorithm:
        return fedpriv.dp_fed_avg(
            self.model().loss,
            sampler=fedpriv.everyone(clients),
            optimizer=lambda t: optax.sgd(self.rate, self.momentum),
            batches=fedpriv.epochs(self.epochs, self.examples),
            clip_norm=self.clip_norm,
            noise_multiplier=self.noise_multiplier,
        )


@dataclass(frozen=True)
class Images(LocalSGD):
    """A workload with a CNN; of no filters, dense layers alone."""

    side: int = 28
    filters: tuple[int, ...] = (32, 64)
    hidden: tuple[int, ...] = (512,)

    def model(self) -> fedpriv.models.Model:
        network = fedpriv.models.CNN(self.filters, self.hidden, 10)
        return fedpriv.models.classifier(network, (self.side, self.side, 1))

    def flop_per_client(self) -> int:
        """Forward, gradient of the weights and, but for the first layer, gradient of the input."""
        kernels = [layer["kernel"].size for layer in shapes(self)["params"].values()]
        sides = [self.side // 2**i for i in range(len(self.filters))]
        uses = [side**2 for side in sides] + [1] * (len(self.hidden) + 1)
        products = [2 * kernel * use for kernel, use in zip(kernels, uses, strict=True)]
        return self.epochs * self.examples * (3 * sum(products) - products[0])

    def federation(self, clients: int) -> fedpriv.Federation:
        return _federation(*examples.images(self, clients, self.examples), classes=10)


@dataclass(frozen=True)
class Texts(LocalSGD):
    """A workload with Fed-SMP's network for Shakespeare: two LSTM layers that predict the next character."""

    clients: int = 10
    examples: int = 4
    epochs: int = 3
    length: int = 80
    vocabulary: int = 90
    embedding: int = 8
    hidden: int = 256

    def model(self) -> fedpriv.models.Model:
        return fedpriv.models.shakespeare_lstm()

    def flop_per_client(self) -> int:
        """Forward, gradient of the weights and gradient of the input, which the embedding needs, too."""
        gates, width = 4 * self.hidden, self.hidden
        per_character = (
            gates * (self.embedding + width) + gates * 2 * width + width * self.vocabulary
        )
        return self.epochs * self.examples * self.length * 3 * 2 * per_character

    def federation(self, clients: int) -> fedpriv.Federation:
        text = examples.texts(self, clients, self.examples)
        given = {
            "text": text[..., :-1],
            "label": text[..., 1:],
            "mask": np.ones_like(text[..., 1:]),
        }
        flat = {name: x.reshape(-1, self.length) for name, x in given.items()}
        rows = np.arange(clients * self.examples).reshape(clients, -1)
        return fedpriv.Federation.from_arrays(flat, list(rows), num_classes=self.vocabulary)


@dataclass(frozen=True)
class Records:
    """A workload of DP-SCAFFOLD on logistic regression: a fifth of the clients, exact subsets of a fifth of records."""

    clients: int = 20
    records: int = 4000
    batch: int = 800
    steps: int = 50
    noise_multiplier: float = 60.0
    features: int = 40
    classes: int = 10
    rate: float = 0.1
    clip_norm: float = 1.0
    l2: float = 5e-3

    def model(self) -> fedpriv.models.Model:
        network = fedpriv.models.LogisticRegression(self.classes)
        return fedpriv.models.classifier(network, (self.features, 1, 1))

    def flop_per_client(self) -> int:
        """Forward and gradient of the weights."""
        return self.steps * self.batch * 2 * 2 * self.features * self.classes

    def algorithm(self, clients: int) -> fedpriv.Algorithm:
        local = fedpriv.LocalSteps(
            fedpriv.per_example(self.model().loss, self.l2, closed_form=True),
            fedpriv.fixed_size(self.records, self.batch),
            self.steps,
            lambda t: optax.sgd(self.rate),
            fedpriv.gaussian(self.clip_norm, 2 * self.noise_multiplier),
        )
        return fedpriv.dp_scaffold(local, sampler=fedpriv.fixed_size(5 * clients, clients))

    def federation(self, clients: int) -> fedpriv.Federation:
        x, y = examples.records(self, 5 * clients)
        return _federation(x[..., None, None], y, classes=self.classes)


WORKLOADS: dict[str, Workload] = {
    "A": Images(),
    "B": Records(),
    "D": Images(filters=(8, 16), hidden=(32,)),
    "E": Images(side=8, filters=(), hidden=(64,)),
    "F": Texts(),
}


def _federation(x: np.ndarray, y: np.ndarray, classes: int) -> fedpriv.Federation:
    """Of x[clients, examples, ...] and y[clients, examples]."""
    given = {"image": x.reshape(-1, *x.shape[2:]), "label": y.ravel()}
    rows = np.arange(y.size).reshape(y.shape)
    return fedpriv.Federation.from_arrays(given, list(rows), num_classes=classes)


def shapes(workload: Trains) -> Any:
    return jax.eval_shape(workload.model().init, jax.random.key(0))


def parameters(workload: Trains) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(shapes(workload)))
