"""The labels of private data that are followed through a traced program."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.certification.information_flow import Labels


class LeakError(ValueError):
    """Something private gets past the releases of a round; says what, to where, and in which line."""


# Labels are not tuples: those of two kinds would be equal where their numbers are.


@dataclass(frozen=True)
class Private:
    """A label of what is protected.

    Attributes:
      what: it is, in words.
      call: of the cohort to whose client it belongs; -1: to all.
      line: of the user's code that asked for it.
    """

    what: str
    call: int
    line: str


@dataclass(frozen=True)
class ClientState:
    """A label of what clients keep for themselves, each its own row, by a call in `line`."""

    line: str


@dataclass(frozen=True)
class LinearUse:
    """A label of a fixed multiple of a noisy `mean`, the same for all clients, plus what does not depend on it.

    Attributes:
      mean: number of its mark.
    """

    mean: int


@dataclass(frozen=True)
class NonlinearUse:
    """A label of what depends on a noisy `mean` in another way."""

    mean: int


OF_CLIENT, OF_OWN = "a client's key", "a client's own row"
TAKING_PART = "who takes part"


def of(kind: type, labels: Labels) -> Labels:
    """Those of one kind."""
    return frozenset(label for label in labels if isinstance(label, kind))
