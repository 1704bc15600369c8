"""When each example was: a moment, or the first and the last one of a window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedpriv.core.complaints import require
from fedpriv.data.validation import on_host

_REMEDY = "give a number or datetime64 for each of all examples, [N], or its first and last moment, [N, 2]"


class Moments(NamedTuple):
    """Of all examples.

    Attributes:
      begin, end: [N], the first and the last moment of each; the same where it has one alone.
    """

    begin: np.ndarray
    end: np.ndarray

    @classmethod
    def of(cls, time: ArrayLike, clients: Sequence[np.ndarray]) -> Moments:
        """Checked, for the rows that clients hold.

        Raises:
          ValueError: no numbers or dates, one or two of each example; a row without, or that ends before it begins.
        """
        given = on_host("time", time)
        plain = given.dtype.kind in "iufmM" and (given.ndim == 1 or given.shape[1:] == (2,))
        require(plain, "time", time, _REMEDY)
        rows = np.concatenate(clients)
        if (most := int(rows.max(initial=-1))) >= len(given):
            raise ValueError(f"time: {len(given)} moments, but there is a row {most}; {_REMEDY}")
        begin, end = (given, given) if given.ndim == 1 else (given[:, 0], given[:, 1])
        for wrong, what in (
            ((begin != begin) | (end != end), "has no time; leave it out, or say when it was"),
            (begin > end, "ends before it begins; give its first moment, then its last"),
        ):
            if wrong[rows].any():
                raise ValueError(f"time: row {rows[np.argmax(wrong[rows])]} {what}")
        return cls(begin, end)
