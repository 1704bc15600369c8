"""Norms and weighted sums of a batch's gradients, of factors that are kept, or that are computed twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.mechanisms.factored_program import FactoredProgram
from fedpriv.mechanisms.gradients_of_leaves import Norms, OfRecords, Total


class OfLeaves(NamedTuple):
    """The gradients of a batch's records, leaf by leaf.

    Attributes:
      norms: f32[B] for each leaf.
      weighted: weights f32[B] for each leaf -> sum_j w_j g_j of each.
      each: () -> [B, ...] for each leaf.
    """

    norms: list[jax.Array]
    weighted: Callable[[Sequence[jax.Array]], list[jax.Array]]
    each: Callable[[], list[jax.Array]]


def kept(program: FactoredProgram) -> OfLeaves:
    """Of gradients and factors that are computed once."""
    found = program.gradients()

    def weighted(weights: Sequence[jax.Array]) -> list[jax.Array]:
        return [g.weighted(w) for g, w in zip(found, weights, strict=True)]

    return OfLeaves([g.norms() for g in found], weighted, lambda: [g.formed() for g in found])


def asked_twice(program: FactoredProgram) -> OfLeaves:
    """Of gradients that are computed once for the norms, and again for the sum, and kept neither time.

    The second way of X. Li et al., arXiv:2110.05679 (ghost clipping). Compiled into other instructions, the second time
    may round otherwise, in short floats visibly. So that no record moves the sum by more than its norms say, a tensor
    (of looped layers, a layer) whose gradient is longer than it was is scaled to that.
    """
    first = program.ask(lambda _, gradients, __: Norms(gradients.norms()), program.args)

    def weighted(weights: Sequence[jax.Array]) -> list[jax.Array]:
        # The barrier keeps XLA from storing what the first time computed for the second.
        args, weights = lax.optimization_barrier((program.args, list(weights)))

        def total(leaf: int, gradients: OfRecords, norms: Norms) -> Total:
            return Total(gradients.weighted(weights[leaf] * _no_longer(gradients, norms.values)))

        return [found.values for found in program.ask(total, args, first)]

    return OfLeaves([norms.together() for norms in first], weighted, program.formed)


def _no_longer(gradients: OfRecords, first: jax.Array) -> jax.Array:
    """f32[B]: 1, or what makes gradients as long as they were; 0 where they are not finite any more."""
    second = gradients.norms()
    least = jnp.where(second > first, first / second, 1.0)
    return jnp.where(jnp.isfinite(second) | ~jnp.isfinite(first), least, 0.0)
