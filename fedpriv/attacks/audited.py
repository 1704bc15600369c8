"""A round that is played by other rules than the engine's, which know the places of its program.

The program is the one that is certified. A rule finds what clients send, what is clipped and where noise comes in, and
listens there, or puts in what an adversary would.
"""

from __future__ import annotations

from typing import Any

from jax.extend.core import JaxprEqn

from fedpriv.attacks.places import Places
from fedpriv.proof.marks import Sum
from fedpriv.proof.primitives import CLIENTS, MARK
from fedpriv.proof.program import RoundProgram
from fedpriv.proof.reference import Call
from fedpriv.rounds.own_noise import Collected
from fedpriv.rounds.own_state import STORE
from fedpriv.rounds.remembered_noise import REMEMBER
from fedpriv.rounds.running import Engine, RoundToRun

_OF_ENGINE = MARK, CLIENTS, STORE, REMEMBER


class Audited(Engine):
    """The engine's rule, but for some places of the round itself.

    Args:
      program: of the round.
      of: who takes part, and so on.
      places: of the round; clients run as they are.
    """

    def __init__(self, program: RoundProgram, of: RoundToRun, places: Places):
        super().__init__(of)
        self._marks, self._places = program.marks, places

    def __call__(self, eqn: JaxprEqn, values: list[Any]) -> Any:
        """As `Engine`."""
        found = NotImplemented if eqn.primitive in _OF_ENGINE else self._places(eqn, values)
        return super().__call__(eqn, values) if found is NotImplemented else found

    def released(self, call: Call) -> Sum:
        """What is released of a call of the cohort."""
        sums = (mark for mark in self._marks if isinstance(mark, Sum))
        return next(mark for mark in sums if mark.call == call.number)

    def is_sum(self, eqn: JaxprEqn) -> bool:
        """Whether a mark of the round itself is that of a sum that third parties see."""
        of, number = eqn.params["of"], eqn.params["number"]
        return of is self._marks and isinstance(of[number], Sum | Collected)
