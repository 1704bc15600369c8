"""Simulated hours of rounds whose members work at speeds of their own. They come from public numbers alone, no data.

Each client is of a public class of speed, and its turn comes as often as anybody's. What it is asked for takes it the
hours of its class: always, or on average and exponentially distributed. So many clients, `at_work`, work at any time.

- A synchronous round asks them together, and lasts as long as the slowest of them.
- A buffer of K answers lasts K / at_work times the mean hours of all clients, as nobody waits for anybody.
- Each buffer that fills up falls into the work of all who work at that time but the one whose answer fills it. So a
  buffer's answers are late by (at_work - 1) / K buffers, and those of a class in proportion to its hours.

All are means over a long run.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from fedpriv.core.complaints import require

Law: TypeAlias = Literal["constant", "geometric"]


class Speeds(NamedTuple):
    """Public classes of speed.

    Attributes:
      hours: that an answer takes, by class.
      shares: of the clients, by class; they add up to 1.
      law: of the hours: constant; or exponential with that mean, of which the whole buffers are geometric.
    """

    hours: tuple[float, ...]
    shares: tuple[float, ...]
    law: Law

    @property
    def mean(self) -> float:
        """Hours of an answer, over all clients."""
        return float(np.dot(self.hours, self.shares))

    def up_to(self, slowest: float) -> Speeds:
        """Those of the clients that take so many hours at most.

        Raises:
          ValueError: no class does.
        """
        kept = [(h, s) for h, s in zip(self.hours, self.shares, strict=True) if h <= slowest]
        require(bool(kept), "slowest", slowest, f"give at least {min(self.hours):g} hours")
        hours, shares = zip(*kept, strict=True)
        return Speeds(hours, tuple(s / sum(shares) for s in shares), self.law)

    def synchronous(self, at_work: int) -> float:
        """Hours until the slowest of so many clients has answered.

        The mean of the largest of independent numbers, each at most t with probability F(t): the integral of
        1 - F(t)^at_work.
        """
        edges = np.array([0.0, *sorted(self.hours)])
        if self.law == "geometric":
            edges = np.linspace(0, 50 * max(self.hours), 200_001)
        middle, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
        return float(width @ (1 - (1 - self.at_work_after(middle)) ** at_work))

    def buffered(self, at_work: int, buffer: int) -> float:
        """Hours until a buffer is full."""
        return buffer / at_work * self.mean

    def delays(self, at_work: int, buffer: int) -> tuple[float, ...]:
        """By class, how many buffers fill up while a client is at work, on average."""
        return tuple((at_work - 1) / buffer * hours / self.mean for hours in self.hours)

    def at_work_after(self, hours: np.ndarray) -> np.ndarray:
        """[n], the probability that a client's answer takes longer than so many hours, [n]."""
        each = np.array(self.hours)[:, None]
        left = hours < each if self.law == "constant" else np.exp(-hours / each)
        return np.asarray(np.array(self.shares) @ left)
