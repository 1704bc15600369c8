r"""Model splitting and dynamic quantization on CIFAR-10: Figures 2, 3, 5 and 7 of Wang et al.

    fedpriv run mspdq_cifar10 --local-epochs 1 --bits 6 --exchanges 20 --algorithms fed_avg mspdq_fl
    fedpriv run mspdq_cifar10 --local-epochs 1 --algorithms msp_fl --msp-exchanges 10 \
      --submodels 18 18 --unstable    # --decay root for Figure 5

100 clients with two label-sorted shards each, 20 per round, drawn with replacement; B = 40, E = 5 and eta_t = 1 / (10
(t + 1)): all as in the paper, which prints neither its network nor the number of rounds. Figure 4 by
`--exchanges 0` and `fedpriv uploads`. Measured: experiments/results/mspdq.md.
"""

from fedpriv import datasets, models
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.config import Experiment, Ledger, image
from fedpriv.experiments.papers import mspdq
from fedpriv.experiments.papers.mspdq import Msp

IMAGES = 50000

settings = Msp(rounds=30, local_epochs=5, batch_size=40, learning_rate=0.1)


def ledger(settings: Msp) -> Ledger:
    return mspdq.ledger(settings, models.small_cifar10_cnn(), image(32, 32, 3), IMAGES)


def load(settings: Msp) -> Dataset:
    return datasets.load("cifar10", settings.data_dir)


def on(settings: Msp, data: Dataset) -> Experiment:
    return mspdq.experiment(settings, data, models.small_cifar10_cnn())
