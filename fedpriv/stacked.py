"""The gradients of a batch's records, those of large matrices left as factors: none of them is ever formed.

A record's gradient of a dense layer is a product L^T R of its T rows (one, without a sequence), the layer's inputs and
the errors of its outputs: T (i + o) numbers in place of i o. Its norm follows from the rows' products with each other
(I. Goodfellow, arXiv:1510.01799, for T = 1; X. Li et al., arXiv:2110.05679, for sequences), and a weighted sum over the
records is one product of matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn

from fedpriv.interpret import evaluate
from fedpriv.types import Example, LossFn, Params

EXACT = lax.Precision.HIGHEST
"""Of products that a bound on a record rests on: elsewhere than on CPU the default rounds to ten bits or fewer."""

# Relative: sums of products have errors of a few float32 roundings.
ROUNDING = 4e-6


class Stacked(NamedTuple):
    """A tensor's gradients g_b = shaped(left_b^T right_b).

    Attributes:
      left: f32[B, T, i].
      right: f32[B, T, o].
      shaped: f32[n, i, o] -> f32[n, ...], the same entries in another order.
    """

    left: jax.Array
    right: jax.Array
    shaped: Callable[[jax.Array], jax.Array]

    def formed(self) -> jax.Array:
        """f32[B, ...]."""
        return self.shaped(jnp.einsum("bti,bto->bio", self.left, self.right, precision=EXACT))

    def norms(self) -> jax.Array:
        """f32[B]; of sequences, where the sum may cancel, never too small."""
        one = jnp.linalg.norm(self.left, axis=2) * jnp.linalg.norm(self.right, axis=2)
        if self.left.shape[1] == 1:
            return one[:, 0]
        grams = [jnp.einsum("bti,bsi->bts", x, x, precision=EXACT) for x in self[:2]]
        squared = jnp.sum(grams[0] * grams[1], (1, 2)) + ROUNDING * jnp.sum(one, 1) ** 2
        return jnp.sqrt(jnp.maximum(squared, 0.0))

    def weighted(self, weights: jax.Array) -> jax.Array:
        """sum_b weights_b g_b; a gradient of weight 0 does not count, even if it is not finite."""
        left, right = counted(self.left, weights), counted(self.right, weights)
        right = weights[:, None, None] * right
        total = jnp.einsum("bti,bto->io", left, right, precision=EXACT)
        return self.shaped(total[None])[0]


def counted(values: jax.Array, weights: jax.Array) -> jax.Array:
    """values [B, ...] with zeros where the weight is 0: 0 times NaN would be NaN."""
    return jnp.where(weights.reshape(-1, *[1] * (values.ndim - 1)) != 0, values, 0.0)


def stacked_gradients(loss: LossFn, params: Params, batch: Example) -> list[Any]:
    """For each leaf of the parameters f32[B, ...], or `Stacked` where that has fewer numbers."""
    gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0))
    program = jax.make_jaxpr(gradients)(params, batch)
    made = {eqn.outvars[0]: eqn for eqn in program.jaxpr.eqns if eqn.outvars}
    origins = {id(_origin(v, made)) for v in program.jaxpr.outvars}

    def rule(eqn: JaxprEqn, values: list[Any]) -> Any:
        if id(eqn) in origins and _fewer(eqn):
            return [_stacked(eqn, *values)]
        first = values[0] if values else None
        if isinstance(first, Stacked) and _keeps_records(eqn):
            return [_rearranged(first, eqn)]
        values[:] = [v.formed() if isinstance(v, Stacked) else v for v in values]
        return NotImplemented

    return evaluate(program, [*jax.tree.leaves(params), *jax.tree.leaves(batch)], rule)


def _origin(variable: Any, made: dict[Any, JaxprEqn]) -> JaxprEqn | None:
    """The products that a tensor's gradients are, but for the order of their entries."""
    while (eqn := made.get(variable)) and _keeps_records(eqn):
        variable = eqn.invars[0]
    if eqn is None or eqn.primitive is not lax.dot_general_p:
        return None
    contracted, batch = eqn.params["dimension_numbers"]
    used = zip(eqn.invars, contracted, batch, strict=True)
    free = [len(_shape(v)) - len(c) - len(b) for v, c, b in used]
    return eqn if len(batch[0]) == 1 and free == [1, 1] else None


def _shape(variable: Any) -> tuple[int, ...]:
    return variable.aval.shape


def _keeps_records(eqn: JaxprEqn) -> bool:
    """Whether `eqn` puts the entries of each record in another order, and nothing else."""
    if eqn.primitive is lax.transpose_p:
        return bool(eqn.params["permutation"][0] == 0)
    same = _shape(eqn.outvars[0])[:1] == _shape(eqn.invars[0])[:1] if eqn.invars else False
    return eqn.primitive is lax.reshape_p and same and eqn.params["dimensions"] is None


def _rearranged(gradients: Stacked, eqn: JaxprEqn) -> Stacked:
    before = gradients.shaped

    def shaped(x: jax.Array) -> jax.Array:
        if eqn.primitive is lax.transpose_p:
            return before(x).transpose(eqn.params["permutation"])
        return before(x).reshape(-1, *eqn.params["new_sizes"][1:])

    return gradients._replace(shaped=shaped)


def _fewer(eqn: JaxprEqn) -> bool:
    """T (i + o) < i o: then the norms cost less that way, too."""
    (contracted, _), _ = eqn.params["dimension_numbers"]
    left = _shape(eqn.invars[0])
    rows = math.prod(left[axis] for axis in contracted)
    _, i, o = _shape(eqn.outvars[0])
    return rows * (i + o) < i * o


def _stacked(eqn: JaxprEqn, left: jax.Array, right: jax.Array) -> Stacked:
    contracted, batch = eqn.params["dimension_numbers"]
    factors = [_rows(x, c, b) for x, c, b in zip((left, right), contracted, batch, strict=True)]
    return Stacked(factors[0], factors[1], lambda x: x)


def _rows(x: jax.Array, contracted: Sequence[int], batch: Sequence[int]) -> jax.Array:
    """[B, T, the other axis]."""
    (rest,) = (axis for axis in range(x.ndim) if axis not in (*contracted, *batch))
    x = x.transpose(*batch, *contracted, rest)
    return x.reshape(x.shape[0], math.prod(x.shape[1:-1]), x.shape[-1])
