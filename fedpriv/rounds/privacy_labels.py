"""The labels of private data that are followed through a traced program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from fedpriv.privacy.seen import ClippedUnit

Labels: TypeAlias = frozenset
NONE: Labels = frozenset()


class LeakError(ValueError):
    """Something private gets past the releases of a round; says what, to where, and in which line."""


# Labels are not tuples: those of two kinds would be equal where their numbers are.


@dataclass(frozen=True)
class Private:
    """A label of what is protected.

    Attributes:
      what: it is, in words.
      group: whose data; a release bounds those of its own group. -1: of all.
      line: of the user's code that asked for it.
    """

    what: str
    group: int
    line: str


@dataclass(frozen=True)
class ClientState:
    """A label of what clients keep for themselves, each its own row, by a call in `line`."""

    line: str
    what: str = "what clients keep for themselves"


@dataclass(frozen=True)
class Hidden:
    """A label of the random numbers that no round sees."""

    what: str = "the hidden random numbers of the run"
    line: str = "the engine"


TAKING_PART = "who takes part"


class Protected(NamedTuple):
    """What a round protects.

    Attributes:
      unit: the privacy unit.
      secret: whether the certificate counts on nobody's knowing who takes part.
    """

    unit: ClippedUnit
    secret: bool

    def private(self, labels: Labels) -> Labels:
        """Those of what is protected."""
        every = of_kind(Private, labels)
        return every if self.secret else frozenset(x for x in every if x.what != TAKING_PART)

    def leaving(self, labels: Labels) -> Labels:
        """Those that may leave clients through a release alone."""
        return self.private(labels) | of_kind(ClientState, labels)


def of_kind(kind: type, labels: Labels) -> Labels:
    """The labels of one kind."""
    return frozenset(label for label in labels if isinstance(label, kind))


def joined(labels: list[Labels]) -> Labels:
    """All labels of several values."""
    return NONE.union(*labels)


def leak(name: str, leaked: Labels) -> LeakError:
    """The error of labels that reach `name`."""
    first = sorted(leaked, key=str)[0]
    return LeakError(
        f"round: {name} depends on {first.what} ({first.line}), past every release; send it through cohort.sum with a "
        "mechanism, or put it under metrics['diagnostics']"
    )
