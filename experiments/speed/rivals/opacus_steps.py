"""Workload C's step by Opacus (PyTorch): its per-sample gradients and its optimiser."""

from __future__ import annotations

import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch.nn import functional

from experiments.speed.rivals.child import Baseline, Settings
from experiments.speed.rivals.examples import images
from experiments.speed.rivals.torch_common import cnn, on_device, prepare, size

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
    lot, labels = on_device(images(workload, workload.lot), settings)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(lot.float() / 255), labels).backward()
        optimizer.step()

    return Baseline({"dp_sgd": step}, size(network), ("opacus", "torch"), NOTES)
