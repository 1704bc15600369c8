"""Workload C in PyTorch: the Haar transform in averaging form, by views of neighbours, beside a copy; a DP-SGD step."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from experiments.speed.rivals.child import Baseline, Settings
from experiments.speed.rivals.examples import images
from experiments.speed.rivals.torch_common import cnn, on_device, prepare, private_step, size


def build(settings: Settings) -> Baseline:
    prepare(settings)
    workload = settings.workload
    x = torch.randn(workload.rows, workload.length, device=settings.device)
    out = torch.empty_like(x)
    model = cnn(workload.side, workload.filters, workload.hidden).to(settings.device)
    lot = on_device(images(workload, workload.lot), settings)
    runs = {
        "copy": partial(torch.add, x, 1, out=out),
        "haar": partial(haar, x, out),
        "inverse": partial(inverse_haar, x, out),
        "dp_sgd": private_step(model, *lot, workload.clip_norm, workload.noise_multiplier),
    }
    return Baseline(runs, size(model), ("torch",))


def haar(x: Tensor, out: Tensor) -> Tensor:
    """Our `haar` of f32[rows, m], m a power of two, into `out`."""
    means, end = x, x.shape[1]
    while end > 1:
        left, right = means.unflatten(1, (end // 2, 2)).unbind(2)
        torch.sub(left, right, out=out[:, end // 2 : end]).mul_(0.5)
        means = (left + right).mul_(0.5)
        end //= 2
    out[:, :1] = means
    return out


def inverse_haar(coefficients: Tensor, out: Tensor) -> Tensor:
    """Our `inverse_haar` of f32[rows, m] into `out`."""
    means, at = coefficients[:, :1], 1
    while at < coefficients.shape[1]:
        details = coefficients[:, at : 2 * at]
        at *= 2
        finer = out if at == coefficients.shape[1] else out.new_empty(len(out), at)
        left, right = finer.unflatten(1, (at // 2, 2)).unbind(2)
        torch.add(means, details, out=left)
        torch.sub(means, details, out=right)
        means = finer
    return out
