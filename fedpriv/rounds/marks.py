"""The marks in a traced round: where private data come from, what clients keep, what is released.

Each says itself how labels pass it; elsewhere they are joined. They run as the identity.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import jax

from fedpriv.core.code_places import is_jax_file, place
from fedpriv.core.trees import dimension, shapes
from fedpriv.core.types import PyTree
from fedpriv.mechanisms.mechanisms import ALREADY_PRIVATE
from fedpriv.rounds.primitives import MARK
from fedpriv.rounds.privacy_labels import (
    NONE,
    TAKING_PART,
    ClientState,
    Hidden,
    Labels,
    LeakError,
    Private,
    Protected,
    joined,
    leak,
    of_kind,
)
from fedpriv.rounds.private_step import PrivateStep


class Source(NamedTuple):
    """A mark: private data come from here."""

    label: Private

    def transfer(self, labels: list[Labels], protected: Protected) -> list[Labels]:
        """What is so called is of all: no release bounds it."""
        return [frozenset({self.label})] * len(labels)


class Counted(NamedTuple):
    """A mark: it is public, or what is done with it is counted by the release that comes of it.

    So it is of how many records a client holds where that is public (which is compared with the federation's), and of
    how many members are left to add noise.
    """

    def transfer(self, labels: list[Labels], protected: Protected) -> list[Labels]:
        """It tells nothing."""
        return [NONE] * len(labels)


class Clients(NamedTuple):
    """What is done for all clients in a call of the cohort, in `line` of the user's code; `number` is its mark's."""

    line: str
    number: int

    @property
    def label(self) -> Private:
        """Of what a client is given."""
        return Private("a client's data", self.number, self.line)

    def rows(self, labels: list[Labels], protected: Protected) -> list[Labels]:
        """Of a client's own row, given those of what all have kept: it is of this client alone."""
        _keep_apart(self.line, joined(labels), protected)
        kept = [of_kind(ClientState, x) for x in labels]
        own = frozenset({self.label})
        return [(x - k) | (own if k else NONE) for x, k in zip(labels, kept, strict=True)]

    def number_of_client(self, protected: Protected) -> Labels:
        """Of which client it is: it may be known where records are protected."""
        return frozenset({self.label}) if protected.unit == "client" else NONE


class Diagnostics(NamedTuple):
    """A mark: diagnostics of clients, of all together from here on."""

    label: Private

    def transfer(self, labels: list[Labels], protected: Protected) -> list[Labels]:
        """No call bounds them any more."""
        return [frozenset(map(_of_all, x)) | {self.label} for x in labels]


class Batch(NamedTuple):
    """A mark: a private mean draws among these records, in `line`; the client's number and size come last.

    Attributes:
      label: of the records of the batch.
      own: of each leaf of the records, whether it is the client's own as it holds it.
    """

    line: str
    label: Private
    own: tuple[bool, ...]

    def transfer(self, labels: list[Labels], protected: Protected) -> list[Labels]:
        """From here on records are of the batch.

        Raises:
          LeakError: records that were changed may depend on others.
        """
        changed = [x for x, own in zip(labels, self.own, strict=False) if not own]
        if protected.private(joined(changed)):
            raise LeakError(
                f"round: records were changed before private_mean ({self.line}) draws among them, so one may depend on "
                "others; change each record in the loss"
            )
        of_batch = [frozenset({self.label})] * len(self.own)
        return [*of_batch, *[NONE] * (len(labels) - len(self.own))]


class Stored(NamedTuple):
    """A mark: a client keeps something for itself, in `line` of the user's code, in a `call` of the cohort."""

    line: str
    call: int

    def transfer(self, labels: list[Labels], protected: Protected) -> list[Labels]:
        """Whose row was replaced says who took part."""
        every = joined(labels)
        _keep_apart(self.line, every, protected, self.call)
        own = protected.secret or protected.leaving(every)
        return [frozenset({ClientState(self.line)}) if own else NONE] * len(labels)


def _keep_apart(line: str, labels: Labels, protected: Protected, call: int | None = None) -> None:
    """Raises LeakError: what a client keeps depends on private data of others than the client of this call."""
    for label in sorted(protected.private(labels), key=str):
        if call is None or label.group != call:
            raise LeakError(
                f"round: what a client keeps for itself ({line}) depends on {label.what} ({label.line}); give each "
                "client its own row alone"
            )


@dataclass
class Released:
    """A mark: something is released.

    Attributes:
      line: of the user's code.
      call: of the cohort.
      step: what makes it private.
      like: what is released, in shapes.
      times: how often a round, or a client in it, makes this release.
      happens: whether labels came to it.
    """

    line: str
    call: int
    step: PrivateStep
    like: PyTree
    times: int = field(default=1, kw_only=True)
    happens: bool = field(default=False, kw_only=True)

    @property
    def told(self) -> tuple[Any, ...]:
        """What a certificate of it rests on, in plain values."""
        kind = type(self).__name__
        return kind, shapes(self.like), self.step.told(dimension(self.like)), self.times

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


@dataclass
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
        self.happens = True
        every = joined(labels)
        leaving, shown = protected.leaving(every), NONE
        if self.step.mechanism is ALREADY_PRIVATE:
            _keep_in(self.line, leaving | of_kind(Hidden, every))
            if protected.secret:
                shown = frozenset({Private(TAKING_PART, -1, self.line)})
        elif self.step.is_noisy:
            if protected.unit == "record":
                raise ValueError(
                    f"unit: 'record', but cohort.sum ({self.line}) protects whole clients; leave out unit=, or give "
                    "ALREADY_PRIVATE"
                )
            _check_bounded(self.line, leaving, {self.call})
        return [shown] * len(labels)


class Collected(NamedTuple):
    """A mark: messages to which each client has added noise are summed, in `line`."""

    line: str

    def transfer(self, labels: list[Labels], protected: Protected) -> list[Labels]:
        """Raises LeakError: something private was added after the noise."""
        every = joined(labels)
        _keep_in(self.line, protected.leaving(every) | of_kind(Hidden, every))
        return [NONE] * len(labels)


def _keep_in(line: str, leaving: Labels) -> None:
    """Raises LeakError: there is something in a client's message that may not leave it as it is."""
    if leaving:
        raise leak(f"a client's message ({line})", leaving)


@dataclass
class Mean(Released):
    """The noisy mean of a client's records is released; what comes to the mark last is its clip norm.

    Attributes:
      batch: label of the records of its batch.
    """

    batch: Private

    def transfer(self, labels: list[Labels], protected: Protected) -> list[Labels]:
        """Nothing is left of the batch.

        Raises:
          LeakError: it depends on what it does not bound.
        """
        self.happens = True
        *means, bound = labels
        if self.step.is_noisy:
            groups = {self.batch.group} | ({self.call} if protected.unit == "client" else set())
            _check_bounded(self.line, protected.leaving(joined(means)), groups)
            for label in sorted(protected.private(bound), key=str):
                raise LeakError(
                    f"round: the clip norm in {self.line} depends on {label.what} ({label.line}); release that first"
                )
        return [NONE] * len(labels)


def _check_bounded(line: str, labels: Labels, groups: set[int]) -> None:
    """Raises LeakError: the release depends on other private data than those of these groups."""
    for label in sorted(labels, key=str):
        if getattr(label, "group", -1) not in groups:
            raise LeakError(
                f"round: the release in {line} depends on {label.what} ({label.line}) that it does not bound; release "
                "that first"
            )


def _of_all(label: Any) -> Any:
    return replace(label, group=-1) if isinstance(label, Private) else label


Mark: TypeAlias = Source | Counted | Clients | Diagnostics | Batch | Stored | Sum | Collected | Mean


class Marks(list[Mark]):
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


_ENGINE = frozenset(
    f"fedpriv.rounds.{name}"
    for name in (
        "calls",
        "cohort",
        "messages",
        "client_shard",
        "noise_stream",
        "marks",
        "primitives",
    )
)


def user_line() -> str:
    """File and line of what called the cohort, or the shard."""
    frame: Any = sys._getframe(1)
    while frame.f_globals.get("__name__") in _ENGINE or is_jax_file(frame.f_code.co_filename):
        frame = frame.f_back
    return place(frame.f_code.co_filename, frame.f_lineno)
