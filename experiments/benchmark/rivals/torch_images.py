"""Workload A as a plain PyTorch loop: a round of DP-FedAvg, in the two memory layouts of images."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.benchmark.rivals.child import Baseline, Settings
from experiments.benchmark.rivals.examples import images
from experiments.benchmark.rivals.torch_common import cnn, on_device, prepare, size

LAYOUTS = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}


def build(settings: Settings) -> Baseline:
    prepare(settings)
    workload = settings.workload
    model = cnn(workload.side, workload.filters, workload.hidden).to(settings.device)
    x, y = on_device(images(workload, settings.clients, workload.examples), settings)
    runs = {
        name: partial(one_round, model, x, y, workload, layout) for name, layout in LAYOUTS.items()
    }
    return Baseline(runs, size(model), ("torch",))


def one_round(
    model: nn.Module, examples: Tensor, labels: Tensor, workload: Any, layout: torch.memory_format
) -> list[Tensor]:
    """The mean of the clipped updates, start minus end, with noise. The model stays as it is.

    Args:
      examples: u8[clients, examples, 1, side, side].
      labels: i64[clients, examples].
      workload: as `experiments.benchmark.workloads.Images`.
    """
    model.to(memory_format=layout)
    theta = [p.detach().clone() for p in model.parameters()]
    total = [torch.zeros_like(p) for p in theta]
    for x, y in zip(examples, labels, strict=True):
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
    return [t.add_(torch.randn_like(t), alpha=std).div_(len(examples)) for t in total]


def local_training(model: nn.Module, x: Tensor, y: Tensor, workload: Any) -> None:
    """A step of SGD with momentum on all of a client's images per epoch."""
    sgd = torch.optim.SGD(model.parameters(), workload.rate, workload.momentum)
    for _ in range(workload.epochs):
        order = torch.randperm(len(x), device=x.device)
        sgd.zero_grad()
        functional.cross_entropy(model(x[order]), y[order]).backward()
        sgd.step()
