"""The marks of what is released of single records: the batches that private means draw, and these means."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.proof.labels import (
    NONE,
    Label,
    Labels,
    LeakError,
    Private,
    Protected,
    joined,
)
from fedpriv.proof.marks import Mark, Released, check_bounded


@dataclass(frozen=True)
class ProtectedRecords(Protected):
    """Single records are protected: who takes part may be known."""

    @property
    def secret(self) -> bool:
        """As `Protected`."""
        return False

    def bounded_by_sum(self, call: int, line: str) -> set[int]:
        """Raises ValueError: a noisy sum of messages protects whole clients."""
        raise ValueError(
            f"unit: 'record', but cohort.sum ({line}) protects whole clients; leave out unit=, or give "
            "ALREADY_PRIVATE"
        )

    def of_number(self, own: Label) -> Labels:
        """It may be known."""
        return NONE


@dataclass(frozen=True)
class Batch(Mark):
    """A private mean draws among these records, in `line`; the client's number and size come last.

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
        if protected.data(joined(changed)):
            raise LeakError(
                f"round: records were changed before private_mean ({self.line}) draws among them, so one may depend on "
                "others; change each record in the loss"
            )
        of_batch = [frozenset({self.label})] * len(self.own)
        return [*of_batch, *[NONE] * (len(labels) - len(self.own))]


@dataclass(frozen=True)
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
        *means, bound = labels
        if self.step.is_noisy:
            of_client = set() if isinstance(protected, ProtectedRecords) else {self.call}
            check_bounded(self.line, protected.data(joined(means)), {self.batch.group} | of_client)
            for label in sorted(protected.data(bound), key=str):
                raise LeakError(
                    f"round: the clip norm in {self.line} depends on {label.what} ({label.line}); release that first"
                )
        return [NONE] * len(labels)
