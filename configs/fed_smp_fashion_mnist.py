"""Fed-SMP on Fashion-MNIST: Table 1, Table 4 and 5, Figures 2 and 3 of arXiv:2202.07178.

    fedpriv run fed_smp_fashion_mnist --algorithms top_k --p 0.005 --seeds 5

6,000 clients with 10 images each, 100 per round, the 1,663,370-parameter CNN, T = 180, C = 1, sigma = 1.4. The rows of
Table 1 by `--p 0.001 | 0.005 | 0.01 | 0.1 | 0.2 | 0.4 | 0.8`; Tables 4 and 5 by `--noise-multiplier`. The paper's best
test accuracies: FedAvg 86.98, DP-FedAvg 72.72, top_k 80.76 (p = 0.005), rand_k 79.88 (p = 0.4). What was measured here
is in experiments/results/fed_smp.md.
"""

from fedpriv import models
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.config import Experiment, Ledger, image
from fedpriv.experiments.papers import fed_smp
from fedpriv.experiments.papers.fed_smp import ImageFedSMP, experiment

settings = ImageFedSMP(rounds=180)


def ledger(settings: ImageFedSMP) -> Ledger:
    return fed_smp.ledger(settings, models.fashion_mnist_cnn(settings.weights), image(28, 28, 1))


def load(settings: ImageFedSMP) -> Dataset:
    return settings.images("fashion_mnist")


def on(settings: ImageFedSMP, data: Dataset) -> Experiment:
    return experiment(settings, data, models.fashion_mnist_cnn(settings.weights))
