"""The operation of noise that is correlated with what the engine remembers of earlier rounds."""

from __future__ import annotations

from typing import Any

from jax.extend.core import ClosedJaxpr, JaxprEqn

from fedpriv.proof.flow import Operation, of_all_inputs
from fedpriv.proof.labels import Labels


class Remember(Operation):
    """Of what goes by an earlier round, too."""

    multiple_results = True

    def transfer(self, eqn: JaxprEqn, labels: list[Labels], rules: Any) -> list[Labels]:
        """Of all its inputs; what is remembered is noise alone."""
        return of_all_inputs(eqn, labels)


REMEMBER = Remember("fedpriv_remember")
"""What the engine remembers from round to round for an equation: its program gives the outputs, and the memory then."""


@REMEMBER.def_effectful_abstract_eval
def _remembered(*_: Any, program: ClosedJaxpr, memory: int, held: int) -> tuple[list[Any], Any]:
    return list(program.out_avals[: len(program.out_avals) - memory]), program.effects
