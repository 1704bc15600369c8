"""A step of DP-SGD in PyTorch: the gradient of each record by torch.func, clipped; noise."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional


class Step:
    """Called, gives the private mean of a lot's gradients, by parameter name."""

    def __init__(
        self,
        model: nn.Module,
        images: Tensor,
        labels: Tensor,
        clip_norm: float,
        noise_multiplier: float,
    ):
        """
        Args:
          images: u8[lot, 1, side, side].
          labels: i64[lot].
        """

        def loss(params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return functional.cross_entropy(functional_call(model, params, (x[None],)), y[None])

        self._each = vmap(grad(loss), in_dims=(None, 0, 0))
        self._params = {name: p.detach() for name, p in model.named_parameters()}
        self._images, self._labels = images, labels
        self._clip_norm, self._std = clip_norm, clip_norm * noise_multiplier

    def __call__(self) -> dict[str, Tensor]:
        lot = len(self._labels)
        gradients = self._each(self._params, self._images.float() / 255, self._labels)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
        scale = (self._clip_norm / norms).clamp(max=1.0)
        total = {name: torch.tensordot(scale, g, 1) for name, g in gradients.items()}
        return {
            name: t.add_(torch.randn_like(t), alpha=self._std) / lot for name, t in total.items()
        }
