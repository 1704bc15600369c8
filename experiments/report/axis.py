"""An axis of a picture: its range, its ticks and where a value lies on it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple


class Axis(NamedTuple):
    """From `low` to `high`, drawn from `start` to `end` (in the units of the picture); `whole`: ticks are integers."""

    low: float
    high: float
    log: bool
    start: float
    end: float
    whole: bool = False

    def at(self, value: float) -> float:
        """Where `value` is drawn; on a logarithmic axis, what is not positive lies at its low end."""
        if self.log:
            value = max(value, self.low)
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round numbers within the range."""
        from matplotlib.ticker import LogLocator, MaxNLocator

        decades = math.log10(self.high / self.low) if self.log else math.inf
        if self.log and decades > 1:
            within = (1.0,) if decades > 3 else (1.0, 3.0) if decades > 1.5 else (1.0, 2.0, 5.0)
            found = LogLocator(base=10, subs=within, numticks=7).tick_values(self.low, self.high)
        else:
            found = MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10], integer=self.whole).tick_values(
                self.low, self.high
            )
        margin = 1e-9 * (self.high - self.low)
        return [float(t) for t in found if self.low - margin <= t <= self.high + margin]


def fitted(
    values: Sequence[float],
    *,
    start: float,
    end: float,
    extremes: Sequence[float] = (),
    bounds: tuple[float, float] = (-math.inf, math.inf),
    log: bool = False,
    from_zero: bool = False,
) -> Axis:
    """An axis on which all finite `values`, and the `extremes` as far as it can show them, have room.

    Args:
      values: what is drawn; at least one is finite.
      extremes: ends of the bands.
      bounds: beyond which the axis does not go.
      log: whether it is logarithmic; the values are positive then.
      from_zero: whether it starts there.
    """
    finite = [v for v in values if math.isfinite(v)]
    least = min(finite)
    ends = finite + [v for v in extremes if math.isfinite(v) and (v > least / 3 or not log)]
    low, high = min(ends), max(ends)
    if log:
        room = (high / low) ** 0.04
        return Axis(low / room, high * room, True, start, end)
    low = 0.0 if from_zero and low >= 0 else low
    room = 0.04 * (high - low) or 0.05 * abs(high) or 0.5
    low, high = low if low == 0 and from_zero else low - room, high + room
    return Axis(max(low, bounds[0]), min(high, bounds[1]), False, start, end)


def far_apart(values: Sequence[float], ratio: float) -> bool:
    """Whether the values are positive and the greatest is more than `ratio` times the least."""
    finite = [v for v in values if math.isfinite(v)]
    return min(finite) > 0 and max(finite) / min(finite) > ratio


def text(tick: float) -> str:
    """As short as it can be: 2.5e-9, not 2.5e-09."""
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{tick:g}")
