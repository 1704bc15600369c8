"""Products, sums and embeddings of a batch of sequences, written so that XLA's CPU backend computes them fast.

A gradient over records with rows of their own, such as the characters of texts, has products of [B, T, i] and sums over
B and T. XLA's CPU backend first copies their operands into another order, and adds the rows of an embedding one by one.
Here they are products of matrices [B T, i], sums over one axis, and products with one-hot rows: the same numbers, but
for the order in which they are added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn
from jax.lax import GatherScatterMode

from fedpriv.core.jaxprs import bind, equations, evaluate, inlined, programs

_SMALL_TABLE = 2**17
"""Numbers of an embedding, up to which products with one-hot rows are faster than adding rows one by one."""

_LEFT_OUT = (GatherScatterMode.FILL_OR_DROP, GatherScatterMode.PROMISE_IN_BOUNDS)
_LOOPS = {"scan", "while", "cond", "checkpoint", "remat2"}
_CALLS = {"jit", "pjit"}


def over_one_axis(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, a function of trees of arrays; on CPU its program is `rewritten`, if it is one of sequences."""

    def faster(*args: Any) -> Any:
        if jax.default_backend() != "cpu":
            return fn(*args)
        program, shape = jax.make_jaxpr(fn, return_shape=True)(*args)
        rule = rewritten if of_sequences(program) else _unchanged
        out = evaluate(program, jax.tree.leaves(args), rule)
        return jax.tree.unflatten(jax.tree.structure(shape), out)

    return faster


def of_sequences(program: ClosedJaxpr) -> bool:
    """Whether there is a product or an embedding that `rewritten` changes."""
    return any(_matrices(eqn) or _one_hot(eqn) for eqn, _ in equations(program.jaxpr))


def _unchanged(eqn: JaxprEqn, values: list[Any]) -> Any:
    return NotImplemented


def rewritten(eqn: JaxprEqn, values: list[Any]) -> Any:
    """A rule for `evaluate`: an equation over one axis, also in a loop or a call."""
    name = eqn.primitive.name
    if name in _CALLS and any(map(_changes, programs(eqn))):
        return inlined(eqn, values, rewritten)
    if name in _LOOPS and any(map(_changes, programs(eqn))):
        return bind(eqn.replace(params={k: _inside(v) for k, v in eqn.params.items()}), values)
    for form in (_matrices, _one_hot, _sum):
        if (fast := form(eqn)) is not None:
            return [fast(*values)]
    return NotImplemented


def _changes(program: ClosedJaxpr) -> bool:
    forms = (_matrices, _one_hot, _sum)
    return any(form(eqn) for eqn, _ in equations(program.jaxpr) for form in forms)


def _inside(value: Any) -> Any:
    """What a loop runs, rewritten; whatever else a parameter may be, as it is."""
    if isinstance(value, tuple):
        return tuple(map(_inside, value)) if type(value) is tuple else value
    if not isinstance(value, ClosedJaxpr | Jaxpr):
        return value
    closed = value if isinstance(value, ClosedJaxpr) else ClosedJaxpr(value, ())
    made = jax.make_jaxpr(lambda *args: evaluate(closed, args, rewritten))(*closed.in_avals)
    return made if isinstance(value, ClosedJaxpr) else value if made.consts else made.jaxpr


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


def _one_hot(eqn: JaxprEqn) -> Callable[..., jax.Array] | None:
    """Rows that are added to those of a small table, whose numbers are given, as a product with one-hot rows."""
    if eqn.primitive is not lax.scatter_add_p or not _adds_rows(eqn):
        return None
    table = _shape(eqn.invars[0])
    batch, (length, _) = table[:-2], table[-2:]
    first = tuple(range(len(batch)))

    def added(table: jax.Array, indices: jax.Array, rows: jax.Array) -> jax.Array:
        places = indices.reshape(*batch, -1)
        chosen = jax.nn.one_hot(places, length, dtype=rows.dtype)
        inside = (places >= 0) & (places < length)  # 0 times NaN would be NaN
        rows = jnp.where(inside[..., None], rows.reshape(*places.shape, rows.shape[-1]), 0)
        contracted = (len(batch),), (len(batch),)
        exact = lax.Precision.HIGHEST
        return table + lax.dot_general(chosen, rows, (contracted, (first, first)), precision=exact)

    return added


def _adds_rows(eqn: JaxprEqn) -> bool:
    """Whether whole rows are added to those of small tables, [.., length, row], and those outside left out."""
    table, rows = _shape(eqn.invars[0]), _shape(eqn.invars[2])
    numbers = eqn.params["dimension_numbers"]
    batch = tuple(range(len(table) - 2))
    places = (len(batch),)
    return (
        len(table) >= 2
        and math.prod(table[-2:]) <= _SMALL_TABLE
        and jnp.issubdtype(_aval(eqn.invars[0]).dtype, jnp.floating)
        and eqn.params["mode"] in _LEFT_OUT
        and tuple(numbers.operand_batching_dims) == batch
        and tuple(numbers.scatter_indices_batching_dims) == batch
        and tuple(numbers.scatter_dims_to_operand_dims) == places
        and tuple(numbers.inserted_window_dims) == places
        and tuple(numbers.update_window_dims) == (len(rows) - 1,)
        and rows[-1:] == table[-1:]
    )


def _aval(variable: Any) -> Any:
    return variable.aval


def _shape(variable: Any) -> tuple[int, ...]:
    return variable.aval.shape
