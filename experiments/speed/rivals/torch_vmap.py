"""PyTorch by `torch.func.vmap` over clients and by CUDA graphs: workloads A, D and E.

On a GPU the loop over clients (`torch`) waits for kernels to be launched, one after another. `vmap` trains all clients
at once, "graph" launches a client's whole training at once, client by client, and "vmap_graph" a whole round.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from experiments.speed import examples
from experiments.speed.rivals.runner import Baseline, Settings
from experiments.speed.rivals.torch import (
    add_client,
    on_device,
    prepare,
    private_means,
)
from experiments.speed.rivals.torch_networks import cnn, size

Run = Callable[[], Any]


def images(settings: Settings) -> Baseline:
    """PyTorch's round of DP-FedAvg, all clients side by side; on a GPU also by CUDA graphs."""
    prepare(settings)
    workload = settings.workload
    model = cnn(workload).to(settings.device)
    x, y = examples.images(workload, settings.clients, workload.examples)
    given = on_device(x, y, settings)
    by_vmap: Run = partial(round_side_by_side, model, *given, workload)
    runs = {"vmap": by_vmap}
    if settings.device == "cpu":
        notes: tuple[str, ...] = ("CUDA graphs need a GPU and are left out",)
    else:
        graphs: dict[str, Callable[[], Run]] = {
            "graph": partial(round_by_graph, model, *given, workload),
            "vmap_graph": partial(captured, by_vmap),
        }
        notes = _captured_into(runs, graphs)
    return Baseline(runs, size(model), ("torch",), notes)


def round_side_by_side(model: nn.Module, x: Tensor, y: Tensor, workload: Any) -> list[Tensor]:
    """PyTorch: `torch.dp_fed_avg_round`, each client with parameters of its own along a leading axis.

    Args:
      x: u8[clients, examples, 1, side, side].
      y: i64[clients, examples].
    """

    def loss(params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(model, params, (x,)), y)

    gradients = vmap(grad(loss))
    clients, count = y.shape
    scaled, client = x.float() / 255, torch.arange(clients, device=x.device)[:, None]
    theta = {name: p.detach() for name, p in model.named_parameters()}
    params = {name: p.expand(clients, *p.shape).clone() for name, p in theta.items()}
    momenta = {name: torch.zeros_like(p) for name, p in params.items()}
    for _ in range(workload.epochs):
        order = torch.rand(clients, count, device=x.device).argsort(1)
        for name, g in gradients(params, scaled[client, order], y[client, order]).items():
            momenta[name].mul_(workload.momentum).add_(g)
            params[name].sub_(momenta[name], alpha=workload.rate)
    deltas = [start - params[name] for name, start in theta.items()]
    norms = torch.stack([d.flatten(1).norm(dim=1) for d in deltas]).norm(dim=0)
    scales = (workload.clip_norm / norms).clamp(max=1.0)
    return private_means([torch.tensordot(scales, d, 1) for d in deltas], clients, workload)


def round_by_graph(model: nn.Module, x: Tensor, y: Tensor, workload: Any) -> Run:
    """PyTorch: `torch.dp_fed_avg_round` of these clients, in which a CUDA graph is one client's training."""
    theta = [p.detach().clone() for p in model.parameters()]
    total = [torch.zeros_like(p) for p in theta]
    mine, labels = x[0].float() / 255, y[0].clone()
    client = captured(partial(add_client, total, model, theta, mine, labels, workload))

    def run() -> list[Tensor]:
        for t in total:
            t.zero_()
        for pixels, its in zip(x.float() / 255, y, strict=True):
            mine.copy_(pixels)
            labels.copy_(its)
            client()
        return private_means(total, len(x), workload)

    return run


def captured(run: Run) -> Run:
    """A CUDA graph of what `run` launches; what it returns is overwritten by the next call."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):  # as PyTorch asks for, so that libraries have what they need
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = run()

    def replay() -> Any:
        graph.replay()
        return results

    return replay


def _captured_into(runs: dict[str, Run], graphs: dict[str, Callable[[], Run]]) -> tuple[str, ...]:
    """Adds the graphs that can be captured; returns why others cannot."""
    notes = []
    for name, capture in graphs.items():
        try:
            runs[name] = capture()
        except RuntimeError as error:
            notes.append(f"{name} is left out: {str(error).splitlines()[0]}")
    return tuple(notes)


WORKLOADS = dict.fromkeys("ADE", images)
