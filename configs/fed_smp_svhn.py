"""Fed-SMP on SVHN (train + extra): Table 2, Tables 6 and 7 of arXiv:2202.07178.

    fedpriv run fed_smp_svhn --algorithms top_k --p 0.01 --seeds 5

6,000 clients with about 100 images each, 100 per round, the 3,431,754-parameter CNN, T = 180, C = 0.4, sigma = 1.4. The
paper's best test accuracies: FedAvg 88.47, DP-FedAvg 72.46, top_k 81.12 (p = 0.01), rand_k 77.07 (p = 0.4).
"""

from fedpriv import models
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.config import Experiment, Ledger, image
from fedpriv.experiments.papers import fed_smp
from fedpriv.experiments.papers.fed_smp import ImageFedSMP, Local, experiment

settings = ImageFedSMP(
    rounds=180,
    clip_norm=0.4,
    public_examples=2000,
    local=Local(epochs=5, batch_size=50, learning_rate=0.05, momentum=0.8),
)


def ledger(settings: ImageFedSMP) -> Ledger:
    return fed_smp.ledger(settings, models.svhn_cnn(settings.weights), image(32, 32, 3))


def load(settings: ImageFedSMP) -> Dataset:
    return settings.images("svhn_cropped")


def on(settings: ImageFedSMP, data: Dataset) -> Experiment:
    return experiment(settings, data, models.svhn_cnn(settings.weights))
