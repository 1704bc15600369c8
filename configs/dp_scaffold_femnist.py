"""DP-SCAFFOLD on EMNIST-balanced ("FEMNIST"): Figures 2, 7, 8 and the second rows of 9, 10 of arXiv:2111.09278.

    fedpriv run dp_scaffold_femnist --gamma 10 --clip-norm median

40 clients of 2,500 images (2,000 for training) of 47 classes, logistic regression on the pixels, K = 50 local steps of
a fifth of the records, 8 clients per round, T = 400, sigma_g = 30. The paper prints epsilon = 11.4. gamma = 0, 10 or
100 percent of a client's images are i.i.d. `--dataset emnist/bymerge` takes the images from the test split of EMNIST
ByMerge instead, which has the same classes but is not balanced: a stand-in, not comparable number by number. With
`--sizes secret --record-sampling poisson`, or `--sizes public`, clients train on 200 to 2,000 records each.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fedpriv import datasets, models
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.config import Experiment, Ledger, image
from fedpriv.experiments.papers import dp_scaffold
from fedpriv.experiments.papers.dp_scaffold import experiment
from fedpriv.experiments.papers.dp_scaffold_images import Images, clients_of

MODEL = models.classifier(models.LogisticRegression(47), (784, 1, 1))


@dataclass(frozen=True)
class Letters(Images):
    """DP-SCAFFOLD and its baselines on gamma%-similar letters and digits."""

    TUNED: ClassVar[dict[str, float]] = {"dp_scaffold": 1.0, "dp_fed_avg": 1.0}
    """fedpriv sweep dp_scaffold_femnist --grid eta-0=0.05,0.1,0.2,0.5,1,2,5 --fold 1 5
    --dataset emnist/bymerge --gamma 100 --rounds 100 --measured false"""
    dataset: Literal["emnist/balanced", "emnist/bymerge"] = "emnist/balanced"
    """`emnist/bymerge`: its test split, a stand-in where the balanced set is not at hand."""


settings = Letters(rounds=400, every=20, clients=40, records=2500, noise_multiplier=30.0)


def ledger(settings: Letters) -> Ledger:
    return dp_scaffold.ledger(settings, MODEL, image(784, 1, 1, dtype=np.float32))


def load(settings: Letters) -> Dataset:
    return clients_of(settings, _pool(settings))


def on(settings: Letters, data: Dataset) -> Experiment:
    return experiment(settings, data, MODEL, convex=True)


def _pool(settings: Letters) -> Dataset:
    if settings.dataset == "emnist/balanced":
        return datasets.load(settings.dataset, settings.data_dir)
    return datasets.load(settings.dataset, settings.data_dir, train=("test",))
