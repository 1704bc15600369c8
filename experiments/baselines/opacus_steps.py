"""Workload C's step by Opacus (PyTorch): its per-sample gradients and its optimiser."""

from __future__ import annotations

import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch.nn import functional

from experiments.baselines.child import Baseline, Settings
from experiments.baselines.torch_device import prepare
from experiments.baselines.torch_network import cnn, size

NOTES = ("the step also updates the model by SGD",)


def build(settings: Settings) -> Baseline:
    prepare(settings)
    workload = settings.workload
    network = cnn(workload.side, workload.filters, workload.hidden)
    model = GradSampleModule(network)
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01),
        noise_multiplier=workload.noise_multiplier,
        max_grad_norm=workload.clip_norm,
        expected_batch_size=workload.lot,
    )
    shape = (workload.lot, 1, workload.side, workload.side)
    images = torch.randint(0, 256, shape, dtype=torch.uint8)
    labels = torch.randint(0, 10, shape[:1])

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(images.float() / 255), labels).backward()
        optimizer.step()

    return Baseline({"dp_sgd": step}, size(network), ("opacus", "torch"), NOTES)
