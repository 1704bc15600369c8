r"""Haar-wavelet noise on Fashion-MNIST: Figures 8 and 11, Table III of Ranaweera et al.

    fedpriv run wavelet_fashion_mnist --noise-multiplier 3 --algorithms dp_sgd dyn_dp_sgd dp_sgd_wav
    fedpriv run wavelet_fashion_mnist --cohort 100 --clip-norm 0.5 --learning-rate 0.1 \
      --algorithms dp_fed_avg dyn_dp_fed_avg dp_fed_avg_wav    # and as in the paper: --bounded gradients

100 i.i.d. clients, sigma = 1, 1.5 or 3, delta = 1e-5. The paper: 300 rounds of 50 local epochs, its gains are
DP-SGD-WAV over DP-SGD 9.93, 12.7 and 14.6 points at sigma 1, 1.5 and 3, DP-FedAvg-WAV over DP-FedAvg 13.2,
14.82 and 27.3. Here by default 30 rounds of one epoch
and a small network, for a machine without a GPU; DP-Adam and DP-AdaGrad by `--algorithms dp_adam dp_adam_wav`.
What was measured here is in experiments/results/wavelet.md.
"""

from fedpriv import datasets, models
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.config import Experiment, Ledger, image
from fedpriv.experiments.papers import wavelet
from fedpriv.experiments.papers.wavelet_settings import Wavelet

IMAGES = 60000

settings = Wavelet(rounds=30)


def ledger(settings: Wavelet) -> Ledger:
    return wavelet.ledger(settings, models.small_mnist_cnn(), image(28, 28, 1), IMAGES)


def load(settings: Wavelet) -> Dataset:
    return datasets.load("fashion_mnist", settings.data_dir)


def on(settings: Wavelet, data: Dataset) -> Experiment:
    return wavelet.experiment(settings, data, models.small_mnist_cnn())
