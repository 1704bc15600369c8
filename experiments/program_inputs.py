"""A traced program run with other numbers in it, which may be inputs of a larger one.

Equations whose inner programs get no number are bound as they are; the others are built anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.extend.core import Jaxpr, JaxprEqn, Literal
from jax.sharding import PartitionSpec

from experiments.program_numbers import Position, inner
from fedpriv.core.jaxprs import bind

Values = dict[Position, Any]


def run(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any], values: Values) -> list[Any]:
    """The results of `jaxpr`, with `values` in the places of its own numbers (see `program_numbers`)."""
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

    def read(e: int, i: int, atom: Any) -> Any:
        return values.get((e, i), atom.val) if isinstance(atom, Literal) else env[atom]

    for e, eqn in enumerate(jaxpr.eqns):
        operands = [read(e, i, atom) for i, atom in enumerate(eqn.invars)]
        below = {rest[1:]: v for rest, v in values.items() if rest[0] == e and len(rest) > 2}
        with eqn.ctx.manager:
            results = _again(eqn, operands, below) if below else bind(eqn, operands)
        env.update(zip(eqn.outvars, results, strict=True))
    return [read(-1, i, atom) for i, atom in enumerate(jaxpr.outvars)]


def _again(eqn: JaxprEqn, operands: list[Any], values: Values) -> Sequence[Any]:
    """An equation whose programs get `values`, which JAX closes over: control flow is built anew from functions."""
    if eqn.primitive.name == "shard_map":
        return _shard_map(eqn, operands, values)
    fns = {place: _function(eqn, place, values) for place in inner(eqn)}
    again = {"scan": _scan, "while": _while, "cond": _cond}.get(eqn.primitive.name)
    if again:
        return again(eqn.params, fns, operands)
    (fn,) = fns.values()  # functions jitted inside, and those with derivatives of their own
    return fn(*operands)


Functions = dict[tuple[str, int], Callable[..., list[Any]]]


def _function(eqn: JaxprEqn, place: tuple[str, int], values: Values) -> Callable[..., list[Any]]:
    """A program of an equation as a function of its operands."""
    jaxpr, given = inner(eqn)[place], eqn.params[place[0]]
    closed = given[place[1]] if isinstance(given, tuple) else given
    mine = {rest[2:]: value for rest, value in values.items() if rest[:2] == place}
    return lambda *args: run(jaxpr, getattr(closed, "consts", ()), args, mine)


def _scan(params: dict[str, Any], fns: Functions, operands: list[Any]) -> Sequence[Any]:
    first, carried = params["num_consts"], params["num_carry"]
    consts, start, xs = _split(operands, first, carried)

    def body(carry: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
        out = fns["jaxpr", 0](*consts, *carry, *x)
        return out[:carried], out[carried:]

    how = {name: params[name] for name in ("length", "reverse", "unroll")}
    carry, ys = lax.scan(body, start, xs, **how)
    return [*carry, *ys]


def _while(params: dict[str, Any], fns: Functions, operands: list[Any]) -> Sequence[Any]:
    cond, body, start = _split(operands, params["cond_nconsts"], params["body_nconsts"])
    return lax.while_loop(
        lambda state: fns["cond_jaxpr", 0](*cond, *state)[0],
        lambda state: fns["body_jaxpr", 0](*body, *state),
        start,
    )


def _cond(params: dict[str, Any], fns: Functions, operands: list[Any]) -> Sequence[Any]:
    index, *rest = operands
    return lax.switch(index, list(fns.values()), *rest)


def _shard_map(eqn: JaxprEqn, operands: list[Any], values: Values) -> Sequence[Any]:
    """Every device gets the numbers whole."""
    params, positions = eqn.params, list(values)

    def on_each_device(given: list[Any], *args: Any) -> list[Any]:
        mine = dict(zip(positions, given, strict=True))
        return _function(eqn, ("jaxpr", 0), mine)(*args)

    return jax.shard_map(
        on_each_device,
        mesh=params["mesh"],
        in_specs=(PartitionSpec(), *params["in_specs"]),
        out_specs=list(params["out_specs"]),
        check_vma=params["check_vma"],
    )(list(values.values()), *operands)


def _split(operands: list[Any], first: int, second: int) -> tuple[list[Any], list[Any], list[Any]]:
    return operands[:first], operands[first : first + second], operands[first + second :]
