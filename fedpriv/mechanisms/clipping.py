"""The sets into which contributions are clipped, and how far those sets reach.

Flat and per-layer clipping: H. B. McMahan, D. Ramage, K. Talwar, L. Zhang, ICLR 2018, arXiv:1710.06963, Section 2.
Clipping of Haar coefficients: K. Ranaweera et al., "Federated Learning with Differential Privacy: An Utility-Enhanced
Approach", Algorithm 1 (all together) and Section 4.3 (each level).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpriv.core.arguments import Count, Norm, Positive, checked
from fedpriv.core.checked_tuples import checking_fields
from fedpriv.core.provenance import sealed
from fedpriv.core.trees import dimension, flatten, real, unflatten
from fedpriv.core.types import PyTree
from fedpriv.mechanisms.haar import haar, haar_norm, inverse_haar, padded_length
from fedpriv.proof.bound import Bound, Clip, factor, scaled


@checking_fields
class Clipping(NamedTuple):
    """A set of contributions u, scaled by C, and the function that clips into it.

    With a finite C, a contribution whose norm is NaN or infinite becomes 0. Norms are infinite from 1.8e19 on, as
    float32 cannot hold their square. Sets of Haar coefficients are sets of vectors padded to m = 2^L entries.

    Attributes:
      clip: (contribution, C) -> (bounded contribution, of 32 bits or more, its norm before).
      length: sup ||u||_2 for C = 1.
      weighted_length: sup ||W H u||_2 for C = 1, of the Haar coefficients times the paper's weights, where it is less
        than sqrt(m) times `length`, which always bounds it.
      worst: d -> a contribution of d coordinates on the border for C = 1 that is hardest to hide, by isotropic noise
        and by noise on Haar coefficients (there only nearly, unless d is a power of two).
      dimension: the number of coordinates d, if the set requires a fixed one.
      tensors: the number of tensors in a contribution, if each is clipped separately.
      scales: (norms of the tensors, C) -> the factor of each tensor (trees of f32[...]); None if clipping does more
        than scale.
      norms: u -> those norms, unless they are the tensors' l2 norms.
      seal: see `fedpriv.core.provenance`; leave it out of a clipping of your own.
    """

    clip: Callable[[PyTree, Bound], tuple[PyTree, jax.Array]]
    length: Positive
    worst: Callable[[int], PyTree]
    weighted_length: Norm = math.inf
    dimension: Count | None = None
    tensors: Count = 1
    scales: Callable[[PyTree, Bound], PyTree] | None = None
    norms: Callable[[PyTree], PyTree] | None = None
    seal: tuple = ()


def flat() -> Clipping:
    """||u||_2 <= C, over all coordinates together (McMahan et al. 2018, Section 2).

    sup ||W H u|| is sqrt(m), reached by a constant vector.
    """

    def scales(norms: PyTree, bound: Bound) -> PyTree:
        return Clip(2, bound).factors(norms)

    def clip(update: PyTree, bound: Bound) -> tuple[PyTree, jax.Array]:
        return Clip(2, bound)(update)

    return sealed(Clipping(clip, 1.0, lambda d: _constant(1.0, d), scales=scales))


def per_layer(tensors: Count) -> Clipping:
    """||u_j||_2 <= C / sqrt(p) in each of the model's p tensors (McMahan et al. 2018, Section 2).

    A subset of `flat`'s set.

    Args:
      tensors: p.

    Raises:
      ValueError: p below 1; when used, a contribution with another number of tensors.
    """
    tensors = checked("tensors", tensors, Count)
    each = separately(tensors)

    def scales(norms: PyTree, bound: Bound) -> PyTree:
        return each.scales(norms, bound / math.sqrt(tensors))  # type: ignore[misc]

    def worst(d: int) -> PyTree:
        return [_constant(tensors**-0.5, size) for size in _sizes(d, tensors)]

    return sealed(Clipping(_by_tensors(scales), 1.0, worst, tensors=tensors, scales=scales))


def separately(tensors: Count) -> Clipping:
    """||u_j||_2 <= C in each of the model's p tensors, or C_j where C is a tree of bounds; length sqrt(p).

    The authors' code of DP-SCAFFOLD (arXiv:2111.09278) clips this way.

    Args:
      tensors: p.

    Raises:
      ValueError: as `per_layer`.
    """
    tensors = checked("tensors", tensors, Count)

    def scales(norms: PyTree, bound: Bound) -> PyTree:
        leaves = len(jax.tree.leaves(norms))
        if leaves != tensors:
            raise ValueError(f"tensors: {tensors}, but the model has {leaves}; give {leaves}")
        length = over_tensors(norms)
        return jax.tree.map(lambda n, c: factor(n, c, length), norms, spread(bound, norms))

    def worst(d: int) -> PyTree:
        return [_constant(1.0, size) for size in _sizes(d, tensors)]

    return sealed(
        Clipping(_by_tensors(scales), math.sqrt(tensors), worst, tensors=tensors, scales=scales)
    )


def coefficients(d: Count) -> Clipping:
    """||H u||_2 <= C, over all Haar coefficients in averaging form (Algorithm 1).

    sup ||u|| is sqrt(m) and sup ||W H u|| is m, both for a constant vector, which has a single coefficient.

    Args:
      d: number of coordinates.

    Raises:
      ValueError: d below 1; when used, another number of coordinates.
    """
    d = checked("d", d, Count)
    m = padded_length(d)

    def norms(update: PyTree) -> PyTree:
        _require_dimension(d, update)
        return spread(haar_norm(flatten(real(update))), update)

    def scales(norms: PyTree, bound: Bound) -> PyTree:
        return jax.tree.map(lambda n: factor(n, bound, n), norms)  # they are equal

    def clip(update: PyTree, bound: Bound) -> tuple[PyTree, jax.Array]:
        lengths = norms(update)
        return scaled(real(update), scales(lengths, bound)), jax.tree.leaves(lengths)[0]

    worst = jnp.ones(d) / haar_norm(jnp.ones(d))
    return sealed(
        Clipping(clip, math.sqrt(m), lambda d: worst, dimension=d, scales=scales, norms=norms)
    )


def per_level(d: Count) -> Clipping:
    """||H_l u||_2 <= C / W_l for the coefficients of each level l, and for the overall mean (Section 4.3).

    sup ||u|| is 1, as ||u||^2 = sum_l 2^l ||H_l u||^2 + m H_0^2 <= C^2 (sum_l 2^-l + 1 / m) = C^2; sup ||W H u|| is
    sqrt(1 + log2 m), as each of the 1 + log2 m groups moves W H u by at most C. `clip` reports ||u||_2.

    Args:
      d: number of coordinates.

    Raises:
      ValueError: as `coefficients`.
    """
    d = checked("d", d, Count)
    m = padded_length(d)
    starts = [
        1 << level for level in range(m.bit_length() - 1)
    ]  # of the levels, from coarse to fine
    limits = [1 / m, *(start / m for start in starts)]  # 1 / W

    def clip(update: PyTree, bound: Bound) -> tuple[PyTree, jax.Array]:
        _require_dimension(d, update)
        update = real(update)
        groups = jnp.split(haar(flatten(update)), starts)
        # W is a power of two: times W nothing is rounded, and no level's squares are 0 because its bound is low.
        norms = [jnp.linalg.norm(g / limit) for g, limit in zip(groups, limits, strict=True)]
        norm = jnp.sqrt(sum(n**2 * limit for n, limit in zip(norms, limits, strict=True)))
        scales = [factor(n, bound, norm) for n in norms]
        u = inverse_haar(jnp.concatenate(scaled(groups, scales)), dimension(update))
        return unflatten(u, update), norm

    def worst(d: int) -> PyTree:
        # One coefficient of each level, all at their bounds.
        return inverse_haar(jnp.zeros(m).at[jnp.array([0, *starts])].set(jnp.array(limits)), d)

    return sealed(Clipping(clip, 1.0, worst, math.sqrt(m.bit_length()), d))


def _constant(norm: float, d: int) -> jax.Array:
    return jnp.full(d, norm / math.sqrt(d))


def _sizes(d: int, tensors: int) -> list[int]:
    """Of that many tensors, of d coordinates together."""
    if d < tensors:
        raise ValueError(f"d: {d} coordinates do not fill {tensors} tensors")
    return [d // tensors + (i < d % tensors) for i in range(tensors)]


def over_tensors(norms: PyTree) -> jax.Array:
    """f32[...]: the norm of the whole, from the norms of its tensors (a tree of f32[...])."""
    return jnp.sqrt(sum(n**2 for n in jax.tree.leaves(norms)))


def spread(bound: PyTree, like: PyTree) -> PyTree:
    """One bound for each leaf of `like`, from a single bound or a tree of bounds."""
    leaf = jax.tree_util.treedef_is_leaf(jax.tree.structure(bound))
    return jax.tree.map(lambda _: bound, like) if leaf else bound


def _by_tensors(
    scales: Callable[[PyTree, Bound], PyTree],
) -> Callable[[PyTree, Bound], tuple[PyTree, jax.Array]]:
    def clip(update: PyTree, bound: Bound) -> tuple[PyTree, jax.Array]:
        update = real(update)
        norms = jax.tree.map(lambda leaf: jnp.linalg.norm(leaf.reshape(-1)), update)
        return scaled(update, scales(norms, bound)), over_tensors(norms)

    return clip


def _require_dimension(d: int, update: PyTree) -> None:
    coordinates = dimension(update)
    if coordinates != d:
        raise ValueError(f"d: {d}, but a contribution has {coordinates} coordinates; give that")
