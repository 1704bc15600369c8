"""Workload A as a plain PyTorch loop: a round of DP-FedAvg, in the two memory layouts of images."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from experiments.speed.rivals.child import Baseline, Settings
from experiments.speed.rivals.examples import images
from experiments.speed.rivals.torch_common import cnn, dp_fed_avg_round, on_device, prepare, size

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
    """Of u8[clients, examples, 1, side, side] and i64[clients, examples]."""
    model.to(memory_format=layout)
    clients, count = examples.shape[:2]
    scaled = examples.float().div(255).flatten(0, 1).contiguous(memory_format=layout)
    return dp_fed_avg_round(model, scaled.unflatten(0, (clients, count)), labels, workload)
