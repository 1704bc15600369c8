"""Workload G's step by Opacus (PyTorch): by gradients of single records, and by ghost clipping."""

from __future__ import annotations

import torch
from opacus import GradSampleModule
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn
from torch.nn import functional

from experiments.speed.rivals.child import Baseline, Settings
from experiments.speed.rivals.opacus_steps import NOTES
from experiments.speed.rivals.torch_attention import Transformer, lot
from experiments.speed.rivals.torch_common import prepare, size


class PerText(nn.Module):
    """Cross-entropy, of each text the mean over its characters, as ghost clipping asks for it."""

    def __init__(self, reduction: str = "mean"):
        super().__init__()
        self.reduction = reduction

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        each = functional.cross_entropy(logits, labels, reduction="none").mean(1)
        return each if self.reduction == "none" else each.mean()


def build(settings: Settings) -> Baseline:
    prepare(settings)
    workload = settings.workload
    text, labels = (x.contiguous() for x in lot(settings))
    given = {
        "noise_multiplier": workload.noise_multiplier,
        "max_grad_norm": workload.clip_norm,
        "expected_batch_size": workload.lot,
    }

    model = GradSampleModule(Transformer(workload).to(settings.device))
    optimizer = DPOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), **given)

    def records() -> None:
        optimizer.zero_grad()
        PerText()(model(text), labels).backward()
        optimizer.step()

    ghostly = GradSampleModuleFastGradientClipping(
        Transformer(workload).to(settings.device),
        max_grad_norm=workload.clip_norm,
        use_ghost_clipping=True,
    )
    sgd = torch.optim.SGD(ghostly.parameters(), lr=0.01)
    clipping = DPOptimizerFastGradientClipping(sgd, **given)
    criterion = DPLossFastGradientClipping(ghostly, clipping, PerText())

    def ghost() -> None:
        clipping.zero_grad()
        criterion(ghostly(text), labels).backward()
        clipping.step()

    parameters = size(Transformer(workload))
    return Baseline({"dp_sgd": records, "ghost": ghost}, parameters, ("opacus", "torch"), NOTES)
