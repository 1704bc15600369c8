"""Labels of what must not leave the clients, that are followed through a traced program.

A value has a set of labels, and sets are ordered by inclusion: to have more of them is to be known less of. All that is
asked is that sets only grow where a value may depend on more (`fedpriv.proof.flow`), and that they shrink in the marks
alone (`fedpriv.proof.marks`). So a label that is not there is proof that the value does not depend on what it is of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from jax.extend.core import JaxprEqn

Labels: TypeAlias = frozenset["Label"]
NONE: Labels = frozenset()
TAKING_PART = "who takes part"


class LeakError(ValueError):
    """Something private gets past the releases of a round; says what, to where, and in which line."""


@dataclass(frozen=True)
class Label:
    """Of something that must not leave the clients, be it of a kind that is known here or not.

    Attributes:
      what: it is, in words.
      group: whose data; a release bounds those of its own group. -1: of all, which none bounds.
      line: of the user's code that asked for it.
      stays: whether it may be in the state, from where it comes back in the next round.
    """

    what: str
    group: int
    line: str
    stays: ClassVar[bool] = False

    def after(self, eqn: JaxprEqn, inputs: Labels) -> Label:
        """What becomes of it in the outputs of an equation that is not a mark, whose inputs have these labels."""
        return self


@dataclass(frozen=True)
class Private(Label):
    """Of a client's data, or of what tells of them."""


@dataclass(frozen=True)
class Hidden(Label):
    """Of the random numbers that no round sees: noisy sums are made of them, and nothing else that leaves may be."""

    what: str = "the hidden random numbers of the run"
    group: int = -1
    line: str = "the engine"


@dataclass(frozen=True)
class Protected:
    """What a round protects: whole clients, and who takes part where the `draws` of its cohorts count on that."""

    draws: Any

    @property
    def secret(self) -> bool:
        """Whether the certificate counts on nobody's knowing who takes part."""
        return bool(self.draws.secret)

    def private(self, labels: Labels) -> Labels:
        """Those of what must not leave the clients as it is."""
        return labels if self.secret else frozenset(x for x in labels if x.what != TAKING_PART)

    def data(self, labels: Labels) -> Labels:
        """Those of what a release has to bound: all but the random numbers in it."""
        return self.private(labels) - of_kind(Hidden, labels)

    def bounded_by_sum(self, call: int, line: str) -> set[int]:
        """The groups of data that the noisy sum of a call of the cohort, in a line of the user's code, bounds."""
        return {call}

    def of_number(self, own: Label) -> Labels:
        """The labels of a client's number, given that of its data: it tells who takes part."""
        return frozenset({own})


def of_kind(kind: type[Label], labels: Labels) -> Labels:
    """The labels of one kind."""
    return frozenset(label for label in labels if isinstance(label, kind))


def joined(labels: list[Labels]) -> Labels:
    """All labels of several values."""
    return NONE.union(*labels)


def passed(eqn: JaxprEqn, labels: Labels) -> Labels:
    """What becomes of the labels of the inputs of an equation that is not a mark."""
    return frozenset(label.after(eqn, labels) for label in labels)


def leak(name: str, leaked: Labels) -> LeakError:
    """The error of labels that reach `name`."""
    first = sorted(leaked, key=str)[0]
    return LeakError(
        f"round: {name} depends on {first.what} ({first.line}), past every release; send it through cohort.sum with a "
        "mechanism, or put it under metrics['diagnostics']"
    )
