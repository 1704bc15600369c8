"""Memory: what a device has left, and what a traced program will need, without a compiler."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from jax.interpreters import partial_eval as pe

from fedpriv.core.jaxprs import is_call, programs, scan_operands


def free_memory() -> int:
    """Bytes that the least free of this process's devices has left; on CPU its share of what the system has."""
    free = []
    for device in jax.local_devices():
        about = device.memory_stats() or {}
        if "bytes_limit" in about:
            free.append(about["bytes_limit"] - about.get("bytes_in_use", 0))
    if free:
        return min(free)
    system = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return system // len(jax.local_devices())


def live_bytes(program: ClosedJaxpr) -> int:
    """About how many bytes of each device the temporary values of a traced program take at most at one time.

    A value is there from the operation that makes it to the last that uses it, but for what compilers fuse: views, and
    the results of cheap operations that a single other one takes in. Arguments, constants and results of the program
    are its caller's, and not counted.
    """
    jaxpr, _ = pe.dce_jaxpr(program.jaxpr, [True] * len(program.jaxpr.outvars))
    block = _Block(jaxpr, [_Value(0) for _ in jaxpr.invars])
    return block.peak(results=False)


class _Value:
    """What an operation makes, or is given. A view is of another value, and takes no memory itself."""

    def __init__(self, size: int, of: _Value | None = None):
        self.size = size  # in bytes
        self.of: _Value = self if of is None else of.of


class _Step(NamedTuple):
    """An operation, with the values that it takes and makes."""

    eqn: JaxprEqn
    takes: list[_Value]
    makes: list[_Value]


class _Block:
    """A program's operations in order, those of calls among them, and when each value is last used."""

    def __init__(self, jaxpr: Jaxpr, given: Sequence[_Value]):
        self._given, self._steps = given, list[_Step]()
        self._results = {out.of for out in self._read(jaxpr, given)}
        users: dict[_Value, list[int]] = {}
        for i, step in enumerate(self._steps):
            for value in {value.of for value in step.takes}:
                users.setdefault(value, []).append(i)
        # Where a step is computed: a fused one with the last that takes its result in.
        self._where = [*range(len(self._steps))]
        for i in reversed(self._where):
            used = users.get(self._steps[i].makes[0].of, []) if self._steps[i].makes else []
            if self._fuses(i, used):
                self._where[i] = max(self._where[u] for u in used)
                self._steps[i].makes[0].size = 0
        self._ends: list[list[_Value]] = [[] for _ in self._steps]
        for value, used in users.items():
            if value not in self._results:
                self._ends[max(self._where[u] for u in used)].append(value)

    def _read(self, jaxpr: Jaxpr, given: Sequence[_Value]) -> list[_Value]:
        """The values that the program gives; notes its steps."""
        known = {var: _Value(0) for var in jaxpr.constvars} | dict(
            zip(jaxpr.invars, given, strict=True)
        )

        def value_of(atom: Any) -> _Value:
            return _Value(0) if isinstance(atom, Literal) else known[atom]

        for eqn in jaxpr.eqns:
            takes, sizes = [value_of(atom) for atom in eqn.invars], [*map(_bytes, eqn.outvars)]
            if (inner := _called(eqn)) is not None:
                makes = self._read(inner, takes)
            elif eqn.primitive.name in _VIEWS and sizes == [*map(_bytes, eqn.invars)]:
                makes = [_Value(0, of) for of in takes]
            elif eqn.primitive.name in _PARTS:
                makes = [_Value(0, takes[0]) for _ in sizes]
            else:
                makes = [_Value(size) for size in sizes]
                self._steps.append(_Step(eqn, takes, makes))
            known.update(zip(eqn.outvars, makes, strict=True))
        return [value_of(atom) for atom in jaxpr.outvars]

    def _fuses(self, i: int, users: Sequence[int]) -> bool:
        """Whether the result of a step, of which these are the users, is never in memory."""
        step = self._steps[i]
        name = step.eqn.primitive.name
        if name not in _CHEAP or not users or step.makes[0] in self._results:
            return False
        taken_in = all(self._steps[u].eqn.primitive.name in _TAKE_IN for u in users)
        return taken_in and (len(users) == 1 or name in _REPEATED)

    def peak(self, results: bool = True) -> int:
        """The most bytes that are there at one time; `results`: those that the program gives among them."""
        live = most = sum(value.size for value in self._given)
        for i, step in enumerate(self._steps):
            if self._where[i] != i:
                continue
            made = sum(v.size for v in step.makes if results or v not in self._results)
            ended = [value.size for value in self._ends[i]]
            inside, reused = _inside(step, ended)
            most = max(most, live + made + inside - reused)
            live += made - sum(ended)
        return most


