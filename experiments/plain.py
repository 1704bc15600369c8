"""Values as JSON knows them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """`value` as JSON knows it; infinity becomes the string "inf", NaN "nan"."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def flat(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted names."""
    found: dict[str, Any] = {}
    for name, held in fields.items():
        nested = isinstance(held, dict) and held
        found |= flat(held, f"{prefix}{name}.") if nested else {prefix + name: held}
    return found


def spread(per_seed: np.ndarray) -> dict[str, Any]:
    """Mean, standard deviation (n - 1; null for one seed) and the values of the seeds."""
    values = np.asarray(per_seed, float)
    std = float(values.std(ddof=1)) if len(values) > 1 else None
    return {"mean": float(values.mean()), "std": std, "per_seed": values.tolist()}
