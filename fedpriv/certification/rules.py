"""The table of rules: how labels pass through the equations of a traced program."""

from __future__ import annotations

from typing import Any, NamedTuple

from fedpriv.certification.information_flow import MARK, Labels
from fedpriv.certification.marks import Marks
from fedpriv.certification.privacy_labels import ClientState, Private, Protected, joined, of_kind

_BY_ROWS = frozenset(
    (
        *("copy", "select_n", "convert_element_type", "cond", "while"),
        *("add", "sub", "mul", "div", "neg", "max", "min", "exp", "log", "sign", "abs", "sqrt"),
        "tanh",
    )
)
"""What leaves each client's row where it is, in arrays that hold a row for each."""


class Rules(NamedTuple):
    """How labels pass through equations: joined, but for marks, and for the rows that clients keep.

    Attributes:
      marks: by their numbers.
      protected: what the round protects.
    """

    marks: Marks
    protected: Protected

    def transfer(self, eqn: Any, labels: list[Labels]) -> list[Labels]:
        """The labels of the outputs of an equation, given those of its inputs."""
        if eqn.primitive is MARK:
            return self.marks[eqn.params["number"]].transfer(labels, self.protected)
        every, name = joined(labels), eqn.primitive.name
        # An operation that mixes rows, or that brings in private data, ends the promise that each is a client's own.
        if (kept := of_kind(ClientState, every)) and not (
            name in _BY_ROWS and not of_kind(Private, every)
        ):
            every = (every - kept) | {Private("clients' own state", -1, x.line) for x in kept}
        return [every] * len(eqn.outvars)
