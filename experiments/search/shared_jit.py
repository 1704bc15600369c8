"""One compilation for programs that differ in numbers alone, such as the points of a grid over learning rates.

A learning rate that a Python function closes over is a number in its jaxpr. Jaxprs that are the same but for numbers
share an executable in which the numbers that differ are inputs. It computes what `jax.jit` would, up to what XLA does
with constants (x / 3 becomes x * (1 / 3)). A program that shares with no other stays as it is.

What it gains: quickstart, 6 points (three noise multipliers x two learning rates), 20 trainings, empty caches: about
70 s of user CPU time with 4 compilations, 164 s with one per training (2 cores, other work beside it).
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from jax.sharding import PartitionSpec

from experiments.training.shared_arrays import as_bytes, is_key
from fedpriv.core.jaxprs import bind, scan_operands

# The parameters that hold what an equation runs; numbers in there can be inputs.
RUNS: dict[str, tuple[str, ...]] = {
    "jit": ("jaxpr",),
    "pjit": ("jaxpr",),
    "scan": ("jaxpr",),
    "shard_map": ("jaxpr",),
}
RUNS |= {"while": ("cond_jaxpr", "body_jaxpr"), "cond": ("branches",)}
RUNS |= {"custom_jvp_call": ("call_jaxpr",), "custom_vjp_call": ("call_jaxpr",)}

Numbers = dict[int, Any]
"""By the `id` of the literal or the constant of a family's first program."""


class _DifferError(Exception):
    """Two programs differ in more than numbers."""


def _demand(same: bool) -> None:
    if not same:
        raise _DifferError


def numbers(first: ClosedJaxpr, other: ClosedJaxpr) -> Numbers:
    """For a shared executable: the values in `other` of what can be an input of `first`: scalars, arrays closed over.

    Raises:
      _DifferError: the programs are not the same up to those.
    """
    found: Numbers = {}
    pairs = list(_literals(first.jaxpr, other.jaxpr))
    pairs += zip(first.jaxpr.constvars, first.consts, other.consts, strict=True)
    for place, mine, value in pairs:
        # A literal may stand in several places.
        _demand(as_bytes(found.setdefault(id(place), value)) == as_bytes(value))
        if is_key(mine):
            _demand(as_bytes(mine) == as_bytes(value))
    return found


def _literals(a: Jaxpr, b: Jaxpr) -> Iterator[tuple[Literal, Any, Any]]:
    """The literals of `a`, and what they are in `a` and in `b`."""
    named: dict[Var, Var] = {}

    def define(xs: Sequence[Var], ys: Sequence[Var]) -> None:
        _demand([x.aval for x in xs] == [y.aval for y in ys])
        named.update(zip(xs, ys, strict=True))

    def operands(xs: Sequence[Any], ys: Sequence[Any]) -> Iterator[tuple[Literal, Any, Any]]:
        _demand([x.aval for x in xs] == [y.aval for y in ys])
        for x, y in zip(xs, ys, strict=True):
            if isinstance(x, Literal) and isinstance(y, Literal):
                of: Any = x.aval
                yield x, np.asarray(x.val, of.dtype), np.asarray(y.val, of.dtype)
            else:
                _demand(isinstance(x, Var) and named[x] is y)

    define([*a.constvars, *a.invars], [*b.constvars, *b.invars])
    _demand(len(a.eqns) == len(b.eqns))
    for x, y in zip(a.eqns, b.eqns, strict=True):
        _demand(x.primitive is y.primitive and repr(x.ctx) == repr(y.ctx))
        yield from operands(x.invars, y.invars)
        programs = _programs(x), _programs(y)
        _demand(len(programs[0]) == len(programs[1]))
        for p, q in zip(*programs, strict=True):
            _demand(list(map(as_bytes, p.consts)) == list(map(as_bytes, q.consts)))
            yield from _literals(p.jaxpr, q.jaxpr)
        _demand(all(_same(x.params[name], y.params[name]) for name in _compared(x)))
        define(x.outvars, y.outvars)
    yield from operands(a.outvars, b.outvars)


def _same(a: Any, b: Any) -> bool:
    try:
        return a is b or (type(a) is type(b) and bool(np.all(a == b)))
    except ValueError:  # arrays inside
        return False


def _programs(eqn: JaxprEqn) -> list[ClosedJaxpr]:
    """What an equation runs."""
    given = [eqn.params[name] for name in RUNS.get(eqn.primitive.name, ())]
    every = jax.tree.leaves(given, is_leaf=lambda x: not isinstance(x, list | tuple))
    return [p if isinstance(p, ClosedJaxpr) else ClosedJaxpr(p, ()) for p in every]


def _compared(eqn: JaxprEqn) -> list[str]:
    """The other parameters. Once traced to be run, a function's own rules for derivatives are no longer needed."""
    name = eqn.primitive.name
    custom = name.startswith("custom_") and name in RUNS
    return [] if custom else [p for p in eqn.params if p not in RUNS.get(name, ())]


