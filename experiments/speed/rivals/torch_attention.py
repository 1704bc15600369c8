"""Workload G in PyTorch: the transformer, its gradient without privacy, a DP-SGD step by torch.func."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.speed.rivals.child import Baseline, Settings
from experiments.speed.rivals.examples import texts
from experiments.speed.rivals.torch_common import on_device, prepare, private_step, size


class Attention(nn.Module):
    """Causal, by PyTorch's own fused kernel."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.output = nn.Linear(width, width), nn.Linear(width, width)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        split = [
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        ]
        found = functional.scaled_dot_product_attention(*split, is_causal=True)
        return self.output(found.transpose(1, 2).flatten(2))


class Residual(nn.Module):
    def __init__(self, width: int, inner: nn.Module):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(width, eps=1e-6), inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(self.norm(x))


class Transformer(nn.Module):
    """`experiments.speed.rivals.transformer`'s."""

    def __init__(self, workload: Any):
        super().__init__()
        width = workload.width
        self.embedding = nn.Embedding(workload.vocabulary, width)
        self.places = nn.Embedding(workload.length, width)
        layers: list[nn.Module] = []
        for _ in range(workload.layers):
            dense = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width)
            )
            layers += [
                Residual(width, Attention(width, workload.heads)),
                Residual(width, dense),
            ]
        self.layers = nn.Sequential(*layers, nn.LayerNorm(width, eps=1e-6))
        self.output = nn.Linear(width, workload.vocabulary)

    def forward(self, text: Tensor) -> Tensor:
        """i64[batch, length] -> the logits f32[batch, vocabulary, length]."""
        places = torch.arange(text.shape[1], device=text.device).repeat(len(text), 1)
        x = self.embedding(text) + self.places(places)
        return self.output(self.layers(x)).movedim(2, 1)


def lot(settings: Settings) -> tuple[Tensor, Tensor]:
    """i64[lot, length]: characters, and the next ones."""
    given = texts(settings.workload, settings.workload.lot)
    return on_device((given[:, :-1].astype("int64"), given[:, 1:].astype("int64")), settings)


def build(settings: Settings) -> Baseline:
    prepare(settings)
    workload = settings.workload
    model = Transformer(workload).to(settings.device)
    text, labels = (x.contiguous() for x in lot(settings))

    def gradient() -> list[Tensor]:
        loss = functional.cross_entropy(model(text), labels)
        return list(torch.autograd.grad(loss, list(model.parameters())))

    return Baseline(
        {"gradient": gradient, "dp_sgd": private(model, text, labels, workload)},
        size(model),
        ("torch",),
    )


def private(
    model: Transformer, text: Tensor, labels: Tensor, workload: Any
) -> Callable[[], dict[str, Tensor]]:
    """`private_step` without the fused kernel, which `vmap` would call text by text."""
    step = private_step(model, text, labels, workload.clip_norm, workload.noise_multiplier)

    def unfused() -> dict[str, Tensor]:
        with sdpa_kernel(SDPBackend.MATH):
            return step()

    return unfused
