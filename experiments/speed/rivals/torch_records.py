"""Workload B as a plain PyTorch loop: a round of DP-SCAFFOLD on logistic regression.

M. Noble, A. Bellet, A. Dieuleveut, arXiv:2111.09278, Algorithm 1. The gradients of single records are clipped in closed
form: none is ever formed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from experiments.speed.rivals.child import Baseline, Settings
from experiments.speed.rivals.examples import records
from experiments.speed.rivals.torch_common import on_device, prepare


def build(settings: Settings) -> Baseline:
    prepare(settings)
    workload = settings.workload
    everyone = 5 * settings.clients
    scaffold = DPScaffold(*on_device(records(workload, everyone), settings), workload)

    def one_round() -> Tensor:
        return scaffold.round(torch.randperm(everyone)[: settings.clients].tolist())

    return Baseline({"closed_form": one_round}, scaffold.theta.numel(), ("torch",))


class DPScaffold:
    """The server's and the clients' state.

    Attributes:
      theta: f32[features + 1, classes], the last row being the bias.
      control: as theta, the server's c.
      controls: f32[clients, features + 1, classes], the clients' c_i.
    """

    def __init__(self, x: Tensor, y: Tensor, workload: Any):
        """
        Args:
          x: f32[clients, records, features].
          y: i64[clients, records].
          workload: as `experiments.speed.workloads.Records`.
        """
        self._x = torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)
        self._squares = self._x.square().sum(-1)
        self._y = y
        self._workload = workload
        self.theta = x.new_zeros(workload.features + 1, workload.classes)
        self.control = torch.zeros_like(self.theta)
        self.controls = self.theta.repeat(len(x), 1, 1)

    @torch.inference_mode()
    def round(self, cohort: list[int]) -> Tensor:
        """Of the clients given; returns the new model."""
        dy, dc = torch.zeros_like(self.theta), torch.zeros_like(self.theta)
        for client in cohort:
            y, mean = self._local_steps(client)
            dy += y - self.theta
            dc += mean - self.controls[client]
            self.controls[client] = mean
        self.theta = self.theta + dy / len(cohort)
        self.control = self.control + dc / len(self.controls)
        return self.theta

    def _local_steps(self, client: int) -> tuple[Tensor, Tensor]:
        """The client's model and the mean of its noisy gradients, which is its next control variate."""
        workload = self._workload
        std = 2 * workload.clip_norm * workload.noise_multiplier / workload.batch
        correction = self.control - self.controls[client]
        y, total = self.theta.clone(), torch.zeros_like(self.theta)
        for _ in range(workload.steps):
            rows = torch.randperm(workload.records, device=y.device)[: workload.batch]
            gradient = self._clipped(y, client, rows).add_(torch.randn_like(y), alpha=std)
            total += gradient
            y.sub_(gradient.add_(correction), alpha=workload.rate)
        return y, total / workload.steps

    def _clipped(self, theta: Tensor, client: int, rows: Tensor) -> Tensor:
        """The mean of the records' clipped gradients x e^T + l2 theta, e = softmax(z) - onehot, z = theta^T x.

        The squared norm of one is ||x||^2 ||e||^2 + 2 l2 e.z + l2^2 ||theta||^2.
        """
        workload = self._workload
        x, l2 = self._x[client][rows], workload.l2
        z = x @ theta
        e = torch.softmax(z, 1)
        e[torch.arange(len(rows), device=e.device), self._y[client][rows]] -= 1
        squared = self._squares[client][rows] * e.square().sum(1)
        squared += 2 * l2 * (e * z).sum(1) + l2**2 * theta.square().sum()
        scale = (workload.clip_norm * squared.clamp(min=1e-20).rsqrt()).clamp(max=1.0)
        return (x.T @ (e * scale[:, None]) + l2 * scale.sum() * theta) / len(rows)