def run(program: ClosedJaxpr, args: Sequence[Any], values: Numbers) -> list[Any]:
    """The results of a shared executable, with `values` in the places of a program's own numbers."""
    jaxpr = program.jaxpr
    consts = [values.get(id(v), c) for v, c in zip(jaxpr.constvars, program.consts, strict=True)]
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

    def value_of(atom: Any) -> Any:
        return values.get(id(atom), atom.val) if isinstance(atom, Literal) else env[atom]

    for eqn in jaxpr.eqns:
        operands = [value_of(atom) for atom in eqn.invars]
        with eqn.ctx.manager:
            results = _again(eqn, operands, values) if _programs(eqn) else bind(eqn, operands)
        env.update(zip(eqn.outvars, results, strict=True))
    return [value_of(atom) for atom in jaxpr.outvars]


def _again(eqn: JaxprEqn, operands: list[Any], values: Numbers) -> Sequence[Any]:
    """Control flow built anew from functions that close over `values`; calls are inlined."""
    params, name, (first, *others) = eqn.params, eqn.primitive.name, _programs(eqn)

    def split(*sizes: int) -> list[list[Any]]:
        ends = [0, *itertools.accumulate(sizes), len(operands)]
        return [operands[a:b] for a, b in itertools.pairwise(ends)]

    if name == "scan":
        closed, start, xs = scan_operands(eqn, operands)

        def body(carry: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
            out = run(first, [*closed, *carry, *x], values)
            return out[: len(carry)], out[len(carry) :]

        how = {name: params[name] for name in ("length", "reverse", "unroll")}
        return list(itertools.chain(*lax.scan(body, start, xs, **how)))
    if name == "while":
        tests, bodies, start = split(params["cond_nconsts"], params["body_nconsts"])

        def going(state: list[Any]) -> jax.Array:
            return run(first, [*tests, *state], values)[0]

        def step(state: list[Any]) -> list[Any]:
            after, on = run(others[0], [*bodies, *state], values), going(state)
            if not on.shape:
                return after
            each = [jnp.expand_dims(on, range(on.ndim, x.ndim)) for x in after]
            return [jnp.where(*given) for given in zip(each, after, state, strict=True)]

        return lax.while_loop(lambda state: going(state).any(), step, start)
    if name == "cond":
        branches = [lambda *args, p=p: run(p, args, values) for p in (first, *others)]
        return lax.switch(operands[0], branches, *operands[1:])
    if name == "shard_map":  # every device gets the numbers whole
        return jax.shard_map(
            lambda given, *args: run(first, args, given),
            mesh=params["mesh"],
            in_specs=(PartitionSpec(), *params["in_specs"]),
            out_specs=list(params["out_specs"]),
            check_vma=params["check_vma"],
        )(values, *operands)
    return run(first, operands, values)


class Family:
    """Programs that share an executable: of one structure, the first of which is the template of all.

    Attributes:
      varying: the numbers that are not the same in all.
      compilations: executables made so far.
    """

    def __init__(self, traced: Any, args: tuple, donated: Sequence[int]):
        places = [getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(args)]
        self._outside = (jax.tree.structure((args, traced.out_info)), places, tuple(donated))
        self._traced, self._program = traced, traced.jaxpr
        self._first = numbers(self._program, self._program)
        self.varying: list[int] = []
        self.compilations = 0
        self._executable: Any = None

    def join(self, other: Family) -> Program:
        """The first program of `other` as one of this family.

        Raises:
          _DifferError: its structure is another, or its arguments have other shapes or are elsewhere.
        """
        _demand(self._outside == other._outside)
        given, before = numbers(self._program, other._program), self.varying
        differ = {i for i in given if as_bytes(given[i]) != as_bytes(self._first[i])}
        self.varying = [i for i in given if i in differ or i in before]
        if self.varying != before:
            self._executable = None
        return Program(self, given)

    def lowered(self, args: tuple) -> jax.stages.Lowered:
        """Of (the varying numbers, *args), or of args alone where nothing varies."""
        if not self.varying:
            return self._traced.lower()
        donated = [1 + i for i in self._outside[-1]]
        numbers = [self._first[i] for i in self.varying]
        return jax.jit(self._run, donate_argnums=donated).lower(numbers, *args)

    def executable(self, args: tuple) -> jax.stages.Compiled:
        if self._executable is None:
            self._executable = self.lowered(args).compile()
            self.compilations += 1
        return self._executable

    def _run(self, given: list[Any], *args: Any) -> Any:
        values = dict(zip(self.varying, given, strict=True))
        out = run(self._program, jax.tree.leaves(args), values)
        return jax.tree.unflatten(jax.tree.structure(self._traced.out_info), out)


class Program(NamedTuple):
    """A traced function: the programs that it shares an executable with, and its own numbers."""

    family: Family
    numbers: Numbers

    @property
    def identity(self) -> bytes:
        """Equal for programs of one family that have the same numbers."""
        return hashlib.sha256(b"".join(map(as_bytes, self.numbers.values()))).digest()

    def compile(self, args: tuple) -> Callable[..., Any]:
        """The function, compiled if no program that has joined the family has done so for both."""
        executable, varying = self.family.executable(args), self.family.varying
        return partial(executable, [self.numbers[i] for i in varying]) if varying else executable


def trace(families: list[Family], fn: Callable[..., Any], args: tuple, donated: Any) -> Program:
    """`fn` as a program of one of the families, or of one of its own, which is added.

    Trace all that will run, then compile the first. Donated arguments are given up in every call.
    """
    own = Family(jax.jit(fn, donate_argnums=donated).trace(*args), args, donated)
    for family in families:
        with suppress(_DifferError):
            return family.join(own)
    families.append(own)
    return own.join(own)
