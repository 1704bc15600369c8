"""The marks in a traced round: where private data come from, and where they are released.

They run as the identity. Labels shrink here and nowhere else, and each mark says why they may. At a noisy sum they
may, because its step clips what each client of the call adds and perturbs the sum, whatever the clients compute of what
they are given and of what was released before: that is one adaptively chosen use of its mechanism, which the
certificate counts. It is so if the sum depends on no other private data, and this is what its mark checks. What is
trusted is that the call of the cohort puts a `Sum` on what its step has made, and on nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax

from fedpriv.core.types import PyTree
from fedpriv.proof.flow import Operation, of_all_inputs
from fedpriv.proof.labels import (
    NONE,
    TAKING_PART,
    Labels,
    LeakError,
    Private,
    Protected,
    joined,
    leak,
)
from fedpriv.proof.primitives import MARK
from fedpriv.proof.step import Step


class Mark(ABC):
    """What values in a round are, or may be taken to be: the door for what is released otherwise than by a sum."""

    @abstractmethod
    def transfer(self, labels: list[Labels], protected: Protected) -> list[Labels]:
        """How labels pass it."""


@dataclass(frozen=True)
class Source(Mark):
    """Private data come from here."""

    label: Private

    def transfer(self, labels: list[Labels], protected: Protected) -> list[Labels]:
        """What is so called is of all: no release bounds it. Who takes part, perhaps no secret, is told besides."""
        kept = labels if self.label.what == TAKING_PART else [NONE] * len(labels)
        return [each | {self.label} for each in kept]


@dataclass(frozen=True)
class Counted(Mark):
    """It is public, or what is done with it is counted by the release that comes of it.

    So it is of how many records a client holds where that is public (which is compared with the federation's), and of
    how many members are left to add noise.
    """

    def transfer(self, labels: list[Labels], protected: Protected) -> list[Labels]:
        """It tells nothing."""
        return [NONE] * len(labels)


@dataclass(frozen=True)
class Diagnostics(Mark):
    """Diagnostics of clients, of all together from here on."""

    label: Private

    def transfer(self, labels: list[Labels], protected: Protected) -> list[Labels]:
        """No call bounds them any more."""
        return [frozenset(replace(x, group=-1) for x in each) | {self.label} for each in labels]


@dataclass(frozen=True)
class Clients:
    """What is done for all clients in a call of the cohort, in `line` of the user's code; `number` is its mark's.

    All that a client is given is its own, of the group of this call.
    """

    line: str
    number: int

    @property
    def label(self) -> Private:
        """Of what a client is given."""
        return Private("a client's data", self.number, self.line)

    @property
    def taking_part(self) -> Private:
        """Of what tells which clients these are."""
        return Private(TAKING_PART, self.number, self.line)

    def given(self, name: str, protected: Protected) -> Labels:
        """Of what a client is given by this name, such as its "records"."""
        return protected.of_number(self.label) if name == "number" else frozenset({self.label})

    def rows(self, labels: list[Labels], protected: Protected) -> list[Labels]:
        """Of a client's own rows of arrays with these labels."""
        return [each | {self.label} for each in labels]


@dataclass(frozen=True)
class Released(Mark):
    """Something is released.

    Attributes:
      line: of the user's code.
      call: of the cohort.
      step: what makes it private.
      like: what is released, in shapes.
      times: how often a round, or a client in it, makes this release.
    """

    line: str
    call: int
    step: Step
    like: PyTree
    times: int = field(default=1, kw_only=True)

    def multiplier(self, t: int) -> float:
        """Of a single release, in round t.

        Raises:
          ValueError: it is computed in the round.
        """
        try:
            return float(self.step.mechanism.multipliers(t + 1)[-1][1])
        except jax.errors.ConcretizationTypeError:
            raise ValueError(
                f"mechanism: its multiplier is computed in the round ({self.line}), so nothing can be certified; give "
                "a number, or `fp.dynamic` for one that changes"
            ) from None


@dataclass(frozen=True)
class Sum(Released):
    """The sum of a cohort's messages is released; where clients add the noise it stands on a client's noisy message."""

    def transfer(self, labels: list[Labels], protected: Protected) -> list[Labels]:
        """A noisy sum may depend on the clients of its own call alone, and nothing is left of them.

        A sum of messages that are already private may depend on nothing private; if cohorts are secret, it tells who
        takes part. An unprotected sum shows everything: its certificate is infinite.

        Raises:
          LeakError: it depends on something else.
          ValueError: it protects another unit than the algorithm says.
        """
        every, shown = joined(labels), NONE
        if self.step.passes_on:
            check_sent(self.line, protected.private(every))
            if protected.secret:
                shown = frozenset({Private(TAKING_PART, -1, self.line)})
        elif self.step.is_noisy:
            bounded = protected.bounded_by_sum(self.call, self.line)
            check_bounded(self.line, protected.data(every), bounded)
        return [shown] * len(labels)


def check_sent(line: str, private: Labels) -> None:
    """Raises LeakError: there is something in a client's message that may not leave it as it is."""
    if private:
        raise leak(f"a client's message ({line})", private)


def check_bounded(line: str, labels: Labels, groups: set[int]) -> None:
    """Raises LeakError: the release depends on other private data than those of these groups."""
    for label in sorted(labels, key=str):
        if label.group not in groups:
            raise LeakError(
                f"round: the release in {line} depends on {label.what} ({label.line}) that it does not bound; release "
                "that first"
            )


class Marks(list[Mark | Clients]):
    """Those of a round, by their numbers; a list is equal to itself alone, so that equations may name it."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return "marks"


def mark_tree(marks: Marks, meaning: Mark, tree: PyTree) -> PyTree:
    """The tree, its leaves marked."""
    leaves, structure = jax.tree.flatten(tree)
    marks.append(meaning)
    if not leaves:
        return tree
    return jax.tree.unflatten(structure, MARK.bind(*leaves, number=len(marks) - 1, of=marks))


class Rules(NamedTuple):
    """How labels pass through the equations of a round: joined, but for those that say themselves what they mean.

    Attributes:
      marks: by their numbers.
      protected: what the round protects.
    """

    marks: Marks
    protected: Protected

    def transfer(self, eqn: Any, labels: list[Labels]) -> list[Labels]:
        """The labels of the outputs of an equation, given those of its inputs."""
        if isinstance(eqn.primitive, Operation):
            return eqn.primitive.transfer(eqn, labels, self)
        return of_all_inputs(eqn, labels)
