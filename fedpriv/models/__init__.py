"""The models of the papers, and what of them is faster here than in XLA."""

from fedpriv.models.networks import (
    CNN,
    MLP,
    CharacterLSTM,
    LogisticRegression,
    Model,
    SigmoidLeNet,
    classifier,
    fashion_mnist_cnn,
    initializers,
    shakespeare_lstm,
    small_cifar10_cnn,
    small_mnist_cnn,
    svhn_cnn,
)
from fedpriv.models.score import Score

__all__ = [
    "CNN",
    "MLP",
    "CharacterLSTM",
    "LogisticRegression",
    "Model",
    "Score",
    "SigmoidLeNet",
    "classifier",
    "fashion_mnist_cnn",
    "initializers",
    "shakespeare_lstm",
    "small_cifar10_cnn",
    "small_mnist_cnn",
    "svhn_cnn",
]
