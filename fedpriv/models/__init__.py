"""The papers' models, with parts that run faster here than XLA's own."""

from fedpriv.models.classification import classification_score
from fedpriv.models.fine_tuning import adapters, frozen
from fedpriv.models.from_nnx import from_nnx
from fedpriv.models.kept_model import load_model, save_model
from fedpriv.models.modules import (
    CNN,
    MLP,
    CharacterLSTM,
    CharacterTransformer,
    DropoutCNN,
    LogisticRegression,
    SigmoidLeNet,
    initializers,
)
from fedpriv.models.networks import (
    Model,
    classifier,
    fashion_mnist_cnn,
    from_apply,
    small_cifar10_cnn,
    small_mnist_cnn,
    svhn_cnn,
)
from fedpriv.models.peft import load_peft, save_peft
from fedpriv.models.precision import in_bfloat16
from fedpriv.models.prompts import Prompted
from fedpriv.models.pytorch_weights import pytorch_weights
from fedpriv.models.refactoring import refactored
from fedpriv.models.score import Score
from fedpriv.models.sequences import next_character, next_token, shakespeare_lstm
from fedpriv.models.transformer import Transformer

__all__ = [
    "CNN",
    "MLP",
    "CharacterLSTM",
    "CharacterTransformer",
    "DropoutCNN",
    "LogisticRegression",
    "Model",
    "Prompted",
    "Score",
    "SigmoidLeNet",
    "Transformer",
    "adapters",
    "classification_score",
    "classifier",
    "fashion_mnist_cnn",
    "from_apply",
    "from_nnx",
    "frozen",
    "in_bfloat16",
    "initializers",
    "load_model",
    "load_peft",
    "next_character",
    "next_token",
    "pytorch_weights",
    "refactored",
    "save_model",
    "save_peft",
    "shakespeare_lstm",
    "small_cifar10_cnn",
    "small_mnist_cnn",
    "svhn_cnn",
]
