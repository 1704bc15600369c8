"""The gradient of a model some of whose matrices are low-rank sums, its gradients for these left as factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn

from fedpriv.core.jaxprs import NotInterpretedError, evaluate, inlined
from fedpriv.core.types import PyTree
from fedpriv.models.dense import product


class LowRank(NamedTuple):
    """The matrix share * start + left^T diag(weights) right, or its transpose.

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
        """The matrix itself, f32[i, o] or, flipped, f32[o, i]."""
        right = self.weights[:, None] * self.right
        matrix = self.share * self.start + jnp.matmul(self.left.T, right, precision=precision)
        return matrix.T if self.flipped else matrix


class Outer(NamedTuple):
    """The matrix left^T right, or its transpose.

    Attributes:
      left: f32[N, i].
      right: f32[N, o].
      flipped: whether it is the transpose.
    """

    left: jax.Array
    right: jax.Array
    flipped: bool = False


class FactoredGradient:
    """A gradient function that takes `LowRank` matrices, and gives `Outer` ones for them.

    Args:
      program: (params, batch) -> gradient.
      matrices: numbers of the parameters' leaves that will be `LowRank`.

    Attributes:
      precision: of the product that the gradient of each of them is.

    Raises:
      NotInterpretedError: one of them is used in other ways than in products, or its gradient is not a product of two
        matrices.
    """

    def __init__(self, program: ClosedJaxpr, matrices: Sequence[int]):
        self.matrices = tuple(matrices)
        self._program = program
        self._made = {eqn.outvars[0]: eqn for eqn in program.jaxpr.eqns if eqn.outvars}
        origins = {i: self._origin(i) for i in matrices}
        self._products = {id(eqn) for eqn in origins.values()}
        self.precision = {i: eqn.params["precision"] for i, eqn in origins.items()}

    def __call__(self, leaves: Sequence[Any], batch: PyTree) -> list[Any]:
        """The gradient's leaves for the parameters' `leaves`."""
        out = evaluate(self._program, [*leaves, *jax.tree.leaves(batch)], self._rule)
        for i, value in enumerate(out):
            if isinstance(value, Outer) != (i in self.matrices):
                raise NotInterpretedError("a gradient is no product of two matrices")
            if isinstance(value, Outer) and value.flipped:
                out[i] = Outer(value.right, value.left)
        return out

    def _origin(self, matrix: int) -> JaxprEqn:
        """The product that a gradient is, but for transposition."""
        variable = self._program.jaxpr.outvars[matrix]
        while (eqn := self._made.get(variable)) and eqn.primitive.name == "transpose":
            variable = eqn.invars[0]
        if eqn is None or eqn.primitive is not lax.dot_general_p:
            raise NotInterpretedError("a gradient is no product")
        contracted, batch = eqn.params["dimension_numbers"]
        free = [v.aval.ndim - len(d) for v, d in zip(eqn.invars, contracted, strict=True)]
        single = all(v.aval.dtype == jnp.float32 for v in eqn.invars)
        if any(batch) or free != [1, 1] or not single:
            raise NotInterpretedError("a gradient is no product of two matrices")
        return eqn

    def _rule(self, eqn: JaxprEqn, values: list[Any]) -> Any:
        kinds = {type(v) for v in values}
        if id(eqn) in self._products and LowRank not in kinds:
            contracted, _ = eqn.params["dimension_numbers"]
            return [Outer(_rows(values[0], contracted[0]), _rows(values[1], contracted[1]))]
        if not kinds & {LowRank, Outer}:
            return NotImplemented
        if eqn.primitive is lax.transpose_p and tuple(eqn.params["permutation"]) == (1, 0):
            return [values[0]._replace(flipped=not values[0].flipped)]
        if Outer not in kinds and eqn.primitive in (product, lax.dot_general_p):
            return [_product(eqn, *values)]
        return inlined(eqn, values, self._rule)


def _rows(x: jax.Array, contracted: Sequence[int]) -> jax.Array:
    """[.., the contracted axes, ..] -> [rows, the other axis]."""
    (rest,) = (axis for axis in range(x.ndim) if axis not in contracted)
    rows = math.prod(x.shape[axis] for axis in contracted)
    return x.transpose(*contracted, rest).reshape(rows, -1)


def _product(eqn: JaxprEqn, lhs: Any, rhs: Any) -> jax.Array:
    """A product with one `LowRank` operand."""
    if isinstance(lhs, LowRank) and isinstance(rhs, LowRank):
        raise NotInterpretedError("a product of two parameters")
    if eqn.primitive is product:
        dimensions, given = ((1,), (0,)), {}
    else:
        dimensions, batch = eqn.params["dimension_numbers"]
        given = {k: eqn.params[k] for k in ("precision", "preferred_element_type")}
        if any(batch) or len(dimensions[0]) != 1:
            raise NotInterpretedError("a product over several axes")
    (of_lhs,), (of_rhs,) = dimensions
    if isinstance(rhs, LowRank):
        return _contracted(eqn, lhs, of_lhs, rhs, of_rhs, given)
    return jnp.moveaxis(_contracted(eqn, rhs, of_rhs, lhs, of_lhs, given), -1, 0)


def _contracted(
    eqn: JaxprEqn, x: jax.Array, of_x: int, w: LowRank, of_w: int, given: dict[str, Any]
) -> jax.Array:
    """The sum over axis of_x of x and axis of_w of w: [the rest of x, the rest of w]."""
    along = 1 - of_w if w.flipped else of_w
    near, far = (w.left, w.right) if along == 0 else (w.right, w.left)
    if eqn.primitive is product and (of_x, along) == (1, 0):
        base = product.bind(x, w.start)
    else:
        base = _over(x, of_x, w.start, along, given)
    thin = _over(x, of_x, near, 1, given) * w.weights
    return w.share * base + _over(thin, thin.ndim - 1, far, 0, given)


def _over(x: jax.Array, of_x: int, y: jax.Array, of_y: int, given: dict[str, Any]) -> jax.Array:
    return lax.dot_general(x, y, (((of_x,), (of_y,)), ((), ())), **given)
