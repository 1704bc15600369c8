"""Mechanisms: bound one contribution, perturb a sum of bounded contributions.

The Laplace and Gaussian mechanisms: C. Dwork, A. Roth, "The Algorithmic Foundations of Differential Privacy", 2014,
Section 3.3 and Appendix A.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedpriv.core.arguments import NonNegative, Norm, checked
from fedpriv.core.checked_tuples import checking_fields, refusing
from fedpriv.core.complaints import require
from fedpriv.core.provenance import constructed, sealed
from fedpriv.core.trees import real
from fedpriv.core.types import Key, PyTree
from fedpriv.mechanisms.clipping import Clipping, spread
from fedpriv.mechanisms.described import Scaling, WorstCase, know, scaling_of, worst_case_of
from fedpriv.mechanisms.noise import Noise
from fedpriv.privacy.whitening import joint_multiplier
from fedpriv.proof import bound
from fedpriv.proof.bound import Bound, Mechanism, at_least, check_scales, is_silent
from fedpriv.proof.seen import NO_NOISE

_DESCRIBED = (
    "a mechanism does not hold it; write fedpriv.mechanisms.described.described(mechanism, {})"
)
_SCALING = _DESCRIBED.format("scaling=Scaling(scales, norms)")
_WORST_CASE = _DESCRIBED.format("worst_case=WorstCase(worst, whiten)")
_WORST_CASE_FIELDS = ("worst_case", "worst", "whiten", "dimension", "tensors")

# The proof makes its mechanisms itself; whoever makes one by hand is told what a field has to be.
checking_fields(Mechanism)
refusing(
    dict.fromkeys(("scaling", "scales", "norms"), _SCALING)
    | dict.fromkeys(_WORST_CASE_FIELDS, _WORST_CASE)
)(Mechanism)


def mechanism(
    clipping: Clipping,
    noise: Noise,
    *,
    clip_norm: Norm,
    noise_multiplier: NonNegative,
    calibrated: bool = False,
) -> Mechanism:
    """A Gaussian mechanism: clips into `clipping`'s set at C, and adds C sigma times `noise` to the sum (Appendix A).

    Formal guarantees:
      In exact arithmetic a clipped contribution moves the sum, whitened by the noise, by at most
      `noise.reach(clipping)` / sigma: the sum is a Gaussian mechanism of multiplier sigma / reach per contribution
      removed or added (and half of that per contribution replaced). One whose norm is NaN or infinite counts as 0
      and so keeps the bound; a norm is infinite from 1.8e19 on, as float32 cannot hold its square. Floating-point
      rounding of the norm (relative 1e-6) is not accounted for.

    Args:
      noise: drawn from the key and the shapes of the sum alone.
      clip_norm: C; infinity only without noise.
      noise_multiplier: sigma.
      calibrated: scale the noise by the reach, which makes the multiplier sigma.

    Raises:
      ValueError: C <= 0 or beyond `LEAST_CLIP`, sigma < 0, or noise without a finite clip norm; in a round, noise that
        depends on the sum.
    """
    fits = isinstance(clipping, Clipping)
    require(fits, "clipping", clipping, "give one such as fp.clipping.flat()")
    require(isinstance(noise, Noise), "noise", noise, "give one such as fp.noise.isotropic()")
    clip_norm, noise_multiplier = _numbers(clip_norm, noise_multiplier)
    check_scales(clip_norm, noise_multiplier)
    calibrated = checked("calibrated", calibrated, bool)
    reach = noise.reach(clipping)

    scales = clipping.scales

    def at(bound: Bound, sigma: float | jax.Array) -> Mechanism:
        bound = jax.tree.map(at_least, bound)
        silent = is_silent(sigma)
        strength = sigma * reach if calibrated else sigma

        def perturb(key: Key, total: PyTree) -> PyTree:
            if silent:
                return total
            total = real(total)
            drawn, bounds = noise.drawn(key, total), spread(bound, total)

            def noisy(s: jax.Array, z: jax.Array, c: Bound) -> jax.Array:
                return s + (c * strength * z).astype(s.dtype)

            return jax.tree.map(noisy, total, drawn, bounds)

        scaling = scales and Scaling(lambda norms: scales(norms, bound), clipping.norms)
        worst_case = WorstCase(
            lambda d: _times(clipping.worst(d), bound),
            lambda u: noise.whiten(_divided(u, bound)) / strength,
            noise.dimension or clipping.dimension,
            clipping.tensors,
        )
        used = Mechanism(
            lambda update: clipping.clip(update, bound),
            perturb,
            0.0 if silent else strength / reach,
            NO_NOISE if silent else "",
            clip_norm=bound,
            noise_multiplier=sigma,
            at=at,
        )
        unsealed = know(used, scaling, None if silent else worst_case)
        return sealed(unsealed) if constructed(clipping) and constructed(noise) else unsealed

    return at(clip_norm, noise_multiplier)


def gaussian(clip_norm: Norm, noise_multiplier: NonNegative) -> Mechanism:
    """Clips to l2 norm `clip_norm` (C), and adds N(0, (C sigma)^2) to every coordinate of the sum (Appendix A).

    Formal guarantees: those of `mechanism`, with multiplier sigma; the proof is that of `fedpriv.proof.bound`.

    Raises:
      ValueError: C <= 0 or beyond `LEAST_CLIP`, sigma < 0, or noise without a finite clip norm.
    """
    return bound.gaussian(*_numbers(clip_norm, noise_multiplier))


def laplace(clip_norm: Norm, noise_multiplier: NonNegative) -> Mechanism:
    """Clips to l1 norm `clip_norm` (C), and adds Laplace(0, C x multiplier) to every coordinate of the sum.

    Formal guarantees: as `gaussian`, with the l1 norm: (1 / noise_multiplier, 0)-differentially private per
    contribution removed or added (Dwork, McSherry, Nissim and Smith 2006).

    Args:
      clip_norm: C.
      noise_multiplier: scale of the noise over C.

    Raises:
      ValueError: C <= 0 or beyond `LEAST_CLIP`, a negative multiplier, or noise without a finite clip norm.
    """
    return bound.laplace(*_numbers(clip_norm, noise_multiplier))


def _times(u: PyTree, bound: Bound) -> PyTree:
    return jax.tree.map(jnp.multiply, u, spread(bound, u))


def _divided(u: PyTree, bound: Bound) -> PyTree:
    return jax.tree.map(jnp.divide, u, spread(bound, u))


def _numbers(clip_norm: float, noise_multiplier: float) -> tuple[float, float]:
    return checked("clip_norm", clip_norm, Norm), checked(
        "noise_multiplier", noise_multiplier, NonNegative
    )


def unprotected(reason: str = NO_NOISE) -> Mechanism:
    """A mechanism that neither bounds nor hides anything; certificates state the reason (ours)."""
    require(isinstance(reason, str), "reason", reason, "say why nothing is hidden")
    return gaussian(math.inf, 0.0)._replace(clip=_measured, reason=reason)


def _measured(update: PyTree) -> tuple[PyTree, jax.Array]:
    """The update itself, of which every multiple is the same multiple, and its norm."""
    return update, optax.tree.norm(update)


know(unprotected(), scaling_of(gaussian(math.inf, 0)), None)  # of `_measured`

ALREADY_PRIVATE = unprotected("messages carry the noise of records' means alone")
"""For messages that depend on records through `Shard.private_mean` alone, which is checked: sums need no noise."""


def joint(*parts: Mechanism) -> Mechanism:
    """One release of a tuple, each part of which has its own mechanism and its own noise.

    Formal guarantees: multiplier (sum_k m_k^-2)^-1/2 for Gaussian noise (Andrew et al., arXiv:1905.03871, Theorem 1).

    Args:
      parts: Gaussian mechanisms; the norm that is reported is the first part's.

    Raises:
      ValueError: no parts, or noise that is not Gaussian.
    """
    for i, part in enumerate(parts):
        fits = isinstance(part, Mechanism) and part.noise == "gaussian"
        require(fits, f"parts[{i}]", part, "give mechanisms with Gaussian noise")
    require(bool(parts), "parts", parts, "give at least one mechanism")

    def clip(message: tuple) -> tuple[tuple, jax.Array]:
        several = isinstance(message, tuple | list) and len(message) == len(parts)
        remedy = f"give a tuple with a part for each of the {len(parts)} mechanisms"
        require(several, "message", message, remedy)
        bounded = [part.clip(u) for part, u in zip(parts, message, strict=True)]
        return tuple(u for u, _ in bounded), bounded[0][1]

    def perturb(key: Key, total: tuple) -> tuple:
        keys = jax.random.split(key, len(parts))
        each = zip(parts, keys, total, strict=True)
        return tuple(part.perturb(k, s) for part, k, s in each)

    worst_cases = [worst_case_of(part) for part in parts]
    hidden = all(part.certified_multiplier > 0 for part in parts) and all(worst_cases)
    used = Mechanism(
        clip,
        perturb,
        joint_multiplier(part.certified_multiplier for part in parts),
        next((part.reason for part in parts if part.reason), ""),
        clip_norm=parts[0].clip_norm,
        noise_multiplier=parts[0].noise_multiplier,
        parts=parts,
    )
    unsealed = know(used, None, _worst_together(worst_cases) if hidden else None)
    return sealed(unsealed) if all(map(constructed, parts)) else unsealed


def _worst_together(each: Sequence[Any]) -> WorstCase:
    """Of a tuple whose parts are perturbed independently."""

    def whiten(message: tuple) -> jax.Array:
        whitened = [part.whiten(u) for part, u in zip(each, message, strict=True)]
        return jnp.concatenate([leaf.reshape(-1) for leaf in whitened])

    def worst(d: int) -> tuple:
        sizes = [d, *(part.dimension or 1 for part in each[1:])]
        return tuple(part.worst(n) for part, n in zip(each, sizes, strict=True))

    return WorstCase(worst, whiten, each[0].dimension, each[0].tensors)
