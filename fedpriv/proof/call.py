"""The call of the cohort: each client's message is clipped, the sum perturbed, and marked as released."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax

from fedpriv.core import random_streams
from fedpriv.core.complaints import require
from fedpriv.core.places import region
from fedpriv.core.types import PyTree
from fedpriv.proof.given import CallKeys, Member
from fedpriv.proof.primitives import in_shapes


class Messages(Protocol):
    """Where messages come from, and who hears what is told beside them.

    It needs no trust but for marks of its own, if it knows no hidden key but the member's own: the clip bounds what it
    makes of private data, and labels follow all that it hears.
    """

    def message(self, member: Member, *own: PyTree) -> PyTree:
        """Of a client, real floats."""

    def report(self, told: Any) -> PyTree:
        """What else is to be had of this client, given what is told of its contribution."""

    def hear(self, reports: PyTree) -> None:
        """The reports of all, stacked [slots, ...]."""

    def hear_of_sum(self, like: PyTree, told: Any) -> None:
        """What is told of the noisy sum, which has these shapes."""


class OfCall(NamedTuple):
    """What a call is made with.

    Attributes:
      calls: those of the round, `fedpriv.proof.calls.Calls`.
      keys: its own.
      messages: of its clients.
    """

    calls: Any
    keys: CallKeys
    messages: Messages


class NoisySum:
    """A step as a call takes it. One of another class may do otherwise, and answers for what its mark says.

    Its mechanism is the same in all rounds.

    A client's message is clipped by itself, whatever the others send. So the sums with it and without it differ by a
    vector within the clip's bound. The noise depends on the call's hidden key and on shapes alone, and nothing else is
    drawn from its key. So what is marked is one release of the mechanism.
    """

    mechanism: Any

    def contribution(self, of: OfCall, member: Member, message: PyTree) -> tuple[PyTree, Any]:
        """(What a client adds to the sum, what is told of it).

        Raises:
          ValueError: draws say how much its message counts, or how it is clipped, which a plain sum does not heed.
        """
        plain = not jax.tree.leaves(member.given.answer)
        require(plain, "sampler", member.given.answer, "its answers go with another kind of sum")
        return self.mechanism.clip(message)

    def noisy(self, of: OfCall, total: PyTree) -> tuple[PyTree, Any]:
        """(The sum with its noise, what is told of that)."""
        key = jax.random.fold_in(of.keys.hidden, random_streams.NOISE)
        return region("noise", self.mechanism.perturb, key, total), ()

    def released(self, of: OfCall, own: PyTree = ()) -> PyTree:
        """The noisy sum over the cohort, marked.

        Args:
          own: what clients keep, leaves [clients, ...].
        """

        def one(member: Member, *mine: PyTree) -> tuple[PyTree, PyTree]:
            message = of.messages.message(member, *mine)
            bounded, told = self.contribution(of, member, message)
            return bounded, of.messages.report(told)

        total, reports = of.calls.over_all(one, of.keys, own)
        of.messages.hear(reports)
        noisy, told = self.noisy(of, total)
        of.messages.hear_of_sum(in_shapes(noisy), told)
        return of.calls.released(noisy, self)
