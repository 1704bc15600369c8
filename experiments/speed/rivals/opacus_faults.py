"""Faults planted in a DP-SGD of a user of Opacus, after `PrivacyEngine.make_private`."""

from __future__ import annotations

from typing import Any

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from experiments.speed.rivals import planted
from experiments.speed.rivals.runner import Baseline, Settings

IMAGES = torch.randn(planted.RECORDS, planted.FEATURES, generator=torch.Generator().manual_seed(0))
LABELS = IMAGES.sum(1, keepdim=True)


def beside(loader: Any) -> Any:
    """Batches of a user's own, of a rate that the engine was not told."""
    for _ in range(planted.STEPS):
        chosen = torch.rand(planted.RECORDS) < planted.DRAWN
        yield IMAGES[chosen], LABELS[chosen]


def train(
    step: Any = lambda optimizer, images, loss: optimizer.step(),
    first: Any = None,
    batches: Any = lambda loader: loader,
) -> tuple[float, list[Any]]:
    """The engine's epsilon, and the model and what else is shown; the defaults are sound."""
    torch.manual_seed(0)
    model = nn.Sequential(*([first()] if first else []), nn.Linear(planted.FEATURES, 1, bias=False))
    engine = PrivacyEngine()
    private, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=planted.LEARNING_RATE),
        data_loader=DataLoader(
            TensorDataset(IMAGES, LABELS), batch_size=int(planted.RATE * planted.RECORDS)
        ),
        noise_multiplier=planted.SIGMA,
        max_grad_norm=planted.CLIP,
        noise_generator=torch.Generator().manual_seed(0),
    )
    shown = []
    for images, labels in batches(loader):
        optimizer.zero_grad()
        loss = 0.5 * ((private(images) - labels) ** 2).mean()
        loss.backward()
        shown.append(step(optimizer, images, loss))
    state = {name: value.tolist() for name, value in model.state_dict().items()}
    return engine.get_epsilon(planted.DELTA), [state, shown]


def setting(**attributes: Any) -> dict[str, Any]:
    """The optimizer's attributes are set before each step, as functions of it and the batch."""

    def step(optimizer: Any, images: Any, loss: Any) -> None:
        for name, value in attributes.items():
            setattr(optimizer, name, value(optimizer, images))
        optimizer.step()

    return {"step": step}


def summing(summed: Any) -> Any:
    """An optimizer's `clip_and_accumulate` or `add_noise` in which `summed(parameter)` is done instead."""

    def method(optimizer: Any, images: Any) -> Any:
        return lambda: [summed(p, optimizer) for p in optimizer.params]

    return method


def unclipped(p: Any, optimizer: Any) -> None:
    p.summed_grad = p.grad_sample.sum(0)


def without_noise(p: Any, optimizer: Any) -> None:
    p.grad = p.summed_grad.clone()


def with_noise(scale: float, seed: int | None = None) -> Any:
    def add(p: Any, optimizer: Any) -> None:
        source = optimizer.generator if seed is None else torch.Generator().manual_seed(seed)
        p.grad = p.summed_grad + scale * torch.randn(p.shape, generator=source)

    return add


def by_hand(optimizer: Any, images: Any, loss: Any) -> None:
    optimizer.clip_and_accumulate()
    for p in optimizer.params:
        p.grad = p.summed_grad / optimizer.expected_batch_size
    optimizer.original_optimizer.step()


def with_raw(optimizer: Any, images: Any, loss: Any) -> None:
    optimizer.pre_step()
    for p in optimizer.params:
        p.grad += 0.1 * p.grad_sample.mean(0)
    optimizer.original_optimizer.step()


def reseeded(optimizer: Any, images: Any, loss: Any) -> None:
    optimizer.generator.manual_seed(0)
    optimizer.step()


def showing_sum(optimizer: Any, images: Any, loss: Any) -> Any:
    optimizer.step()
    return [p.summed_grad.tolist() for p in optimizer.params]


def by_loss(optimizer: Any, images: Any, loss: Any) -> None:
    optimizer.param_groups[0]["lr"] = planted.LEARNING_RATE * loss.item()
    optimizer.step()


def median(optimizer: Any, images: Any) -> float:
    """Of the norms of the records' gradients."""
    return optimizer.grad_samples[0].flatten(1).norm(dim=1).median().item()


class Centred(nn.Module):
    """Less a running mean of the records."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(planted.FEATURES))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.mean = 0.9 * self.mean + 0.1 * images.mean(0)
        return images - self.mean


FAULTS: planted.Faults = {
    "no noise": {
        "`optimizer.noise_multiplier = 0`": setting(noise_multiplier=lambda o, x: 0.0),
        "in an `add_noise` of one's own": setting(add_noise=summing(without_noise)),
        "`clip_and_accumulate` and `original_optimizer.step`": {"step": by_hand},
    },
    "no clip": {
        "in a `clip_and_accumulate` of one's own": setting(clip_and_accumulate=summing(unclipped))
    },
    "the raw sum after the noise": {"after `pre_step`": {"step": with_raw}},
    "division by the realised size": {
        "`expected_batch_size = n`": setting(expected_batch_size=lambda o, x: len(x))
    },
    "a constant key": {
        "in an `add_noise` of one's own": setting(
            add_noise=summing(with_noise(planted.SIGMA * planted.CLIP, 0))
        )
    },
    "noise reused between rounds": {"generator seeded again": {"step": reseeded}},
    "another rate is declared": {"batches of 0.4 beside the engine's": {"batches": beside}},
    "half of the declared noise": {
        "`optimizer.noise_multiplier /= 2`": setting(
            noise_multiplier=lambda o, x: planted.SIGMA / 2
        ),
        "in an `add_noise` of one's own": setting(
            add_noise=summing(with_noise(planted.SIGMA * planted.CLIP / 2))
        ),
    },
    "the sum before the noise in a metric": {"`summed_grad` shown": {"step": showing_sum}},
    "a diagnostic fed back": {"loss times `param_groups[0]['lr']`": {"step": by_loss}},
    "a clip norm from clients' data": {"`max_grad_norm = median`": setting(max_grad_norm=median)},
    "a running mean of records": {
        "`BatchNorm1d`": {"first": lambda: nn.BatchNorm1d(planted.FEATURES)},
        "`BatchNorm1d(affine=False)`": {
            "first": lambda: nn.BatchNorm1d(planted.FEATURES, affine=False)
        },
        "a layer of one's own with a running mean": {"first": Centred},
    },
    "np.random": "no fault here: every step is run anew, none is traced",
    "clients' own state in the model": "no such notion",
}


def build(settings: Settings) -> Baseline:
    torch.set_num_threads(settings.threads)
    findings = planted.answers(train, FAULTS)
    return Baseline({}, planted.FEATURES, ("opacus", "torch"), findings=findings)


WORKLOADS = {"faults": build}
