"""Finds the gradients of a batch's records that are products, and leaves them as factors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn

from fedpriv.core.jaxprs import evaluate, producers
from fedpriv.core.types import Example, LossFn, Params
from fedpriv.mechanisms.outer_products import Stacked

_LARGE = 2**18
"""Entries, from which on a sequence's gradient costs more to form than its rows' products with each other."""


def stacked_gradients(loss: LossFn, params: Params, batch: Example) -> list[Any]:
    """Gradients, for each leaf f32[B, ...], or `Stacked` products where that has fewer numbers and costs less."""
    gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0))
    program = jax.make_jaxpr(gradients)(params, batch)
    made_by = producers(program.jaxpr)
    origins = {id(_origin(v, made_by)) for v in program.jaxpr.outvars}

    def rule(eqn: JaxprEqn, values: list[Any]) -> Any:
        if id(eqn) in origins and _pays(eqn):
            return [_stacked(eqn, *values)]
        first = values[0] if values else None
        if isinstance(first, Stacked) and _keeps_records(eqn):
            return [_rearranged(first, eqn)]
        values[:] = [v.formed() if isinstance(v, Stacked) else v for v in values]
        return NotImplemented

    return evaluate(program, [*jax.tree.leaves(params), *jax.tree.leaves(batch)], rule)


def _origin(variable: Any, made_by: Callable[[Any], JaxprEqn | None]) -> JaxprEqn | None:
    """The products that a tensor's gradients are, but for the order of their entries."""
    while (eqn := made_by(variable)) and _keeps_records(eqn):
        variable = eqn.invars[0]
    if eqn is None or eqn.primitive is not lax.dot_general_p:
        return None
    contracted, batch = eqn.params["dimension_numbers"]
    used = zip(eqn.invars, contracted, batch, strict=True)
    free = [len(_shape(v)) - len(c) - len(b) for v, c, b in used]
    return eqn if len(batch[0]) == 1 and min(free) >= 1 else None


def _shape(variable: Any) -> tuple[int, ...]:
    return variable.aval.shape


def _keeps_records(eqn: JaxprEqn) -> bool:
    """Whether `eqn` puts the entries of each record in another order, if that, and nothing else."""
    if eqn.primitive is lax.transpose_p:
        return bool(eqn.params["permutation"][0] == 0)
    if eqn.primitive.name == "optimization_barrier":
        return len(eqn.invars) == 1
    same = _shape(eqn.outvars[0])[:1] == _shape(eqn.invars[0])[:1] if eqn.invars else False
    return eqn.primitive is lax.reshape_p and same and eqn.params["dimensions"] is None


def _rearranged(gradients: Stacked, eqn: JaxprEqn) -> Stacked:
    before = gradients.shaped

    def shaped(x: jax.Array) -> jax.Array:
        if eqn.primitive is lax.transpose_p:
            return before(x).transpose(eqn.params["permutation"])
        if eqn.primitive is lax.reshape_p:
            return before(x).reshape(-1, *eqn.params["new_sizes"][1:])
        return before(x)

    return gradients._replace(shaped=shaped)


def _pays(eqn: JaxprEqn) -> bool:
    """T (i + o) < i o; for T > 1 of a large tensor alone."""
    (contracted, _), _ = eqn.params["dimension_numbers"]
    left, right = map(_shape, eqn.invars)
    rows = math.prod(left[axis] for axis in contracted)
    i, o = (math.prod(shape[1:]) // rows for shape in (left, right))
    return rows * (i + o) < i * o and (rows == 1 or i * o >= _LARGE)


def _stacked(eqn: JaxprEqn, left: jax.Array, right: jax.Array) -> Stacked:
    contracted, batch = eqn.params["dimension_numbers"]
    factors = [_rows(x, c, b) for x, c, b in zip((left, right), contracted, batch, strict=True)]
    entries = _shape(eqn.outvars[0])[1:]
    return Stacked(factors[0], factors[1], lambda x: x.reshape(-1, *entries))


def _rows(x: jax.Array, contracted: Sequence[int], batch: Sequence[int]) -> jax.Array:
    """f32[B, T, all other axes]."""
    rest = [axis for axis in range(x.ndim) if axis not in (*contracted, *batch)]
    rows = math.prod(x.shape[axis] for axis in contracted)
    x = x.astype(jnp.float32).transpose(*batch, *contracted, *rest)
    return x.reshape(x.shape[0], rows, -1)
