"""DP-SCAFFOLD on MNIST with a hidden layer: Figure 2 (second row), 9 and 10 (third rows) of arXiv:2111.09278.

    fedpriv run dp_scaffold_mnist --gamma 10 --clip-norm median

60 clients of 1,000 images (800 for training), 60 principal components (without privacy, as in the paper), one hidden
layer of 200, K = 50 local steps of a fifth of the records, 12 clients per round, T = 100, sigma_g = 30. The paper
prints epsilon = 7.2. gamma = 0, 10 or 100 percent of a client's images are i.i.d.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedpriv import datasets, models
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.config import Experiment, Ledger, image
from fedpriv.experiments.papers import dp_scaffold
from fedpriv.experiments.papers.dp_scaffold import experiment
from fedpriv.experiments.papers.dp_scaffold_images import Images, clients_of

COMPONENTS = 60
MODEL = models.classifier(models.MLP((200,), 10), (COMPONENTS, 1, 1))


@dataclass(frozen=True)
class Digits(Images):
    """DP-SCAFFOLD and its baselines on gamma%-similar digits."""

    TENSORS: ClassVar[int] = 4
    TUNED: ClassVar[dict[str, float]] = {
        "scaffold": 2.0,
        "fed_avg": 1.0,
        "fed_sgd": 1.0,
        "dp_scaffold": 0.3,
        "dp_fed_avg": 0.3,
        "dp_fed_sgd": 0.3,
    }
    """fedpriv sweep dp_scaffold_mnist --grid eta-0=0.1,0.3,1,2 --fold 1 5 --gamma 100 --rounds 100
    --measured false; FedSGD as FedAvg."""


settings = Digits(rounds=100, every=5, clients=60, records=1000, noise_multiplier=30.0)


def ledger(settings: Digits) -> Ledger:
    return dp_scaffold.ledger(settings, MODEL, image(COMPONENTS, 1, 1, dtype=np.float32))


def load(settings: Digits) -> Dataset:
    return clients_of(settings, datasets.load("mnist", settings.data_dir), COMPONENTS)


def on(settings: Digits, data: Dataset) -> Experiment:
    return experiment(settings, data, MODEL, convex=False)
