"""What a round's program means: each client's program is run by itself, one after another, and what they send is added.

The engine lays the same program out on lanes and devices. Each of its layouts equals this run, up to the order of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, JaxprEqn, Primitive, jaxpr_as_fun

from fedpriv.core.jaxprs import evaluate
from fedpriv.core.trees import widened
from fedpriv.core.types import Key
from fedpriv.proof.given import OfClient
from fedpriv.proof.primitives import CLIENTS, MARK
from fedpriv.proof.program import Arguments, Results, RoundProgram


class Call(NamedTuple):
    """A call of the cohort, as it runs.

    Attributes:
      program: of one client, see `CLIENTS`.
      summed: how many of its outputs are summed.
      number: of its mark.
      hidden, key, kept, held: the operands.
    """

    program: ClosedJaxpr
    summed: int
    number: int
    hidden: Key
    key: Key
    kept: list[Any]
    held: list[Any]

    @classmethod
    def of(cls, eqn: JaxprEqn, values: list[Any]) -> Call:
        """That of an equation."""
        how, (hidden, key, *others) = eqn.params, values
        operands = hidden, key, others[: how["own"]], others[how["own"] :]
        return cls(how["program"], how["summed"], how["number"], *operands)

    def arguments(self, given: OfClient, rows: Sequence[Any]) -> list[Any]:
        """Of the program, for a client with these rows of what all keep."""
        keys = (jax.random.fold_in(key, given.number) for key in (self.hidden, self.key))
        return [*keys, *jax.tree.leaves(given), *rows, *self.held]


def reference_run(
    program: RoundProgram,
    arguments: Arguments,
    slots: Sequence[OfClient | None],
    rules: Mapping[Primitive, Callable[[JaxprEqn, list[Any]], list[Any]]] | None = None,
) -> Results:
    """The round of a cohort.

    Args:
      slots: who takes part, in the order in which they are added; None: an empty slot.
      rules: of operations that are not the proof's own: (equation, its inputs) -> its outputs.
    """

    def clients(eqn: JaxprEqn, values: list[Any]) -> list[Any]:
        call = Call.of(eqn, values)
        zeros = [jnp.zeros(a.shape, a.dtype) for a in call.program.out_avals]
        total, stacked = widened(zeros[: call.summed]), []
        for given in slots:
            found = zeros
            if given is not None:
                rows = [leaf[given.number] for leaf in call.kept]
                found = jaxpr_as_fun(call.program)(*call.arguments(given, rows))
                total = [t + x for t, x in zip(total, widened(found[: call.summed]), strict=True)]
            stacked.append(found[call.summed :])
        return [*total, *map(jnp.stack, zip(*stacked, strict=True))]

    table = {**(rules or {}), MARK: lambda _, values: values, CLIENTS: clients}

    def rule(eqn: JaxprEqn, values: list[Any]) -> Any:
        own = table.get(eqn.primitive)
        return NotImplemented if own is None else own(eqn, values)

    found = evaluate(program.program, jax.tree.leaves(arguments), rule)
    return jax.tree.unflatten(jax.tree.structure(program.out), found)
