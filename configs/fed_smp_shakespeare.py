"""Fed-SMP on Shakespeare by speaking role: Table 3, Tables 8 and 9 of arXiv:2202.07178.

    fedpriv run fed_smp_shakespeare --algorithms top_k --p 0.05 --seeds 5

Next-character prediction, one client per role, 10 roles per round, 2 x LSTM 256 (820,522 parameters), T = 1000,
C = 0.4, sigma = 0.3. The paper's best test accuracies: FedAvg 62.77, DP-FedAvg 51.03, top_k 56.76 (p = 0.05), rand_k
54.22 (p = 0.2). Its epsilon of 6.99 is for a hypothetical population of 10^9 and comes out for sigma = 1 / sqrt(10),
0.3 rounded; the epsilon printed here is that of the roles there are. The text comes from another edition with more
roles than the paper's 715, so that accuracies compare in shape only.
"""

from fedpriv import datasets, models
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.config import Experiment, Ledger, text
from fedpriv.experiments.papers import fed_smp
from fedpriv.experiments.papers.fed_smp import FedSMP, Local, experiment, natural_ledger

settings = FedSMP(
    rounds=1000,
    every=20,
    p=0.05,
    clients=1138,  # of the plays; counted in the data where it is at hand
    cohort=10,
    clip_norm=0.4,
    noise_multiplier=0.3,
    local=Local(epochs=1, batch_size=4, learning_rate=1.0, momentum=0.9, decay_every=50),
)


def load(settings: FedSMP) -> Dataset:
    return datasets.load("shakespeare", settings.data_dir)


def on(settings: FedSMP, data: Dataset) -> Experiment:
    return experiment(settings, data, models.shakespeare_lstm())


def counted(settings: FedSMP) -> Ledger:
    """The ledger of `settings.clients` roles, whatever the data has."""
    return fed_smp.ledger(settings, models.shakespeare_lstm(), text(80))


def ledger(settings: FedSMP) -> Ledger:
    return natural_ledger(settings, models.shakespeare_lstm(), text(80), lambda: load(settings))
