"""PyTorch by plain loops: workloads A, D, E and F (rounds of DP-FedAvg), B (DP-SCAFFOLD), C, G and H (steps).

Its steps serve the rivals on PyTorch, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments.speed import examples
from experiments.speed.rivals.runner import Baseline, Settings
from experiments.speed.rivals.torch_networks import CharacterLSTM, Transformer, cnn, size

LAYOUTS = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}
"""Of images in memory."""


def prepare(settings: Settings) -> None:
    """PyTorch's threads, and products of float32 numbers that are as precise as ours.

    Raises:
      RuntimeError: JAX uses a GPU and this PyTorch has none.
    """
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(
            "JAX uses a GPU, but this PyTorch has no CUDA device; install a CUDA build of it"
        )
    torch.set_num_threads(settings.threads)
    tf32 = settings.precision not in ("highest", "float32")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32


def on_device(x: np.ndarray, y: np.ndarray, settings: Settings) -> tuple[Tensor, Tensor]:
    """Examples and labels as PyTorch has them: images as [..., 1, side, side], labels as i64."""
    inputs, labels = (torch.from_numpy(each).to(settings.device) for each in (x, y))
    if inputs.dtype == torch.uint8:
        inputs = inputs.movedim(-1, -3).contiguous()
    return inputs, labels.long()


def local_training(model: nn.Module, x: Tensor, y: Tensor, workload: Any) -> None:
    """PyTorch: a step of SGD with momentum on all of a client's examples per epoch."""
    sgd = torch.optim.SGD(model.parameters(), workload.rate, workload.momentum)
    for _ in range(workload.epochs):
        order = shuffled(len(x), x.device)
        sgd.zero_grad()
        functional.cross_entropy(model(x[order]), y[order]).backward()
        sgd.step()


def shuffled(count: int, device: torch.device) -> Tensor:
    """A random order of so many, on a GPU by sorting, which a CUDA graph can hold."""
    if device.type == "cpu":
        return torch.randperm(count)
    return torch.rand(count, device=device).argsort()


def dp_fed_avg_round(model: nn.Module, x: Tensor, y: Tensor, workload: Any) -> list[Tensor]:
    """PyTorch: the mean of the clipped updates, start minus end, with noise. The model stays as it is.

    Args:
      x: [clients, examples, ...], what the model takes.
      y: i64[clients, examples, ...], labels of the logits [examples, classes, ...].
      workload: as `experiments.speed.workloads.LocalSGD`.
    """
    theta = [p.detach().clone() for p in model.parameters()]
    total = [torch.zeros_like(p) for p in theta]
    for mine, labels in zip(x, y, strict=True):
        add_client(total, model, theta, mine, labels, workload)
    return private_means(total, len(x), workload)


def add_client(
    total: list[Tensor], model: nn.Module, theta: list[Tensor], x: Tensor, y: Tensor, workload: Any
) -> None:
    """PyTorch: adds a client's clipped update to `total`; the model is at `theta` before and after."""
    local_training(model, x, y, workload)
    with torch.no_grad():
        delta = [s - p for s, p in zip(theta, model.parameters(), strict=True)]
        norm = torch.stack([d.norm() for d in delta]).norm()
        scale = (workload.clip_norm / norm).clamp(max=1.0)
        for t, d in zip(total, delta, strict=True):
            t.add_(d * scale)
        for p, start in zip(model.parameters(), theta, strict=True):
            p.copy_(start)


def private_means(total: list[Tensor], clients: int, workload: Any) -> list[Tensor]:
    """PyTorch: noise on sums of clipped updates, which are overwritten, and their division."""
    std = workload.clip_norm * workload.noise_multiplier
    return [t.add_(torch.randn_like(t), alpha=std).div_(clients) for t in total]


def images(settings: Settings) -> Baseline:
    """PyTorch's round of DP-FedAvg, in the two memory layouts of images."""
    prepare(settings)
    workload = settings.workload
    model = cnn(workload).to(settings.device)
    x, y = examples.images(workload, settings.clients, workload.examples)
    given = on_device(x, y, settings)
    runs: dict[str, Callable[[], Any]] = {
        name: partial(round_of_images, model, *given, workload, layout)
        for name, layout in LAYOUTS.items()
    }
    return Baseline(runs, size(model), ("torch",))


def round_of_images(
    model: nn.Module, x: Tensor, labels: Tensor, workload: Any, layout: torch.memory_format
) -> list[Tensor]:
    """PyTorch's round of u8[clients, examples, 1, side, side] and i64[clients, examples]."""
    model.to(memory_format=layout)
    clients, count = x.shape[:2]
    scaled = x.float().div(255).flatten(0, 1).contiguous(memory_format=layout)
    return dp_fed_avg_round(model, scaled.unflatten(0, (clients, count)), labels, workload)


def texts(settings: Settings) -> Baseline:
    """PyTorch's round of DP-FedAvg with a character LSTM."""
    prepare(settings)
    workload = settings.workload
    model = CharacterLSTM(workload).to(settings.device)
    text = examples.texts(workload, settings.clients, workload.examples)
    x, y = on_device(text[..., :-1].astype("int64"), text[..., 1:], settings)
    runs: dict[str, Callable[[], Any]] = {"loop": partial(dp_fed_avg_round, model, x, y, workload)}
    notes = ("its LSTM layers have a second bias vector of 1,024 numbers each",)
    return Baseline(runs, size(model), ("torch",), notes)


