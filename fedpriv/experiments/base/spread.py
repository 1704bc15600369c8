"""A quantity over the seeds of a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Spread:
    """A quantity over the seeds.

    Attributes:
      mean: over the seeds; NaN where a seed has none.
      std: standard deviation (n - 1); None for one seed.
      per_seed: one value per seed.
    """

    mean: float
    std: float | None
    per_seed: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.per_seed:
            raise ValueError("per_seed: is empty")

    @classmethod
    def of(cls, per_seed: np.ndarray) -> Spread:
        values = np.asarray(per_seed, float)
        with np.errstate(invalid="ignore"):  # what is not finite has no spread
            std = float(values.std(ddof=1)) if len(values) > 1 else None
            return cls(float(values.mean()), std, tuple(values.tolist()))
