"""Traced programs, run again with other values in the places of some of their numbers and arrays."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from jax.sharding import PartitionSpec

from fedpriv.core.jaxprs import bind, closed, scan_operands

Values: TypeAlias = Mapping[int, Any]
"""By the `id` of a literal, or of the variable of a constant, of a program or of one that it calls."""

# The parameters that hold what an equation runs; numbers in there can be replaced.
RUNS: dict[str, tuple[str, ...]] = {
    "jit": ("jaxpr",),
    "pjit": ("jaxpr",),
    "scan": ("jaxpr",),
    "shard_map": ("jaxpr",),
}
_COMPUTED_AGAIN = ("checkpoint", "remat", "remat2")  # by JAX's version
RUNS |= {name: ("jaxpr",) for name in _COMPUTED_AGAIN}
RUNS |= {"while": ("cond_jaxpr", "body_jaxpr"), "cond": ("branches",)}
RUNS |= {"custom_jvp_call": ("call_jaxpr",), "custom_vjp_call": ("call_jaxpr",)}


def called(eqn: JaxprEqn) -> list[ClosedJaxpr]:
    """The programs that an equation runs, in which values can be replaced."""
    given = [eqn.params[name] for name in RUNS.get(eqn.primitive.name, ())]
    every = jax.tree.leaves(given, is_leaf=lambda x: not isinstance(x, list | tuple))
    return [p if isinstance(p, ClosedJaxpr) else ClosedJaxpr(p, ()) for p in every]


def places(program: ClosedJaxpr) -> Iterator[tuple[Any, Any]]:
    """(its literal or the variable of its constant, value) for each value of the program and of those it runs.

    A value may stand in several places, and a place may come several times.
    """
    jaxpr = program.jaxpr
    yield from zip(jaxpr.constvars, program.consts, strict=False)  # an inner one's may be unknown
    atoms = itertools.chain(jaxpr.outvars, *(eqn.invars for eqn in jaxpr.eqns))
    yield from ((atom, atom.val) for atom in atoms if isinstance(atom, Literal))
    for eqn in jaxpr.eqns:
        for inner in called(eqn):
            yield from places(inner)


def run(program: ClosedJaxpr, args: Sequence[Any], values: Values) -> list[Any]:
    """The program's outputs, with `values` in the places of its own; parts without such a place stay as they are."""
    return _Run(values).outputs(program, args)


class _Run:
    def __init__(self, values: Values):
        self._values = values
        self._holds: dict[int, bool] = {}  # by the id of a program

    def outputs(self, program: ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
        jaxpr, values = program.jaxpr, self._values
        consts = [
            values.get(id(v), c) for v, c in zip(jaxpr.constvars, program.consts, strict=True)
        ]
        env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

        def value_of(atom: Any) -> Any:
            return values.get(id(atom), atom.val) if isinstance(atom, Literal) else env[atom]

        for eqn in jaxpr.eqns:
            operands = [value_of(atom) for atom in eqn.invars]
            with eqn.ctx.manager:
                new = any(self._holds_place(inner) for inner in called(eqn))
                results = self._again(eqn, operands) if new else bind(eqn, operands)
            env.update(zip(eqn.outvars, results, strict=True))
        return [value_of(atom) for atom in jaxpr.outvars]

    def _holds_place(self, program: ClosedJaxpr) -> bool:
        key = id(program.jaxpr)  # held by the program that is run
        if key not in self._holds:
            self._holds[key] = any(id(place) in self._values for place, _ in places(program))
        return self._holds[key]

    def _again(self, eqn: JaxprEqn, operands: list[Any]) -> Sequence[Any]:
        """Control flow built anew from functions that close over the values; calls are inlined."""
        name, (first, *_) = eqn.primitive.name, called(eqn)
        if name == "scan":
            return self._scan(eqn, operands)
        if name == "while":
            return self._while(eqn, operands)
        if name == "cond":
            branches = [lambda *args, p=p: self.outputs(p, args) for p in called(eqn)]
            return lax.switch(operands[0], branches, *operands[1:])
        if name in _COMPUTED_AGAIN:
            return self._checkpoint(eqn, operands)
        if name == "shard_map":  # every device gets the values whole
            return jax.shard_map(
                lambda given, *args: run(first, args, given),
                mesh=eqn.params["mesh"],
                in_specs=(PartitionSpec(), *eqn.params["in_specs"]),
                out_specs=list(eqn.params["out_specs"]),
                check_vma=eqn.params["check_vma"],
            )(dict(self._values), *operands)
        return self.outputs(first, operands)

    def _scan(self, eqn: JaxprEqn, operands: list[Any]) -> list[Any]:
        closed, start, xs = scan_operands(eqn, operands)

        def body(carry: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
            out = self.outputs(called(eqn)[0], [*closed, *carry, *x])
            return out[: len(carry)], out[len(carry) :]

        how = {name: eqn.params[name] for name in ("length", "reverse", "unroll")}
        return list(itertools.chain(*lax.scan(body, start, xs, **how)))

    def _while(self, eqn: JaxprEqn, operands: list[Any]) -> list[Any]:
        test, body = called(eqn)
        first = eqn.params["cond_nconsts"]
        last = first + eqn.params["body_nconsts"]
        tests, bodies, start = operands[:first], operands[first:last], operands[last:]

        def going(state: list[Any]) -> jax.Array:
            return self.outputs(test, [*tests, *state])[0]

        def step(state: list[Any]) -> list[Any]:
            after, on = self.outputs(body, [*bodies, *state]), going(state)
            if not on.shape:
                return after
            each = [jnp.expand_dims(on, range(on.ndim, x.ndim)) for x in after]
            return [jnp.where(*given) for given in zip(each, after, state, strict=True)]

        return lax.while_loop(lambda state: going(state).any(), step, start)

    def _checkpoint(self, eqn: JaxprEqn, operands: list[Any]) -> Sequence[Any]:
        """What is computed again stays so: bound once more, with the values as further operands."""
        inner: Jaxpr = eqn.params["jaxpr"]
        of_place = {id(place) for place, _ in places(ClosedJaxpr(inner, ()))}
        keys = [key for key in self._values if key in of_place]

        def body(*args: Any) -> list[Any]:
            given = dict(zip(keys, args[: len(keys)], strict=True))
            return run(ClosedJaxpr(inner, ()), args[len(keys) :], given)

        given = [self._values[key] for key in keys]
        made = jax.make_jaxpr(body)(*given, *operands)
        new = [*made.consts, *given]
        params = eqn.params | {"jaxpr": closed(made.jaxpr).jaxpr}
        if not isinstance(params["prevent_cse"], bool):  # said of each operand
            params["prevent_cse"] = (*(False for _ in new), *params["prevent_cse"])
        return bind(eqn.replace(params=params), [*new, *operands])
