"""Random examples, as we and the rivals train on. NumPy alone: rivals ask, too, in environments of their own."""

from __future__ import annotations

from typing import Any

import numpy as np


def images(workload: Any, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    """Random images, u8[*shape, side, side, 1] and i32[*shape] labels of ten classes."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (*shape, workload.side, workload.side, 1), np.uint8)
    return pixels, rng.integers(0, 10, shape, np.int32)


def texts(workload: Any, *shape: int) -> np.ndarray:
    """Random texts, i32[*shape, length + 1] characters: each is the label of the one before it."""
    rng = np.random.default_rng(0)
    return rng.integers(0, workload.vocabulary, (*shape, workload.length + 1), np.int32)


def records(workload: Any, clients: int) -> tuple[np.ndarray, np.ndarray]:
    """Random records, f32[clients, records, features] of norm 1 and i32[clients, records] labels."""
    rng = np.random.default_rng(0)
    shape = (clients, workload.records)
    x = rng.standard_normal((*shape, workload.features), np.float32)
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    return x, rng.integers(0, workload.classes, shape, np.int32)
