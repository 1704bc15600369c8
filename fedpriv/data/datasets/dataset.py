"""What a loader returns, and the errors it raises."""

from typing import NamedTuple

import numpy as np


class Dataset(NamedTuple):
    """A dataset in memory.

    Attributes:
        name: the name given to `load`.
        train: leaves [N, ...], for image sets {"image": u8[N, height, width, channels],
            "label": i32[N]}.
        test: leaves [M, ...], alike.
        num_classes: labels lie in [0, num_classes).
        keys: i32[N], the natural client of each training example (`shakespeare`), else None.
    """

    name: str
    train: dict[str, np.ndarray]
    test: dict[str, np.ndarray]
    num_classes: int
    keys: np.ndarray | None = None


class MissingDataError(FileNotFoundError):
    """A dataset or a split is not where it was looked for; the message says how to get it."""


class CorruptDataError(ValueError):
    """A file of a dataset is there and cannot be read; the message names it."""
