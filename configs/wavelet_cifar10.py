r"""Haar-wavelet noise on CIFAR-10: Figures 9 and 12, Table III of Ranaweera et al.

    fedpriv run wavelet_cifar10 --noise-multiplier 3 --algorithms dp_sgd dyn_dp_sgd dp_sgd_wav
    fedpriv run wavelet_cifar10 --cohort 100 --clip-norm 0.5 --learning-rate 0.1 \
      --algorithms dp_fed_avg dyn_dp_fed_avg dp_fed_avg_wav    # and as in the paper: --bounded gradients

100 i.i.d. clients, sigma = 1, 1.5 or 3, delta = 1e-5. The paper: 300 rounds of 50 local epochs, its gains are
DP-SGD-WAV over DP-SGD 6.38, 7.2 and 9.1 points at sigma 1, 1.5 and 3, DP-FedAvg-WAV over DP-FedAvg 5.96,
6.67 and 16.33. Here by default 30 rounds of one epoch
and a small network, for a machine without a GPU; DP-Adam and DP-AdaGrad by `--algorithms dp_adam dp_adam_wav`.
What was measured here is in experiments/results/wavelet.md.
"""

from fedpriv import datasets, models
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.config import Experiment, Ledger, image
from fedpriv.experiments.papers import wavelet
from fedpriv.experiments.papers.wavelet_settings import Wavelet

IMAGES = 50000

settings = Wavelet(learning_rate=0.1, adaptive_rate=0.002, rounds=30)


def ledger(settings: Wavelet) -> Ledger:
    return wavelet.ledger(settings, models.small_cifar10_cnn(), image(32, 32, 3), IMAGES)


def load(settings: Wavelet) -> Dataset:
    return datasets.load("cifar10", settings.data_dir)


def on(settings: Wavelet, data: Dataset) -> Experiment:
    return wavelet.experiment(settings, data, models.small_cifar10_cnn())
