"""Level 3: what a run folder holds, writing and reading it, TensorBoard, W&B and MLflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedpriv.experiments.runs.run_folder import read as read

__all__ = ["read"]


def __getattr__(name: str) -> Any:
    if name != "read":
        raise AttributeError(f"module 'fedpriv.experiments.runs' has no attribute {name!r}")
    from fedpriv.experiments.runs.run_folder import read

    return read
