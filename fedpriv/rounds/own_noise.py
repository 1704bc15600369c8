"""The mark of messages to which each client has added noise itself."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.proof.labels import NONE, Labels, Protected, joined
from fedpriv.proof.marks import Mark, check_sent


@dataclass(frozen=True)
class Collected(Mark):
    """Messages to which each client has added noise are summed, in `line`."""

    line: str

    def transfer(self, labels: list[Labels], protected: Protected) -> list[Labels]:
        """Raises LeakError: something private was added after the noise."""
        check_sent(self.line, protected.private(joined(labels)))
        return [NONE] * len(labels)
