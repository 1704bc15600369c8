"""The CNN of workloads A and C in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn


def cnn(
    side: int, filters: Sequence[int], hidden: Sequence[int], classes: int = 10
) -> nn.Sequential:
    """`fedpriv.models.CNN`: 5 x 5 convolutions, 2 x 2 maxima and ReLU; dense layers."""
    layers: list[nn.Module] = []
    channels = 1
    for width in filters:
        layers += [nn.Conv2d(channels, width, 5, padding=2), nn.MaxPool2d(2), nn.ReLU()]
        channels, side = width, side // 2
    layers.append(nn.Flatten())
    inputs = channels * side**2
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, classes))


def size(model: nn.Module) -> int:
    """Parameters."""
    return sum(p.numel() for p in model.parameters())
