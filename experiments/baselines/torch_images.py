"""Workload A as a plain PyTorch loop: a round of DP-FedAvg, in the two memory layouts of images."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.baselines.child import Baseline, Settings
from experiments.baselines.torch_device import prepare, synchronised
from experiments.baselines.torch_network import cnn, size

LAYOUTS = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}


def build(settings: Settings) -> Baseline:
    prepare(settings)
    workload, device = settings.workload, settings.device
    model = cnn(workload.side, workload.filters, workload.hidden).to(device)
    shape = (settings.clients, workload.examples, 1, workload.side, workload.side)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, device=device)
    labels = torch.randint(0, 10, shape[:2], device=device)
    runs = {
        name: synchronised(partial(one_round, model, images, labels, workload, layout), device)
        for name, layout in LAYOUTS.items()
    }
    return Baseline(runs, size(model), ("torch",))


def one_round(
    model: nn.Module, images: Tensor, labels: Tensor, workload: Any, layout: torch.memory_format
) -> list[Tensor]:
    """The mean of the clipped updates, start minus end, with noise. The model stays as it is.

    Args:
      images: u8[clients, examples, 1, side, side].
      labels: i64[clients, examples].
      workload: as `experiments.workloads.Images`.
    """
    model.to(memory_format=layout)
    theta = [p.detach().clone() for p in model.parameters()]
    total = [torch.zeros_like(p) for p in theta]
    for x, y in zip(images, labels, strict=True):
        local_training(model, x.float().div(255).contiguous(memory_format=layout), y, workload)
        with torch.no_grad():
            delta = [s - p for s, p in zip(theta, model.parameters(), strict=True)]
            norm = torch.stack([d.norm() for d in delta]).norm()
            scale = (workload.clip_norm / norm).clamp(max=1.0)
            for t, d in zip(total, delta, strict=True):
                t.add_(d * scale)
            for p, start in zip(model.parameters(), theta, strict=True):
                p.copy_(start)
    std = workload.clip_norm * workload.noise_multiplier
    return [t.add_(torch.randn_like(t), alpha=std).div_(len(images)) for t in total]


def local_training(model: nn.Module, x: Tensor, y: Tensor, workload: Any) -> None:
    """A step of SGD with momentum on all of a client's images per epoch."""
    sgd = torch.optim.SGD(model.parameters(), workload.rate, workload.momentum)
    for _ in range(workload.epochs):
        order = torch.randperm(len(x), device=x.device)
        sgd.zero_grad()
        functional.cross_entropy(model(x[order]), y[order]).backward()
        sgd.step()
