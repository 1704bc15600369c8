"""Products and sums over a batch of sequences, written so that XLA's CPU backend computes them fast.

A gradient over records with rows of their own, such as the characters of texts, has products of [B, T, i] and sums over
B and T. XLA's CPU backend first copies their operands into another order, and adds in small windows. Here they are
products of matrices [B T, i] and sums over one axis: the same numbers, but for the order in which they are added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from fedpriv.core.interpreted import inlined
from fedpriv.core.jaxprs import bind, equations, evaluate, programs

_LOOPS = {"scan", "while", "cond", "checkpoint", "remat2"}
_CALLS = {"jit", "pjit"}


def over_one_axis(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, a function of trees of arrays; on CPU, its products and sums of sequences over one axis."""

    def faster(*args: Any) -> Any:
        if jax.default_backend() != "cpu":
            return fn(*args)
        program, shape = jax.make_jaxpr(fn, return_shape=True)(*args)
        rule = _rewritten if _of_sequences(program) else _unchanged
        out = evaluate(program, jax.tree.leaves(args), rule)
        return jax.tree.unflatten(jax.tree.structure(shape), out)

    return faster


def _of_sequences(program: ClosedJaxpr) -> bool:
    """Whether there is a product that `_rewritten` changes."""
    return any(_matrices(eqn) for eqn, _ in equations(program.jaxpr))


def _unchanged(eqn: JaxprEqn, values: list[Any]) -> Any:
    return NotImplemented


def _rewritten(eqn: JaxprEqn, values: list[Any]) -> Any:
    """An equation over one axis, also in a loop or a call."""
    name = eqn.primitive.name
    if name in _CALLS and any(map(_changes, programs(eqn))):
        return inlined(eqn, values, _rewritten)
    if name in _LOOPS and any(map(_changes, programs(eqn))):
        return bind(eqn.replace(params={k: _inside(v) for k, v in eqn.params.items()}), values)
    for form in (_matrices, _sum):
        if (fast := form(eqn)) is not None:
            return [fast(*values)]
    return NotImplemented


def _changes(program: ClosedJaxpr) -> bool:
    forms = (_matrices, _sum)
    return any(form(eqn) for eqn, _ in equations(program.jaxpr) for form in forms)


def _inside(value: Any) -> Any:
    """What a loop runs, rewritten; whatever else a parameter may be, as it is."""
    if isinstance(value, tuple):
        return tuple(map(_inside, value)) if type(value) is tuple else value
    if not isinstance(value, ClosedJaxpr | Jaxpr):
        return value
    closed = value if isinstance(value, ClosedJaxpr) else ClosedJaxpr(value, ())
    made = jax.make_jaxpr(lambda *args: evaluate(closed, args, _rewritten))(*closed.in_avals)
    if isinstance(value, ClosedJaxpr):
        return made
    return value if made.consts else made.jaxpr


def _matrices(eqn: JaxprEqn) -> Callable[..., jax.Array] | None:
    """A product over no batch axis, of arrays whose axes are neighbours, as one of matrices."""
    if eqn.primitive is not lax.dot_general_p or eqn.params.get("out_sharding") is not None:
        return None
    contracted, batch = eqn.params["dimension_numbers"]
    shapes = [_shape(v) for v in eqn.invars]
    if any(map(len, batch)) or max(map(len, shapes)) < 3:
        return None
    axes = [_end(shape, over) for shape, over in zip(shapes, contracted, strict=True)]
    if None in axes:
        return None
    free = [
        math.prod(n for axis, n in enumerate(shape) if axis not in over)
        for shape, over in zip(shapes, contracted, strict=True)
    ]

    def product(*operands: jax.Array) -> jax.Array:
        size = math.prod(shapes[0][axis] for axis in contracted[0])
        flat = [
            x.reshape((size, n) if axis == 0 else (n, size))
            for x, axis, n in zip(operands, axes, free, strict=True)
        ]
        numbers = (((axes[0],), (axes[1],)), ((), ()))
        (out,) = bind(eqn.replace(params={**eqn.params, "dimension_numbers": numbers}), flat)
        return out.reshape(_shape(eqn.outvars[0]))

    return product


def _end(shape: Sequence[int], contracted: Sequence[int]) -> int | None:
    """0 or 1: whether the contracted axes, in their order, are the first or the last; None if neither."""
    count = len(contracted)
    if not 0 < count < len(shape):
        return None
    if tuple(contracted) == tuple(range(count)):
        return 0
    return 1 if tuple(contracted) == tuple(range(len(shape) - count, len(shape))) else None


def _sum(eqn: JaxprEqn) -> Callable[..., jax.Array] | None:
    """A sum over several axes, which are the first, as one over one."""
    if eqn.primitive is not lax.reduce_sum_p or eqn.params.get("out_sharding") is not None:
        return None
    shape, axes = _shape(eqn.invars[0]), eqn.params["axes"]
    if not 1 < len(axes) < len(shape) or sorted(axes) != list(range(len(axes))):
        return None

    def total(x: jax.Array) -> jax.Array:
        # Without the barrier XLA would sum over the axes that were there before.
        flat = lax.optimization_barrier(
            x.reshape(math.prod(shape[: len(axes)]), *shape[len(axes) :])
        )
        return bind(eqn.replace(params={**eqn.params, "axes": (0,)}), [flat])[0]

    return total


def _shape(variable: Any) -> tuple[int, ...]:
    return variable.aval.shape
