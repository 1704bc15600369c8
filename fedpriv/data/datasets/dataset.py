"""What a loader returns, and the errors it raises."""

from typing import NamedTuple

import numpy as np

from fedpriv.core.leaves import sizes


class Dataset(NamedTuple):
    """A data set in memory.

    Attributes:
        name: the name given to `load`.
        train: leaves [N, ...], for image sets {"image": u8[N, height, width, channels],
            "label": i32[N]}.
        test: leaves [M, ...], alike.
        num_classes: labels lie in [0, num_classes).
        keys: i32[N], the natural client of each training example (`shakespeare`); None if there is none.
        persons: [N], whose each training example is, as ids, or i32[N, m] filled with -1: folds and held-out records
            are of whole persons, and certificates of a person; None: not known.
    """

    name: str
    train: dict[str, np.ndarray]
    test: dict[str, np.ndarray]
    num_classes: int
    keys: np.ndarray | None = None
    persons: np.ndarray | None = None

    def __repr__(self) -> str:
        """Without a record."""
        return f"Dataset({self.name!r}, train={sizes(self.train)}, test={sizes(self.test)})"


class MissingDataError(FileNotFoundError):
    """A data set or a split was not found; the message says how to get it."""


class CorruptDataError(ValueError):
    """A file of a data set exists but cannot be read; the message names it."""
