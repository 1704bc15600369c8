"""One compilation for programs that differ in numbers alone, such as the points of a grid over learning rates.

A learning rate that a Python function closes over is a number in its jaxpr. Jaxprs that are the same but for numbers
share an executable in which the numbers that differ are inputs. It computes what `jax.jit` would, up to what XLA does
with constants (x / 3 becomes x * (1 / 3)). A program that shares with no other stays as it is.

What it gains: quickstart, 6 points (three noise multipliers x two learning rates), 20 trainings, empty caches: about
70 s of user CPU time with 4 compilations, 164 s with one per training (2 cores, other work beside it).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from fedpriv.core.substituted import RUNS, called, run
from fedpriv.devices.closed_arrays import is_large, placed
from fedpriv.experiments.training.shared_arrays import as_bytes, is_key

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
        programs = called(x), called(y)
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


def _compared(eqn: JaxprEqn) -> list[str]:
    """The other parameters. Once traced to be run, a function's own rules for derivatives are no longer needed."""
    name = eqn.primitive.name
    custom = name.startswith("custom_") and name in RUNS
    return [] if custom else [p for p in eqn.params if p not in RUNS.get(name, ())]


class Family:
    """Programs that share an executable: of one structure, the first of which is the template of all.

    Attributes:
      program: the template.
      varying: the numbers that are not the same in all.
      compilations: executables made so far.
    """

    def __init__(self, traced: Any, args: tuple, donated: Sequence[int]):
        places = [getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(args)]
        self._outside = (jax.tree.structure((args, traced.out_info)), places, tuple(donated))
        self._traced, self.program = traced, traced.jaxpr
        self._first = numbers(self.program, self.program)
        # Large arrays vary from the start: as inputs they are no part of the executable.
        self.varying = [place for place, value in self._first.items() if is_large(value)]
        self.compilations = 0
        self._executable: Any = None

    def join(self, other: Family) -> Program:
        """The first program of `other` as one of this family.

        Raises:
          _DifferError: its structure is another, or its arguments have other shapes or are elsewhere.
        """
        _demand(self._outside == other._outside)
        given, before = numbers(self.program, other.program), self.varying
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
        given = self.inputs(self._first)
        return jax.jit(self._run, donate_argnums=donated).lower(given, *args)

    def inputs(self, own: Numbers) -> list[Any]:
        """The varying numbers of one of the programs, with large arrays on the devices."""
        return [placed(own[i]) if is_large(own[i]) else own[i] for i in self.varying]

    def executable(self, args: tuple) -> jax.stages.Compiled:
        if self._executable is None:
            self._executable = self.lowered(args).compile()
            self.compilations += 1
        return self._executable

    def _run(self, given: list[Any], *args: Any) -> Any:
        values = dict(zip(self.varying, given, strict=True))
        out = run(self.program, jax.tree.leaves(args), values)
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
        executable, given = self.family.executable(args), self.family.inputs(self.numbers)
        return partial(executable, given) if given else executable


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
