"""What clients keep for themselves from round to round, each its own row of arrays in the state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from jax.core import ShapedArray
from jax.extend.core import JaxprEqn

from fedpriv.proof.flow import Operation
from fedpriv.proof.labels import (
    NONE,
    Hidden,
    Label,
    Labels,
    LeakError,
    Private,
    Protected,
    joined,
    of_kind,
)
from fedpriv.proof.marks import Clients, Mark

_BY_ROWS = frozenset(
    (
        *("copy", "select_n", "convert_element_type", "cond", "while"),
        *("add", "sub", "mul", "div", "neg", "max", "min", "exp", "log", "sign", "abs", "sqrt"),
        "tanh",
    )
)
"""What leaves each client's row where it is, in arrays that hold a row for each."""


@dataclass(frozen=True)
class ClientState(Label):
    """A label of what clients keep for themselves, each its own row, by a call in `line`."""

    what: str = "what clients keep for themselves"
    group: int = -1
    line: str = ""
    stays: ClassVar[bool] = True

    def after(self, eqn: JaxprEqn, inputs: Labels) -> Label:
        """An operation that mixes rows, or that brings in private data, ends the promise that each is a client's own.

        So does a client that closes over those of all.
        """
        if eqn.primitive.name in _BY_ROWS and not of_kind(Private, inputs):
            return self
        return Private("clients' own state", -1, self.line)


@dataclass(frozen=True)
class OwnRowsAndWeights(Clients):
    """A call whose clients keep rows of their own, or whose answers count as their public groups say."""

    def given(self, name: str, protected: Protected) -> Labels:
        """As `Clients`; a weight, or a scale of the clip, is public."""
        return NONE if name in ("weight", "clip_scale") else super().given(name, protected)

    def rows(self, labels: list[Labels], protected: Protected) -> list[Labels]:
        """Given the labels of what all have kept: a client's own row is of this client alone."""
        _keep_apart(self.line, joined(labels), protected)
        kept = [of_kind(ClientState, x) for x in labels]
        own = frozenset({self.label})
        return [(x - k) | (own if k else NONE) for x, k in zip(labels, kept, strict=True)]


@dataclass(frozen=True)
class Stored(Mark):
    """A client keeps something for itself, in `line` of the user's code, in a `call` of the cohort."""

    line: str
    call: int

    def transfer(self, labels: list[Labels], protected: Protected) -> list[Labels]:
        """Whose row was replaced says who took part."""
        every = joined(labels)
        _keep_apart(self.line, every, protected, self.call)
        own = protected.secret or protected.data(every)
        kept = frozenset({ClientState(line=self.line)}) if own else NONE
        return [kept | of_kind(Hidden, every)] * len(labels)


def _keep_apart(line: str, labels: Labels, protected: Protected, call: int | None = None) -> None:
    """Raises LeakError: what a client keeps depends on private data of others than the client of this call."""
    for label in sorted(protected.data(labels) - of_kind(ClientState, labels), key=str):
        if call is None or label.group != call:
            raise LeakError(
                f"round: what a client keeps for itself ({line}) depends on {label.what} ({label.line}); give each "
                "client its own row alone"
            )


class Store(Operation):
    """Of new rows in what all clients keep."""

    multiple_results = True

    def transfer(self, eqn: JaxprEqn, labels: list[Labels], rules: Any) -> list[Labels]:
        """As its mark says; the rows of all others stay."""
        found = rules.marks[eqn.params["number"]].transfer(labels, rules.protected)
        return found[: len(eqn.outvars)]


STORE = Store("fedpriv_store")
"""(what all clients keep, new rows of the cohort's) -> what all keep then."""


@STORE.def_abstract_eval
def _stored(*avals: Any, number: int) -> list[ShapedArray]:
    return [ShapedArray(a.shape, a.dtype) for a in avals[: len(avals) // 2]]
