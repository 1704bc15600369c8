"""What the rivals on PyTorch share: threads and precision, the examples, the CNN of workloads A and C."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from experiments.benchmark.rivals.child import Settings


def prepare(settings: Settings) -> None:
    """Threads; float32 that means float32.

    Raises:
      RuntimeError: JAX uses a GPU and this PyTorch has none.
    """
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(
            "JAX uses a GPU, but this PyTorch has no CUDA device; install a CUDA build of it"
        )
    torch.set_num_threads(settings.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def on_device(examples: tuple[np.ndarray, np.ndarray], settings: Settings) -> tuple[Tensor, Tensor]:
    """`examples` on the device: images as [..., 1, side, side], labels as i64."""
    x, y = (torch.from_numpy(each).to(settings.device) for each in examples)
    if x.dtype == torch.uint8:
        x = x.movedim(-1, -3).contiguous()
    return x, y.long()


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
