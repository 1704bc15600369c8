"""The table of rules: how labels pass through the equations of a traced program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fedpriv.certification.information_flow import propagate
from fedpriv.core.places import TAP
from fedpriv.rounds.marks import Clients, Marks
from fedpriv.rounds.primitives import CLIENTS, MARK, STORE
from fedpriv.rounds.privacy_labels import (
    NONE,
    ClientState,
    Labels,
    Private,
    Protected,
    joined,
    of_kind,
)

_BY_ROWS = frozenset(
    (
        *("copy", "select_n", "convert_element_type", "cond", "while"),
        *("add", "sub", "mul", "div", "neg", "max", "min", "exp", "log", "sign", "abs", "sqrt"),
        "tanh",
    )
)
"""What leaves each client's row where it is, in arrays that hold a row for each."""


class Rules(NamedTuple):
    """How labels pass through equations: joined, but for ours, and for the rows that clients keep.

    Attributes:
      marks: by their numbers.
      protected: what the round protects.
    """

    marks: Marks
    protected: Protected

    def transfer(self, eqn: Any, labels: list[Labels]) -> list[Labels]:
        """The labels of the outputs of an equation, given those of its inputs."""
        if own := _OWN.get(eqn.primitive):
            return own(self, eqn, labels)
        every, name = joined(labels), eqn.primitive.name
        # An operation that mixes rows, or that brings in private data, ends the promise that each is a client's own.
        if (kept := of_kind(ClientState, every)) and not (
            name in _BY_ROWS and not of_kind(Private, every)
        ):
            every = (every - kept) | {Private("clients' own state", -1, x.line) for x in kept}
        return [every] * len(eqn.outvars)


def _mark(rules: Rules, eqn: Any, labels: list[Labels]) -> list[Labels]:
    if (
        eqn.params.get("of", rules.marks) is not rules.marks
    ):  # of another round, played within this one
        return labels
    return rules.marks[eqn.params["number"]].transfer(labels, rules.protected)


def _tap(rules: Rules, eqn: Any, labels: list[Labels]) -> list[Labels]:
    return labels


def _store(rules: Rules, eqn: Any, labels: list[Labels]) -> list[Labels]:
    return _mark(rules, eqn, labels)[: len(eqn.outvars)]  # the rows of all others stay


def _clients(rules: Rules, eqn: Any, labels: list[Labels]) -> list[Labels]:
    """One client stands for all: its data are private, the data of this call."""
    call = rules.marks[eqn.params["number"]]
    assert isinstance(call, Clients)
    program, own = eqn.params["program"], eqn.params["own"]
    (hidden, key), kept, held = labels[:2], labels[2 : 2 + own], labels[2 + own :]
    rows = call.rows(kept, rules.protected)
    held = [_of_all_rows(each) for each in held]
    of_own = frozenset({call.label})
    known = {"weight": NONE, "clip_scale": NONE, "number": call.number_of_client(rules.protected)}
    of_client = [known.get(name, of_own) for name in eqn.params["given"]]
    return propagate(program.jaxpr, [hidden, key, *of_client, *rows, *held], rules)


_OWN: dict[Any, Callable[[Rules, Any, list[Labels]], list[Labels]]] = {
    MARK: _mark,
    TAP: _tap,
    STORE: _store,
    CLIENTS: _clients,
}


def _of_all_rows(labels: Labels) -> Labels:
    """Of what a client closes over: the rows of all, if of any."""
    kept = of_kind(ClientState, labels)
    return (labels - kept) | {Private("clients' own state", -1, each.line) for each in kept}
