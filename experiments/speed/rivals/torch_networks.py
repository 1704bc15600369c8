"""The networks of the benchmark's workloads, for PyTorch; the rivals on PyTorch have them, too."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


def size(model: nn.Module) -> int:
    """The number of parameters of PyTorch's network."""
    return sum(p.numel() for p in model.parameters())


def cnn(workload: Any) -> nn.Sequential:
    """For PyTorch: `fedpriv.models.CNN`: 5 x 5 convolutions, 2 x 2 maxima and ReLU; dense layers."""
    layers: list[nn.Module] = []
    channels, side = 1, workload.side
    for width in workload.filters:
        layers += [nn.Conv2d(channels, width, 5, padding=2), nn.MaxPool2d(2), nn.ReLU()]
        channels, side = width, side // 2
    layers.append(nn.Flatten())
    inputs = channels * side**2
    for width in workload.hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, 10))


class CharacterLSTM(nn.Module):
    """`fedpriv.models.CharacterLSTM`, but for the second bias vector of PyTorch's LSTM layers."""

    def __init__(self, workload: Any):
        super().__init__()
        self.embedding = nn.Embedding(workload.vocabulary, workload.embedding)
        self.layers = nn.LSTM(workload.embedding, workload.hidden, 2, batch_first=True)
        self.output = nn.Linear(workload.hidden, workload.vocabulary)

    def forward(self, text: Tensor) -> Tensor:
        """i64[batch, length] -> the logits f32[batch, vocabulary, length]."""
        return self.output(self.layers(self.embedding(text))[0]).movedim(2, 1)


class Attention(nn.Module):
    """Causal attention by PyTorch's own fused kernel."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.output = nn.Linear(width, width), nn.Linear(width, width)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        split = [
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        ]
        attended = functional.scaled_dot_product_attention(*split, is_causal=True)
        return self.output(attended.transpose(1, 2).flatten(2))


class Residual(nn.Module):
    def __init__(self, width: int, inner: nn.Module):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(width, eps=1e-6), inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(self.norm(x))


class Transformer(nn.Module):
    """For PyTorch: `experiments.speed.transformer`'s."""

    def __init__(self, workload: Any):
        super().__init__()
        width = workload.width
        self.embedding = nn.Embedding(workload.vocabulary, width)
        self.places = nn.Embedding(workload.length, width)
        layers: list[nn.Module] = []
        for _ in range(workload.layers):
            dense = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width)
            )
            layers += [
                Residual(width, Attention(width, workload.heads)),
                Residual(width, dense),
            ]
        self.layers = nn.Sequential(*layers, nn.LayerNorm(width, eps=1e-6))
        self.output = nn.Linear(width, workload.vocabulary)

    def forward(self, text: Tensor) -> Tensor:
        """i64[batch, length] -> the logits f32[batch, vocabulary, length]."""
        places = torch.arange(text.shape[1], device=text.device).repeat(len(text), 1)
        x = self.embedding(text) + self.places(places)
        return self.output(self.layers(x)).movedim(2, 1)
