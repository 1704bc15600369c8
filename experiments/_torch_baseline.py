"""The benchmark's round as a plain PyTorch loop, in a process of its own.

`python -m experiments._torch_baseline WORKLOAD CLIENTS THREADS DEVICE` (WORKLOAD as JSON) prints one JSON line about
itself, then waits for a memory layout per line and answers with the seconds that a round took in it. While it waits it
is blocked on the pipe, so that its threads do not compete with JAX's.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any

LAYOUTS = ("nchw", "channels_last")


class TorchRounds:
    """The parent's side: starts the child and asks it for rounds."""

    def __init__(self, workload: dict[str, Any], clients: int, threads: int, device: str):
        given = [json.dumps(workload), str(clients), str(threads), device]
        self._child = subprocess.Popen(
            [sys.executable, "-m", "experiments._torch_baseline", *given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def about(self) -> dict[str, Any]:
        """{"version", "threads", "parameters"}; to be asked once, before any round."""
        return self._answer()

    def round(self, layout: str) -> dict[str, float]:
        """{"seconds", "peak_memory_mb"} of one more round."""
        assert self._child.stdin
        self._child.stdin.write(layout + "\n")
        self._child.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._child.stdout
        line = self._child.stdout.readline()
        if not line:
            code = self._child.wait()
            raise ChildProcessError(f"--torch: the PyTorch process ended with exit code {code}")
        return json.loads(line)

    def __enter__(self) -> TorchRounds:
        return self

    def __exit__(self, *error: Any) -> None:
        self._child.kill()
        self._child.__exit__(*error)


def build(workload: dict[str, Any], clients: int, device: str) -> Any:
    """-> (layout -> the sum of the clipped updates), of the same model and local training as the JAX round."""
    import torch
    from torch import nn
    from torch.nn import functional

    layers: list[nn.Module] = []
    channels, side = 1, workload["side"]
    for width in workload["filters"]:
        layers += [nn.Conv2d(channels, width, 5, padding=2), nn.MaxPool2d(2), nn.ReLU()]
        channels, side = width, side // 2
    layers.append(nn.Flatten())
    inputs = channels * side**2
    for width in workload["hidden"]:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    layers.append(nn.Linear(inputs, 10))
    n, epochs = workload["examples"], workload["epochs"]
    shape = (clients, n, 1, workload["side"], workload["side"])
    images = torch.randint(0, 256, shape, dtype=torch.uint8, device=device)
    labels = torch.randint(0, 10, (clients, n), device=device)
    model = nn.Sequential(*layers).to(device)
    memory = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}

    def one_round(layout: str) -> list[torch.Tensor]:
        model.to(memory_format=memory[layout])
        theta = [p.detach().clone() for p in model.parameters()]
        total = [torch.zeros_like(p) for p in theta]
        for client in range(clients):
            with torch.no_grad():
                for p, start in zip(model.parameters(), theta, strict=True):
                    p.copy_(start)
            sgd = torch.optim.SGD(model.parameters(), workload["rate"], workload["momentum"])
            x = (images[client].float() / 255).contiguous(memory_format=memory[layout])
            for _ in range(epochs):
                order = torch.randperm(n, device=device)
                sgd.zero_grad()
                functional.cross_entropy(model(x[order]), labels[client][order]).backward()
                sgd.step()
            with torch.no_grad():
                delta = [s - p for s, p in zip(theta, model.parameters(), strict=True)]
                norm = torch.stack([d.norm() for d in delta]).norm()
                scale = (workload["clip_norm"] / norm).clamp(max=1.0)
                for t, d in zip(total, delta, strict=True):
                    t.add_(d * scale)
        with torch.no_grad():
            std = workload["clip_norm"] * workload["noise_multiplier"]
            for t in total:
                t.add_(torch.randn_like(t), alpha=std)
            for p, start, t in zip(model.parameters(), theta, total, strict=True):
                p.copy_(start)  # every round starts from the same model
                t.div_(clients)
        return total

    return one_round


def main(workload: str, clients: str, threads: str, device: str) -> None:
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("JAX uses a GPU, but this PyTorch has no CUDA device; install a CUDA build of it")
    torch.set_num_threads(int(threads))
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    one_round = build(json.loads(workload), int(clients), device)
    parameters = sum(total.numel() for total in one_round(LAYOUTS[0]))
    one_round(LAYOUTS[1])
    about = {"version": torch.__version__, "threads": torch.get_num_threads()}
    print(json.dumps(about | {"parameters": parameters}), flush=True)
    for layout in sys.stdin:
        began = time.perf_counter()
        one_round(layout.strip())
        if device == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        print(json.dumps({"seconds": seconds, "peak_memory_mb": peak_memory_mb()}), flush=True)


def peak_memory_mb() -> float:
    """Of this process so far, in megabytes (10^6 bytes) of main memory."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


if __name__ == "__main__":
    main(*sys.argv[1:])
