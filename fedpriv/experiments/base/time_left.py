"""How long something will still take on this machine, from how long its first parts took."""

from __future__ import annotations

import sys
import time

from fedpriv.core.terminal_text import span
from fedpriv.experiments.base.terminal import say

SHORT = 30.0  # seconds: who waits no longer needs no forecast
OFTEN = 60.0  # seconds between forecasts


class Remaining:
    """Says on standard error, after the first part and then every minute, how long the others will take.

    Args:
      what: is done.
      parts: that it has, of about the same cost.
    """

    def __init__(self, what: str, parts: int):
        self._what, self._parts = what, parts
        self._done, self._seconds = 0, 0.0
        self._last, self._said = time.monotonic(), -OFTEN

    def skip(self, parts: int) -> None:
        """So many take no time."""
        self._parts -= parts

    def advance(self, parts: int = 1, seconds: float | None = None) -> None:
        """So many more are done, in `seconds`, by default those since the last call."""
        now = time.monotonic()
        self._seconds += now - self._last if seconds is None else seconds
        self._last = now
        self._done += parts
        left = self._seconds / self._done * (self._parts - self._done)
        if left > SHORT and now - self._said >= OFTEN:
            self._said = now
            say(
                f"{self._what}: {self._done} of {self._parts} done, {span(left)} left on this machine",
                file=sys.stderr,
                flush=True,
            )