def records(settings: Settings) -> Baseline:
    """PyTorch's round of DP-SCAFFOLD on logistic regression."""
    prepare(settings)
    workload = settings.workload
    everyone = 5 * settings.clients
    x, y = examples.records(workload, everyone)
    scaffold = DPScaffold(*on_device(x, y, settings), workload)

    def one_round() -> Tensor:
        return scaffold.round(torch.randperm(everyone)[: settings.clients].tolist())

    return Baseline({"closed_form": one_round}, scaffold.theta.numel(), ("torch",))


class DPScaffold:
    """For PyTorch: the server's and the clients' state of DP-SCAFFOLD.

    M. Noble, A. Bellet, A. Dieuleveut, arXiv:2111.09278, Algorithm 1. The gradients of single records are clipped in
    closed form: none is ever formed.

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


def steps(settings: Settings) -> Baseline:
    """PyTorch's Haar transform in averaging form, by views of neighbours, beside a copy; a DP-SGD step."""
    prepare(settings)
    workload = settings.workload
    x = torch.randn(workload.rows, workload.length, device=settings.device)
    out = torch.empty_like(x)
    model = cnn(workload).to(settings.device)
    lot = on_device(*examples.images(workload, workload.lot), settings)
    runs: dict[str, Callable[[], Any]] = {
        "copy": partial(torch.add, x, 1, out=out),
        "haar": partial(haar, x, out),
        "inverse": partial(inverse_haar, x, out),
        "dp_sgd": private_step(model, *lot, workload),
    }
    return Baseline(runs, size(model), ("torch",))


def haar(x: Tensor, out: Tensor) -> Tensor:
    """PyTorch: our `haar` of f32[rows, m], m a power of two, into `out`."""
    means, end = x, x.shape[1]
    while end > 1:
        left, right = means.unflatten(1, (end // 2, 2)).unbind(2)
        torch.sub(left, right, out=out[:, end // 2 : end]).mul_(0.5)
        means = (left + right).mul_(0.5)
        end //= 2
    out[:, :1] = means
    return out


def inverse_haar(coefficients: Tensor, out: Tensor) -> Tensor:
    """PyTorch: our `inverse_haar` of f32[rows, m] into `out`."""
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


def private_step(
    model: nn.Module, lot: Tensor, labels: Tensor, workload: Any
) -> Callable[[], dict[str, Tensor]]:
    """() -> the private mean of the lot's gradients by parameter name; each record's by torch.func, clipped.

    Args:
      lot: u8[lot, 1, side, side], pixels; or others, as the model takes them.
      labels: i64[lot, ...], of the logits [lot, classes, ...].
      workload: has `clip_norm` and `noise_multiplier`.
    """

    def loss(params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(model, params, (x[None],)), y[None])

    each = vmap(grad(loss), in_dims=(None, 0, 0))
    params = {name: p.detach() for name, p in model.named_parameters()}
    std = workload.clip_norm * workload.noise_multiplier

    def step() -> dict[str, Tensor]:
        inputs = lot.float() / 255 if lot.dtype == torch.uint8 else lot
        gradients = each(params, inputs, labels)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
        scale = (workload.clip_norm / norms).clamp(max=1.0)
        total = {name: torch.tensordot(scale, g, 1) for name, g in gradients.items()}
        return {n: t.add_(torch.randn_like(t), alpha=std) / len(lot) for n, t in total.items()}

    return step


def attention(settings: Settings) -> Baseline:
    """PyTorch's gradient of the transformer without privacy, and a DP-SGD step."""
    prepare(settings)
    workload = settings.workload
    model = Transformer(workload).to(settings.device)
    text, labels = characters(settings)

    def gradient() -> list[Tensor]:
        loss = functional.cross_entropy(model(text), labels)
        return list(torch.autograd.grad(loss, list(model.parameters())))

    runs = {"gradient": gradient, "dp_sgd": unfused_step(model, text, labels, workload)}
    return Baseline(runs, size(model), ("torch",))


def characters(settings: Settings) -> tuple[Tensor, Tensor]:
    """For PyTorch, i64[lot, length]: characters, and the next ones."""
    text = examples.texts(settings.workload, settings.workload.lot).astype("int64")
    x, y = on_device(text[:, :-1], text[:, 1:], settings)
    return x.contiguous(), y.contiguous()


def unfused_step(
    model: Transformer, text: Tensor, labels: Tensor, workload: Any
) -> Callable[[], dict[str, Tensor]]:
    """PyTorch: `private_step` without the fused kernel, which `vmap` would call text by text."""
    step = private_step(model, text, labels, workload)

    def unfused() -> dict[str, Tensor]:
        with sdpa_kernel(SDPBackend.MATH):
            return step()

    return unfused


WORKLOADS = dict.fromkeys("ADE", images) | dict.fromkeys("GH", attention)
WORKLOADS |= {"B": records, "C": steps, "F": texts}
