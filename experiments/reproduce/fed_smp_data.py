"""The three data sets of Fed-SMP's experiments, and the trainings on them that its tables and figures share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from configs import fed_smp_fashion_mnist, fed_smp_shakespeare, fed_smp_svhn
from experiments.config import Ledger
from experiments.papers.fed_smp import FedSMP
from experiments.reproduce import fed_smp_printed as printed
from experiments.reproduce.fed_smp_printed import Summary
from experiments.reproduce.item import Training

TRAIN_LOSS_ON = 10_000  # examples: the cost of one more evaluation
PRIVATE = ("dp_fed_avg", "rand_k", "top_k")


@dataclass(frozen=True)
class Data:
    """One of the data sets.

    Attributes:
      title: as the paper writes it.
      config: name in configs/.
      rounds: T.
      summary: the paper's table of results on it.
      noise: eps as printed -> the noise multiplier that gives it.
      counted: the ledger of a config's own number of clients; needs no data.
      best: sparsifier -> the compression ratio of Figure 2.
      population: n that the printed eps is of, where it is a hypothetical one.
    """

    title: str
    config: str
    rounds: int
    summary: Summary
    noise: Mapping[str, float]
    counted: Callable[[Any], Ledger]
    best: Mapping[str, float]
    population: int | None = None

    def training(self, algorithm: str, p: float | None = None, epsilon: str = "") -> Training:
        """Of one algorithm, at its ratio if it has one, and at the noise of `epsilon`, by default the summary's."""
        settings: dict[str, object] = {} if p is None else {"p": p}
        if algorithm in PRIVATE:
            settings["noise_multiplier"] = self.noise[epsilon or self.summary.epsilon]
        settings["train_loss_examples"] = TRAIN_LOSS_ON
        return Training(self.config, algorithm, settings, self.rounds, seeds=5)

    def claims(self, config: FedSMP) -> Ledger:
        """The ledger that the printed eps is of."""
        return self.counted(replace(config, clients=self.population or config.clients))


IMAGE_NOISE = {"2.02": 1.0, "1.01": 1.4, "0.58": 2.0, "0.44": 2.5}
# 0.8, 1, 1.2 and 1.4 over sqrt(10).
TEXT_NOISE = {"11.51": 0.252982, "6.99": 0.316228, "4.70": 0.379473, "3.39": 0.442719}

FASHION_MNIST = Data(
    "Fashion-MNIST",
    "fed_smp_fashion_mnist",
    180,
    printed.TABLE1,
    IMAGE_NOISE,
    fed_smp_fashion_mnist.ledger,
    {"top_k": 0.005, "rand_k": 0.4},
)
SVHN = Data(
    "SVHN",
    "fed_smp_svhn",
    180,
    printed.TABLE2,
    IMAGE_NOISE,
    fed_smp_svhn.ledger,
    {"top_k": 0.01, "rand_k": 0.4},
)
SHAKESPEARE = Data(
    "Shakespeare",
    "fed_smp_shakespeare",
    1000,
    printed.TABLE3,
    TEXT_NOISE,
    fed_smp_shakespeare.counted,
    {"top_k": 0.05, "rand_k": 0.2},
    population=10**9,
)
EVERY = (FASHION_MNIST, SVHN, SHAKESPEARE)
