r"""Model splitting and dynamic quantization on MNIST: Figure 3 of Wang et al., and 5 and 7 on these data.

    fedpriv run mspdq_mnist --local-epochs 1 --bits 6 --exchanges 20 --algorithms fed_avg mspdq_fl
    fedpriv run mspdq_mnist --local-epochs 1 --algorithms msp_fl --msp-exchanges 10 \
      --submodels 18 18 --unstable    # --decay root for Figure 5

100 clients with two label-sorted shards each, 20 per round, drawn with replacement; B = 10, E = 10 and eta_t = 1 / (5
(t + 1)): all as in the paper, which prints neither its network nor the number of rounds. Figure 4 by
`--exchanges 0` and `fedpriv uploads`. Measured: experiments/results/mspdq.md.
"""

from fedpriv import datasets, models
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.config import Experiment, Ledger, image
from fedpriv.experiments.papers import mspdq
from fedpriv.experiments.papers.mspdq import Msp

IMAGES = 60000

settings = Msp(rounds=30)


def ledger(settings: Msp) -> Ledger:
    return mspdq.ledger(settings, models.small_mnist_cnn(), image(28, 28, 1), IMAGES)


def load(settings: Msp) -> Dataset:
    return datasets.load("mnist", settings.data_dir)


def on(settings: Msp, data: Dataset) -> Experiment:
    return mspdq.experiment(settings, data, models.small_mnist_cnn())
