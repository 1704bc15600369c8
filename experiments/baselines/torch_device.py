"""What the PyTorch baselines share: threads, precision, waiting for the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from experiments.baselines.child import Settings


def prepare(settings: Settings) -> None:
    """Threads; float32 that means float32.

    Raises:
      RuntimeError: JAX uses a GPU and this PyTorch has none.
    """
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(
            "JAX uses a GPU, but this PyTorch has no CUDA device; install a CUDA build of it"
        )
    torch.set_num_threads(settings.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def synchronised(run: Callable[[], Any], device: str) -> Callable[[], Any]:
    """`run`, returning when the device is done."""

    def waiting() -> Any:
        result = run()
        if device == "cuda":
            torch.cuda.synchronize()
        return result

    return waiting