def _inside(step: _Step, ended: Sequence[int]) -> tuple[int, int]:
    """Bytes that an operation needs beside what it makes, and those of values that end with it which it can reuse."""
    name, eqn = step.eqn.primitive.name, step.eqn
    if name in ("scan", "while"):
        # Its state is there once: it has the place of the first and becomes the last.
        body, state, slices = _loop(eqn)
        own = sum(map(_bytes, state))
        given = {var: _Value(_bytes(var)) for var in (*state, *slices)}
        inner = _Block(body, [given.get(var, _Value(0)) for var in body.invars])
        return inner.peak() - own, min(sum(ended), own)
    if name == "cond":
        branches = [each.jaxpr for each in eqn.params["branches"]]
        blocks = [_Block(each, [_Value(0) for _ in each.invars]) for each in branches]
        return max(block.peak(results=False) for block in blocks), 0
    # Element by element, a result of the same size can have the place.
    reused = _bytes(eqn.outvars[0])
    return 0, reused if name in _TAKE_IN and reused in ended else 0


def _loop(eqn: JaxprEqn) -> tuple[Jaxpr, list[Any], list[Any]]:
    """The body of a loop, and of its inputs those that are its state, and the slices that it runs through."""
    if eqn.primitive.name == "scan":
        body = eqn.params["jaxpr"].jaxpr
        _, state, slices = scan_operands(eqn, body.invars)
        return body, state, slices
    body = eqn.params["body_jaxpr"].jaxpr
    return body, body.invars[eqn.params["body_nconsts"] :], []


def _called(eqn: JaxprEqn) -> Jaxpr | None:
    """The program that an equation runs once on each device, on all that it takes."""
    inner = programs(eqn) if is_call(eqn) or eqn.primitive.name == "shard_map" else []
    fits = inner and len(inner[0].jaxpr.invars) == len(eqn.invars)
    return inner[0].jaxpr if fits else None


def _bytes(atom: Any) -> int:
    about = atom.aval
    return math.prod(about.shape) * about.dtype.itemsize if hasattr(about, "shape") else 0


_VIEWS = {"reshape", "squeeze", "expand_dims", "broadcast_in_dim", "transpose", "copy", "name"}
_VIEWS |= {"optimization_barrier", "stop_gradient", "random_wrap", "random_unwrap"}
_VIEWS |= {"bitcast_convert_type", "reduce_precision"}
_PARTS = {"split", "unstack"}
_REPEATED = {"broadcast_in_dim", "iota"}  # rather than kept in memory
_CHEAP = _REPEATED | _VIEWS
for _names in (
    "abs add add_any and atan2 ceil clamp convert_element_type cos cosh div eq erf erf_inv erfc exp exp2 expm1 floor",
    "ge gt integer_pow is_finite le log log1p logistic lt max min mul ne neg not or pow rem round rsqrt select_n",
    "shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square sub tan tanh xor",
    "concatenate dynamic_slice gather pad rev slice stack",
):
    _CHEAP |= {*_names.split()}
_TAKE_IN = _CHEAP - {"concatenate", "stack"} | {"dynamic_update_slice", "argmax", "argmin"}
_TAKE_IN |= {f"reduce_{of}" for of in ("sum", "max", "min", "prod", "and", "or", "xor")}
