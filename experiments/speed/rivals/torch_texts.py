"""Workload F as a plain PyTorch loop: a round of DP-FedAvg with a character LSTM."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from experiments.speed.rivals.child import Baseline, Settings
from experiments.speed.rivals.examples import texts
from experiments.speed.rivals.torch_common import dp_fed_avg_round, on_device, prepare, size


class Network(nn.Module):
    """`fedpriv.models.CharacterLSTM`, but for the second bias vector of PyTorch's LSTM layers."""

    def __init__(self, workload: Any):
        super().__init__()
        self.embedding = nn.Embedding(workload.vocabulary, workload.embedding)
        self.layers = nn.LSTM(workload.embedding, workload.hidden, 2, batch_first=True)
        self.output = nn.Linear(workload.hidden, workload.vocabulary)

    def forward(self, text: Tensor) -> Tensor:
        """i64[batch, length] -> the logits f32[batch, vocabulary, length]."""
        return self.output(self.layers(self.embedding(text))[0]).movedim(2, 1)


def build(settings: Settings) -> Baseline:
    prepare(settings)
    workload = settings.workload
    model = Network(workload).to(settings.device)
    given = texts(workload, settings.clients, workload.examples)
    x, y = on_device((given[..., :-1].astype("int64"), given[..., 1:]), settings)

    def one_round() -> list[Tensor]:
        return dp_fed_avg_round(model, x, y, workload)

    notes = ("its LSTM layers have a second bias vector of 1,024 numbers each",)
    return Baseline({"loop": one_round}, size(model), ("torch",), notes)
