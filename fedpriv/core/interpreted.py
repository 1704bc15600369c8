"""Traced programs evaluated by rules for other values than arrays, such as factors of matrices; what they depend on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun
from jax.interpreters import partial_eval as pe

from fedpriv.core.jaxprs import Rule, closed, evaluate, scan_operands


class NotInterpretedError(Exception):
    """A value that is no array reaches an operation that is not known for it."""


def inlined(eqn: JaxprEqn, values: Sequence[Any], rule: Rule) -> list[Any]:
    """The outputs of a call of a jitted function, its body evaluated like the rest.

    Raises:
      NotInterpretedError: `eqn` is no such call.
    """
    if eqn.primitive.name not in ("jit", "pjit"):
        raise NotInterpretedError(eqn.primitive.name)
    inner = eqn.params["jaxpr"]
    return evaluate(inner, values, rule)


def evaluated_inside(eqn: JaxprEqn, values: Sequence[Any], rule: Rule) -> list[Any]:
    """The outputs of a call, or of a scan, its body evaluated like the rest.

    Raises:
      NotInterpretedError: `eqn` is neither.
    """
    if eqn.primitive.name != "scan":
        return inlined(eqn, values, rule)
    body = eqn.params["jaxpr"]
    consts, carry, xs = scan_operands(eqn, values)

    def turn(carry: list[Any], xs: list[Any]) -> tuple[list[Any], list[Any]]:
        out = evaluate(body, [*consts, *carry, *xs], rule)
        return out[: len(carry)], out[len(carry) :]

    how = {name: eqn.params[name] for name in ("length", "reverse", "unroll")}
    carry, ys = lax.scan(turn, carry, xs, **how)
    return [*carry, *ys]


def producers(jaxpr: Jaxpr) -> Callable[[Any], JaxprEqn | None]:
    """From what an equation takes or the program gives to the equation that computes it first of its results.

    None for an input or a constant, which may be a literal array.
    """
    made = {eqn.outvars[0]: eqn for eqn in jaxpr.eqns if eqn.outvars}
    return lambda atom: None if isinstance(atom, Literal) else made.get(atom)


def constant_outputs(program: ClosedJaxpr, wanted: Sequence[bool]) -> list[Any] | None:
    """The outputs of a program that are `wanted`, where they depend on no input; None where they do."""
    jaxpr = closed(program.jaxpr).jaxpr
    computing, used = pe.dce_jaxpr(jaxpr, list(wanted))
    constants = len(program.consts)
    if any(used[constants:]) or computing.effects:
        return None
    given = [const for const, needed in zip(program.consts, used, strict=False) if needed]
    return jaxpr_as_fun(ClosedJaxpr(computing, ()))(*given)
