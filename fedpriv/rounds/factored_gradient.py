"""The gradient of a model one of whose matrices is a low-rank sum, its own gradient left as two factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn

from fedpriv.core.interpreted import NotInterpretedError, inlined, producers
from fedpriv.core.jaxprs import evaluate
from fedpriv.core.types import PyTree
from fedpriv.models.dense import product


class LowRank(NamedTuple):
    """Where a factored gradient is taken: the matrix share * start + left^T diag(weights) right, or its transpose.

    Attributes:
      start: f32[i, o].
      share: f32[].
      left: f32[R, i].
      weights: f32[R].
      right: f32[R, o].
      flipped: whether it is the transpose.
    """

    start: jax.Array
    share: jax.Array
    left: jax.Array
    weights: jax.Array
    right: jax.Array
    flipped: bool = False

    def formed(self, precision: Any) -> jax.Array:
        """The matrix itself, f32[i, o]."""
        right = self.weights[:, None] * self.right
        return self.share * self.start + jnp.matmul(self.left.T, right, precision=precision)


class Outer(NamedTuple):
    """A factored gradient: the matrix `left`^T `right`, of f32[N, i] and f32[N, o]."""

    left: jax.Array
    right: jax.Array


class FactoredGradient:
    """A gradient function that takes one matrix as a `LowRank`, and gives an `Outer` for it.

    Args:
      program: (params, batch) -> gradient.
      matrix: its number among the parameters' leaves.

    Raises:
      NotInterpretedError: its gradient is not a product of two matrices; when called, it is used in other ways than in
        products.
    """

    def __init__(self, program: ClosedJaxpr, matrix: int):
        self._program, self._matrix = program, matrix
        made_by = producers(program.jaxpr)
        variable = program.jaxpr.outvars[matrix]
        while (eqn := made_by(variable)) and eqn.primitive is lax.transpose_p:
            variable = eqn.invars[0]
        if eqn is None or not _of_matrices(eqn):
            raise NotInterpretedError("the gradient is no product of two matrices")
        self._origin, self.precision = eqn, eqn.params["precision"]

    def __call__(self, leaves: Sequence[Any], batch: PyTree) -> list[Any]:
        """The gradient's leaves for the parameters' `leaves`."""
        out = evaluate(self._program, [*leaves, *jax.tree.leaves(batch)], self._rule)
        if [i for i, value in enumerate(out) if isinstance(value, Outer)] != [self._matrix]:
            raise NotInterpretedError("the gradient is of another tensor, too")
        return out

    def _rule(self, eqn: JaxprEqn, values: list[Any]) -> Any:
        kinds = {type(v) for v in values}
        if eqn is self._origin and LowRank not in kinds:
            contracted, _ = eqn.params["dimension_numbers"]
            return [Outer(*map(_rows, values, contracted))]
        if not kinds & {LowRank, Outer}:
            return NotImplemented
        if eqn.primitive is lax.transpose_p:
            x = values[0]
            return [Outer(*x[::-1]) if Outer in kinds else x._replace(flipped=not x.flipped)]
        if Outer not in kinds and eqn.primitive in (product, lax.dot_general_p):
            return [_product(eqn, *values)]
        return inlined(eqn, values, self._rule)


def _of_matrices(eqn: Any) -> bool:
    """Whether it is a product of two arrays with one axis each that is not summed over."""
    if eqn.primitive is not lax.dot_general_p:
        return False
    contracted, batch = eqn.params["dimension_numbers"]
    free = [v.aval.ndim - len(d) for v, d in zip(eqn.invars, contracted, strict=True)]
    single = all(v.aval.dtype == jnp.float32 for v in eqn.invars)
    return single and free == [1, 1] and not any(batch)


def _rows(x: jax.Array, contracted: Sequence[int]) -> jax.Array:
    """[.., the contracted axes, ..] -> [rows, the other axis]."""
    (rest,) = (axis for axis in range(x.ndim) if axis not in contracted)
    rows = math.prod(x.shape[axis] for axis in contracted)
    return x.transpose(*contracted, rest).reshape(rows, -1)


def _product(eqn: JaxprEqn, lhs: Any, rhs: Any) -> jax.Array:
    """A product with one `LowRank` operand."""
    options = {k: eqn.params.get(k) for k in ("precision", "preferred_element_type")}
    (of_lhs, of_rhs), batch = eqn.params.get("dimension_numbers", (((1,), (0,)), ((), ())))
    if any(batch) or len(of_lhs) != 1 or type(lhs) is type(rhs):
        raise NotInterpretedError("a product over several axes, or with itself")

    def over(x: jax.Array, of_x: int, y: jax.Array, of_y: int) -> jax.Array:
        return lax.dot_general(x, y, (((of_x,), (of_y,)), ((), ())), **options)

    x, (of_x,), w, (of_w,) = (
        (lhs, of_lhs, rhs, of_rhs) if isinstance(rhs, LowRank) else (rhs, of_rhs, lhs, of_lhs)
    )
    along = 1 - of_w if w.flipped else of_w
    near, far = (w.left, w.right) if along == 0 else (w.right, w.left)
    fast = eqn.primitive is product and w is rhs and along == 0
    base = product.bind(x, w.start) if fast else over(x, of_x, w.start, along)
    thin = over(x, of_x, near, 1)
    thin *= w.weights.reshape((1,) * (thin.ndim - 1) + (-1,))
    out = w.share * base + over(thin, thin.ndim - 1, far, 0)
    return out if w is rhs else jnp.moveaxis(out, -1, 0)
