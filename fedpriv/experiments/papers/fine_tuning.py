"""Fine-tuning under privacy: what is trained of a network whose base is public, and how the base comes about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fedpriv as fp
from fedpriv import models
from fedpriv.core.types import Params
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.config.fields import Number, check_each
from fedpriv.experiments.papers.fed_smp import FedSMP
from fedpriv.rounds.local_training import Batches


@dataclass(frozen=True)
class FineTuning(FedSMP):
    """DP-FedAvg of a part of a network whose base is public."""

    NETWORK: ClassVar[models.Model]
    HEAD: ClassVar[str]
    """Regular expression of its last layer's leaves."""
    PUBLIC: ClassVar[str]
    """What the certificates assume of the base's data."""

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
        return (self.PUBLIC,)

    def model(self, base: Params | None = None) -> models.Model:
        """The network with `base` (zeros, which will do for accounting), and what is trained of it."""
        base = zeros(self.NETWORK) if base is None else base
        if self.trained == "adapters":
            return models.adapters(self.NETWORK, base, self.rank, "kernel$")
        if self.trained == "head":
            return models.frozen(self.NETWORK, base, self.HEAD)
        return self.NETWORK._replace(init=lambda key: base)


def zeros(network: models.Model) -> Params:
    """The network's parameters, all 0, which will do for accounting."""
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def trained_openly(
    network: models.Model,
    data: Dataset,
    batches: Batches,
    optimizer: Callable[[jax.Array], optax.GradientTransformation],
) -> Params:
    """The network's parameters after one round of FedAvg, whose one client holds all training records of `data`."""
    everything = [np.arange(len(data.train["label"]))]
    federation = fp.Federation.from_arrays(data.train, everything, num_classes=data.num_classes)
    algorithm = fp.fed_avg(
        network.loss, sampler=fp.everyone(1), optimizer=optimizer, batches=batches
    )
    given: dict[str, Any] = {
        "score": network.score,
        "rounds": 1,
        "strategy": fp.Strategy(devices=1),
    }
    trained = fp.simulate(algorithm, network.init, federation, data.test, progress=False, **given)
    return trained.params()


def shortened(data: Dataset, length: int, test_texts: int = 0) -> Dataset:
    """With texts of so many characters, of which some remain for testing (0: all)."""
    train, test = ({name: x[:, :length] for name, x in part.items()} for part in data[1:3])
    rows = len(test["label"])
    some = np.arange(min(test_texts or rows, rows)) * rows // min(test_texts or rows, rows)
    return data._replace(train=train, test={name: x[some] for name, x in test.items()})
