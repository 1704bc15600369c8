"""The numbers in a traced program, and whether two programs are the same but for them.

A learning rate or a noise multiplier that a Python function closes over is a number in its jaxpr. Two runs that differ
in nothing else have jaxprs of one structure: the same primitives with the same parameters, wired in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

Position = tuple[int | str, ...]
"""Where a number stands: ("const", i), or (equation, operand), or (equation, parameter, which, ...) in a program that
an equation has among its parameters. Equation -1 stands for the results."""

# The parameters that hold what an equation runs; numbers in them can become inputs (see `shared_jit`).
_RUNS = {
    "jit": ("jaxpr",),
    "pjit": ("jaxpr",),
    "scan": ("jaxpr",),
    "while": ("cond_jaxpr", "body_jaxpr"),
    "cond": ("branches",),
    "shard_map": ("jaxpr",),
    "custom_jvp_call": ("call_jaxpr",),
    "custom_vjp_call": ("call_jaxpr",),
}
# Rules for derivatives have been applied, or are not asked for, once a program is traced to be run.
_DERIVATIVES = {"jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "out_trees", "symbolic_zeros"}


def inner(eqn: JaxprEqn) -> dict[tuple[str, int], Jaxpr]:
    """The programs, by (parameter, which), that an equation runs and whose numbers can become inputs."""
    name, params = eqn.primitive.name, eqn.params
    plain = True
    if name in ("jit", "pjit"):  # as fedpriv and jax.numpy use it: nothing laid out or donated
        layouts = (*params["in_shardings"], *params["out_shardings"])
        plain = all(type(s).__name__ == "UnspecifiedValue" for s in layouts)
        plain &= not any(params["donated_invars"])
    if name == "while":  # a vector of conditions is `vmap`'s, beyond what `lax.while_loop` takes
        plain = params["cond_jaxpr"].out_avals[0].shape == ()
    if name == "shard_map":
        manual = params.get("newly_manual_axes", params.get("manual_axes"))  # older JAX: the latter
        plain = manual == set(params["mesh"].axis_names)
    if not plain:
        return {}
    found = {}
    for param in _RUNS.get(name, ()):
        value = params[param]
        for which, jaxpr in enumerate(value if isinstance(value, tuple) else (value,)):
            found[param, which] = jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr
    return found


def numbers(program: ClosedJaxpr) -> dict[Position, Any]:
    """Everything that can become an input of `program`: scalars in it, and arrays that it closes over."""
    found: dict[Position, Any] = {
        ("const", i): value for i, value in enumerate(program.consts) if not _is_key(value)
    }
    return found | dict(_literals(program.jaxpr))


def _literals(jaxpr: Jaxpr) -> Iterator[tuple[Position, Any]]:
    for e, eqn in enumerate(jaxpr.eqns):
        for i, atom in enumerate(eqn.invars):
            if _free(atom):
                yield (e, i), _scalar(atom)
        for place, program in inner(eqn).items():
            yield from (((e, *place, *rest), value) for rest, value in _literals(program))
    for i, atom in enumerate(jaxpr.outvars):
        if _free(atom):
            yield (-1, i), _scalar(atom)


def _is_key(value: Any) -> bool:
    """Whether it is a key of `jax.random`, which NumPy does not know."""
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jax.dtypes.extended)


def _free(atom: Any) -> TypeGuard[Literal]:
    """Whether an operand is a number that an input can stand for."""
    aval: Any = atom.aval
    if not isinstance(atom, Literal) or aval.shape != ():
        return False
    kind = type(np.asarray(atom.val).item())
    return not aval.weak_type or aval.dtype == jnp.result_type(kind)


def _scalar(literal: Literal) -> Any:
    """The number as an argument of the literal's type: Python's numbers are weakly typed."""
    aval: Any = literal.aval
    value = np.asarray(literal.val, aval.dtype)
    return value.item() if aval.weak_type else value


def as_bytes(value: Any) -> bytes:
    """What makes two numbers or arrays the same: neither 0.0 and -0.0, nor different types."""
    if _is_key(value):
        value = jax.random.key_data(value)
    array = np.asarray(value)
    return f"{array.dtype} {array.shape} ".encode() + array.tobytes()


def same_structure(a: ClosedJaxpr, b: ClosedJaxpr) -> bool:
    """Whether two programs differ in nothing but their `numbers`."""
    shapes = [v.aval for v in a.jaxpr.constvars], [v.aval for v in b.jaxpr.constvars]
    if shapes[0] != shapes[1] or not _same_jaxpr(a.jaxpr, b.jaxpr, exact=False):
        return False
    constants = zip(a.consts, b.consts, strict=True)
    return all(as_bytes(x) == as_bytes(y) for x, y in constants if _is_key(x))


def _same_jaxpr(a: Jaxpr, b: Jaxpr, exact: bool) -> bool:
    """exact: numbers included."""
    if len(a.eqns) != len(b.eqns):
        return False
    named: dict[Var, Var] = {}

    def define(xs: Any, ys: Any) -> bool:
        named.update(zip(xs, ys, strict=False))
        return [x.aval for x in xs] == [y.aval for y in ys]

    def same(x: Any, y: Any) -> bool:
        if isinstance(x, Literal) and isinstance(y, Literal):
            free = not exact and _free(x) and _free(y)
            return x.aval == y.aval and (free or as_bytes(x.val) == as_bytes(y.val))
        return isinstance(x, Var) and named.get(x) is y

    def atoms(xs: Any, ys: Any) -> bool:
        return len(xs) == len(ys) and all(map(same, xs, ys))

    if not define([*a.constvars, *a.invars], [*b.constvars, *b.invars]):
        return False
    for x, y in zip(a.eqns, b.eqns, strict=True):
        if not atoms(x.invars, y.invars) or not _same_equation(x, y, exact):
            return False
        if not define(x.outvars, y.outvars):
            return False
    return atoms(a.outvars, b.outvars)


def _same_equation(a: JaxprEqn, b: JaxprEqn, exact: bool) -> bool:
    """Whether two equations do the same to the same operands."""
    if a.primitive is not b.primitive or a.params.keys() != b.params.keys():
        return False
    if a.ctx is not b.ctx and repr(a.ctx) != repr(b.ctx):
        return False
    runs = () if exact or not inner(a) or not inner(b) else _RUNS[a.primitive.name]
    derivatives = _DERIVATIVES if a.primitive.name.startswith("custom_") else ()
    return all(
        _same_parameter(value, b.params[name], exact=name not in runs)
        for name, value in a.params.items()
        if name not in derivatives
    )


def _same_parameter(a: Any, b: Any, exact: bool) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, ClosedJaxpr):
        values = [as_bytes(x) for x in a.consts], [as_bytes(x) for x in b.consts]
        return values[0] == values[1] and _same_jaxpr(a.jaxpr, b.jaxpr, exact)
    if isinstance(a, Jaxpr):
        return _same_jaxpr(a, b, exact)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(
            _same_parameter(x, y, exact) for x, y in zip(a, b, strict=True)
        )
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same_parameter(a[k], b[k], exact) for k in a)
    if isinstance(a, np.ndarray):
        return as_bytes(a) == as_bytes(b)
    return bool(a == b)
