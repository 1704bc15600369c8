"""Opacus (PyTorch): workload C's step by gradients of single records; G's and H's by these, and by ghost clipping."""

from __future__ import annotations

from collections.abc import Callable

import torch
from opacus import GradSampleModule
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn
from torch.nn import functional

from experiments.speed import examples
from experiments.speed.rivals.runner import Baseline, Settings
from experiments.speed.rivals.torch import characters, on_device, prepare
from experiments.speed.rivals.torch_networks import Transformer, cnn, size

PACKAGES = ("opacus", "torch")
NOTES = ("the step also updates the model by SGD",)


def privacy(settings: Settings) -> dict[str, float]:
    """What Opacus's optimizers are told."""
    workload = settings.workload
    return {
        "noise_multiplier": workload.noise_multiplier,
        "max_grad_norm": workload.clip_norm,
        "expected_batch_size": workload.lot,
    }


def images(settings: Settings) -> Baseline:
    prepare(settings)
    workload = settings.workload
    network = cnn(workload)
    model = GradSampleModule(network)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = DPOptimizer(sgd, **privacy(settings))
    lot, labels = on_device(*examples.images(workload, workload.lot), settings)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(lot.float() / 255), labels).backward()
        optimizer.step()

    return Baseline({"dp_sgd": step}, size(network), PACKAGES, NOTES)


class PerText(nn.Module):
    """Cross-entropy, of each text the mean over its characters, as ghost clipping asks for it."""

    def __init__(self, reduction: str = "mean"):
        super().__init__()
        self.reduction = reduction

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        each = functional.cross_entropy(logits, labels, reduction="none").mean(1)
        return each if self.reduction == "none" else each.mean()


def attention(settings: Settings) -> Baseline:
    prepare(settings)
    text, labels = characters(settings)
    steps = {"dp_sgd": step_by_records, "ghost": step_by_ghost_clipping}
    asked = [settings.run] if settings.run else list(steps)
    models = {name: Transformer(settings.workload).to(settings.device) for name in asked}
    runs = {name: steps[name](models[name], text, labels, settings) for name in asked}
    return Baseline(runs, size(models[asked[0]]), PACKAGES, NOTES)


def step_by_records(
    network: Transformer, text: Tensor, labels: Tensor, settings: Settings
) -> Callable[[], None]:
    model = GradSampleModule(network)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = DPOptimizer(sgd, **privacy(settings))

    def step() -> None:
        optimizer.zero_grad()
        PerText()(model(text), labels).backward()
        optimizer.step()

    return step


def step_by_ghost_clipping(
    network: Transformer, text: Tensor, labels: Tensor, settings: Settings
) -> Callable[[], None]:
    model = GradSampleModuleFastGradientClipping(
        network,
        max_grad_norm=settings.workload.clip_norm,
        use_ghost_clipping=True,
    )
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = DPOptimizerFastGradientClipping(sgd, **privacy(settings))
    criterion = DPLossFastGradientClipping(model, optimizer, PerText())

    def step() -> None:
        optimizer.zero_grad()
        criterion(model(text), labels).backward()
        optimizer.step()

    return step


WORKLOADS = {"C": images, "G": attention, "H": attention}
