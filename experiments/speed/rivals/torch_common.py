"""What the rivals on PyTorch share: threads and precision, the examples, the CNN, local and private steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from experiments.speed.rivals.child import Settings


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


def dp_fed_avg_round(model: nn.Module, x: Tensor, y: Tensor, workload: Any) -> list[Tensor]:
    """The mean of the clipped updates, start minus end, with noise. The model stays as it is.

    Args:
      x: [clients, examples, ...], what the model takes.
      y: i64[clients, examples, ...], labels of the logits [examples, classes, ...].
      workload: as `experiments.speed.workloads.LocalSGD`.
    """
    theta = [p.detach().clone() for p in model.parameters()]
    total = [torch.zeros_like(p) for p in theta]
    for mine, labels in zip(x, y, strict=True):
        local_training(model, mine, labels, workload)
        with torch.no_grad():
            delta = [s - p for s, p in zip(theta, model.parameters(), strict=True)]
            norm = torch.stack([d.norm() for d in delta]).norm()
            scale = (workload.clip_norm / norm).clamp(max=1.0)
            for t, d in zip(total, delta, strict=True):
                t.add_(d * scale)
            for p, start in zip(model.parameters(), theta, strict=True):
                p.copy_(start)
    std = workload.clip_norm * workload.noise_multiplier
    return [t.add_(torch.randn_like(t), alpha=std).div_(len(x)) for t in total]


def local_training(model: nn.Module, x: Tensor, y: Tensor, workload: Any) -> None:
    """A step of SGD with momentum on all of a client's examples per epoch."""
    sgd = torch.optim.SGD(model.parameters(), workload.rate, workload.momentum)
    for _ in range(workload.epochs):
        order = torch.randperm(len(x), device=x.device)
        sgd.zero_grad()
        functional.cross_entropy(model(x[order]), y[order]).backward()
        sgd.step()


def private_step(
    model: nn.Module, lot: Tensor, labels: Tensor, clip_norm: float, noise_multiplier: float
) -> Callable[[], dict[str, Tensor]]:
    """() -> the private mean of the lot's gradients by parameter name; each record's by torch.func, clipped.

    Args:
      lot: u8[lot, 1, side, side], pixels; or others, as the model takes them.
      labels: i64[lot, ...], of the logits [lot, classes, ...].
    """

    def loss(params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(model, params, (x[None],)), y[None])

    each = vmap(grad(loss), in_dims=(None, 0, 0))
    params = {name: p.detach() for name, p in model.named_parameters()}
    std = clip_norm * noise_multiplier

    def step() -> dict[str, Tensor]:
        inputs = lot.float() / 255 if lot.dtype == torch.uint8 else lot
        gradients = each(params, inputs, labels)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
        scale = (clip_norm / norms).clamp(max=1.0)
        total = {name: torch.tensordot(scale, g, 1) for name, g in gradients.items()}
        return {n: t.add_(torch.randn_like(t), alpha=std) / len(lot) for n, t in total.items()}

    return step


def size(model: nn.Module) -> int:
    """Parameters."""
    return sum(p.numel() for p in model.parameters())
