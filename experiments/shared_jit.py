"""One compilation for programs that differ in numbers alone, such as the points of a grid over learning rates.

Functions are traced; those of one structure (see `program_numbers`) share an executable, in which the numbers that
differ between them are inputs. At a function's own numbers it computes what `jax.jit` would, up to what XLA does with
constants (x / 3 becomes x * (1 / 3)): results agree to rounding. Functions that share with nobody, and numbers that are
the same in all, stay as they are.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr

from experiments.program_inputs import Values, run
from experiments.program_numbers import Position, as_bytes, numbers, same_structure


class Outside(NamedTuple):
    """What a program is called with and answers; part of its structure.

    Attributes:
      arguments, results: their tree structures.
      places: where the arguments' leaves are, None for what is no array.
      donated: positions of the arguments that are given up.
    """

    arguments: jax.tree_util.PyTreeDef
    results: jax.tree_util.PyTreeDef
    places: list[Any]
    donated: tuple[int, ...]


class Program:
    """A traced function; made by `SharedJit.trace`.

    Attributes:
      family: equal for programs that share an executable.
      identity: equal for programs that are the same, numbers included.
    """

    def __init__(self, family: _Family, values: Mapping[Position, Any]):
        self._family, self._values = family, values
        self.family = id(family)
        digest = hashlib.sha256()
        for position in sorted(values, key=str):
            digest.update(repr(position).encode() + as_bytes(values[position]))
        self.identity = (self.family, digest.digest())

    def compile(self) -> Callable[..., Any]:
        """The function, compiled if no program traced so far has done so for both."""
        varying = self._family.varying()
        executable = self._family.executable(varying)
        return partial(executable, [self._values[p] for p in varying]) if varying else executable

    def executable(self) -> jax.stages.Compiled:
        """What `compile` calls; it may take numbers before the function's arguments."""
        return self._family.executable(self._family.varying())


class SharedJit:
    """`jax.jit` for functions that may be the same up to numbers. Trace all that will run, then compile the first.

    Attributes:
      compilations: executables made so far.
      seconds: spent tracing and compiling.
    """

    def __init__(self) -> None:
        self.compilations = 0
        self.seconds = 0.0
        self._families: list[_Family] = []

    def trace(
        self, fn: Callable[..., Any], args: tuple, donate_argnums: Sequence[int] = ()
    ) -> Program:
        """The program of `fn` at arguments of these shapes and places; donated ones are given up in every call."""
        began = time.perf_counter()
        donated = tuple(donate_argnums)
        traced = jax.jit(fn, donate_argnums=donated).trace(*args)
        leaves, tree = jax.tree.flatten(args)
        places = [getattr(leaf, "sharding", None) for leaf in leaves]
        outside = Outside(tree, jax.tree.structure(traced.out_info), places, donated)
        family = next((f for f in self._families if f.fits(traced.jaxpr, outside)), None)
        if family is None:
            family = _Family(self, traced, args, outside)
            self._families.append(family)
        values = numbers(traced.jaxpr)
        family.join(values)
        self.seconds += time.perf_counter() - began
        return Program(family, values)


class _Family:
    """Programs of one structure, the first of which is the template of all."""

    def __init__(self, owner: SharedJit, traced: Any, args: tuple, outside: Outside):
        self._owner, self._traced, self._outside = owner, traced, outside
        self._like = jax.tree.map(_like, args)
        self._first: Values = {}
        self._varying: set[Position] = set()
        self._compiled: tuple[list[Position], jax.stages.Compiled] | None = None

    def fits(self, program: ClosedJaxpr, outside: Outside) -> bool:
        return outside == self._outside and same_structure(self._traced.jaxpr, program)

    def join(self, values: Values) -> None:
        self._first = self._first or values
        self._varying |= {
            p for p, first in self._first.items() if as_bytes(first) != as_bytes(values[p])
        }

    def varying(self) -> list[Position]:
        return sorted(self._varying, key=str)

    def executable(self, varying: list[Position]) -> jax.stages.Compiled:
        """Of (numbers at the varying positions, *args), or of args alone where nothing varies."""
        if self._compiled is None or self._compiled[0] != varying:
            began = time.perf_counter()
            lowered = self._lower(varying) if varying else self._traced.lower()
            self._compiled = varying, lowered.compile()
            self._owner.compilations += 1
            self._owner.seconds += time.perf_counter() - began
        return self._compiled[1]

    def _lower(self, varying: list[Position]) -> Any:
        template: ClosedJaxpr = self._traced.jaxpr

        def fn(given: list[Any], *args: Any) -> Any:
            values = dict(zip(varying, given, strict=True))
            constants = [values.pop(("const", i), c) for i, c in enumerate(template.consts)]
            out = run(template.jaxpr, constants, jax.tree.leaves(args), values)
            return jax.tree.unflatten(self._outside.results, out)

        given = [self._first[position] for position in varying]
        jitted = jax.jit(fn, donate_argnums=[1 + i for i in self._outside.donated])
        return jitted.lower(given, *self._like)


def _like(leaf: Any) -> Any:
    """An argument's shape and, where it is bound to one, its place."""
    if not isinstance(leaf, jax.Array):
        return leaf
    place = leaf.sharding if leaf.committed else None
    weak = getattr(leaf, "weak_type", False)  # keys have no such type
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place, weak_type=weak)
