"""Mechanisms: bound one contribution, perturb a sum of bounded contributions.

The Laplace and Gaussian mechanisms: C. Dwork, A. Roth, "The Algorithmic Foundations of Differential Privacy", 2014,
Section 3.3 and Appendix A.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedpriv.core.arguments import (
    CountOrZero,
    NonNegative,
    Norm,
    checked,
    require,
)
from fedpriv.core.checked_tuples import checking_fields, refusing
from fedpriv.core.provenance import constructed, sealed
from fedpriv.core.trees import dimension, flatten, real, unflatten, width
from fedpriv.core.types import Key, PyTree
from fedpriv.mechanisms.clipping import Bound, Clipping, flat, spread
from fedpriv.mechanisms.described import Scaling, WorstCase, know, scaling_of, worst_case_of
from fedpriv.mechanisms.noise import Noise, isotropic
from fedpriv.privacy.seen import NO_NOISE, NoiseKind
from fedpriv.privacy.whitening import joint_multiplier

LEAST = 1e-36
"""Of the noise's deviation, and one over the largest."""

LEAST_CLIP = 1e-12
"""Of a clip norm, and one over the largest: between them float32 has the squares of all that could matter.

A square below 1.2e-38 counts as 0, so that up to sqrt(d) 1.1e-19 of a norm is not seen. For C = 1e-12 and d = 1e10 that
makes what is clipped 6e-5 too long, relative to C, and less for any other.
"""

_DESCRIBED = (
    "a mechanism does not hold it; write fedpriv.mechanisms.described.described(mechanism, {})"
)
_SCALING = _DESCRIBED.format("scaling=Scaling(scales, norms)")
_WORST_CASE = _DESCRIBED.format("worst_case=WorstCase(worst, whiten)")
_WORST_CASE_FIELDS = ("worst_case", "worst", "whiten", "dimension", "tensors")


@refusing(
    dict.fromkeys(("scaling", "scales", "norms"), _SCALING)
    | dict.fromkeys(_WORST_CASE_FIELDS, _WORST_CASE)
)
@checking_fields
class Mechanism(NamedTuple):
    """Bounds contributions and perturbs their sum; the privacy unit is whatever the sum runs over.

    What gradients and audits know of its functions is no part of it, see `fedpriv.mechanisms.described`.

    Attributes:
      clip: contribution -> (bounded contribution, its norm before).
      perturb: (key, sum) -> noisy sum. The noise depends on the key and the sum's shapes alone. Like `clip`, it returns
        floats of 32 bits or more (`fedpriv.core.trees.real`).
      certified_multiplier: standard deviation of the noise on the sum, divided by the most that one contribution can
        move it (1 / whitened sensitivity where the noise differs by direction); 0 if nothing is hidden.
      reason: why nothing is hidden, if `certified_multiplier` is 0.
      noise: "gaussian", "discrete_gaussian" or "skellam" (sensitivity in the l2 norm), or "laplace" (l1).
      clip_norm: C.
      noise_multiplier: sigma as the paper states it; `certified_multiplier` is what is proved.
      at: (C, sigma) -> this mechanism with these values, which may be traced: C is raised to `LEAST_CLIP`, nothing else
        is checked. None if it has neither.
      parts: the mechanisms of a `joint` one.
      correlation: the `Correlation` of a `correlated` mechanism.
      integers: how messages travel as integers, `fedpriv.mechanisms.integers.Integers`; None: as floats.
      seal: see `fedpriv.core.provenance`; leave it out of a mechanism of your own.
    """

    clip: Callable[[PyTree], tuple[PyTree, jax.Array]]
    perturb: Callable[[Key, PyTree], PyTree]
    certified_multiplier: Any
    reason: str = ""
    noise: NoiseKind = "gaussian"
    clip_norm: Any = math.inf
    noise_multiplier: Any = 0.0
    at: Callable[[Bound, float | jax.Array], Mechanism] | None = None
    parts: tuple[Mechanism, ...] = ()
    correlation: Any = None
    integers: Any = None
    seal: tuple = ()

    def in_round(self, t: jax.Array | CountOrZero) -> Mechanism:
        """The mechanism of round t: always this one, except in schedules."""
        checked("t", t, jax.Array | CountOrZero)
        return self

    def for_batch(self, norms: PyTree, mask: jax.Array) -> Mechanism:
        """The mechanism for contributions with these norms: this one, as a rule that looks at the data is not private.

        Args:
          norms: a tree of f32[B], the norms of each tensor.
          mask: bool[B], which contributions count.
        """
        return self

    def multipliers(self, rounds: CountOrZero) -> tuple[tuple[int, float], ...]:
        """(number of rounds, multiplier) for each part of a run."""
        rounds = checked("rounds", rounds, CountOrZero)
        return ((rounds, self.certified_multiplier),)


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
    clip_norm, noise_multiplier = _checked(clip_norm, noise_multiplier)
    calibrated = checked("calibrated", calibrated, bool)
    reach = noise.reach(clipping)

    scales = clipping.scales

    def at(bound: Bound, sigma: float | jax.Array) -> Mechanism:
        bound = jax.tree.map(_at_least, bound)
        silent = isinstance(sigma, int | float) and not sigma > 0
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

    Formal guarantees: those of `mechanism`, with multiplier sigma.

    Raises:
      ValueError: C <= 0 or beyond `LEAST_CLIP`, sigma < 0, or noise without a finite clip norm.
    """
    return mechanism(flat(), isotropic(), clip_norm=clip_norm, noise_multiplier=noise_multiplier)


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
    clip_norm, noise_multiplier = _checked(clip_norm, noise_multiplier)

    def norm(update: PyTree) -> jax.Array:
        return optax.tree.norm(update, ord=1)

    unsealed = Mechanism(
        _clip(clip_norm, norm),
        _perturb(clip_norm * noise_multiplier, jax.random.laplace),
        noise_multiplier,
        "" if noise_multiplier > 0 else NO_NOISE,
        "laplace",
        clip_norm,
        noise_multiplier,
    )
    worst_case = WorstCase(
        lambda d: clip_norm * jnp.zeros(d).at[0].set(1.0),
        lambda u: flatten(u) / (clip_norm * noise_multiplier),
    )
    return sealed(know(unsealed, None, worst_case))


def _at_least(bound: Any) -> Any:
    """A clip norm below which float32 could not see how long an update is."""
    if isinstance(bound, int | float):
        return max(bound, LEAST_CLIP)
    return jnp.maximum(bound, jnp.asarray(LEAST_CLIP, jnp.result_type(bound)))


def _times(u: PyTree, bound: Bound) -> PyTree:
    return jax.tree.map(jnp.multiply, u, spread(bound, u))


def _divided(u: PyTree, bound: Bound) -> PyTree:
    return jax.tree.map(jnp.divide, u, spread(bound, u))


def _checked(clip_norm: float, noise_multiplier: float) -> tuple[float, float]:
    clip_norm = checked("clip_norm", clip_norm, Norm)
    noise_multiplier = checked("noise_multiplier", noise_multiplier, NonNegative)
    if noise_multiplier > 0 and clip_norm == math.inf:
        raise ValueError("clip_norm: inf leaves the noise unbounded; give a finite clip_norm")
    check_scales(clip_norm, noise_multiplier)
    return clip_norm, noise_multiplier


def check_scales(clip_norm: float, noise_multiplier: float, when: str = "") -> None:
    """Refuses mechanisms whose squared bounds or noise float32 would round to 0 or infinity, whatever is certified.

    Args:
        clip_norm: C, in units of the update; infinity: no bound.
        noise_multiplier: sigma, noise over C.
        when: in words, when they hold.

    Raises:
        ValueError: a bound or noise that is beyond float32.
    """
    limits = [("clip_norm", clip_norm, LEAST_CLIP)] if clip_norm < math.inf else []
    if noise_multiplier > 0:
        limits.append(("clip_norm x noise_multiplier", clip_norm * noise_multiplier, LEAST))
    for name, value, least in limits:
        if not least <= value <= 1 / least:
            squared = ", which squares what it bounds" if name == "clip_norm" else ""
            raise ValueError(
                f"{name}: {value:g}{when} is beyond float32{squared}; make it {least:g} to {1 / least:g}"
            )


def _clip(
    clip_norm: float, norm_of: Callable[[PyTree], jax.Array]
) -> Callable[[PyTree], tuple[PyTree, jax.Array]]:
    def clip(update: PyTree) -> tuple[PyTree, jax.Array]:
        update = real(update)
        norm = norm_of(update)
        if clip_norm == math.inf:
            return update, norm
        scale = jnp.minimum(1.0, clip_norm / norm)
        usable = jnp.isfinite(norm)
        return jax.tree.map(lambda leaf: jnp.where(usable, leaf * scale, 0.0), update), norm

    return clip


def _perturb(
    scale: float, draw: Callable[[Key, tuple[int, ...], Any], jax.Array]
) -> Callable[[Key, PyTree], PyTree]:
    def perturb(key: Key, total: PyTree) -> PyTree:
        if not scale > 0:  # NaN for no clipping and no noise
            return total
        total = real(total)
        noise = scale * draw(key, (dimension(total),), width(total))
        return jax.tree.map(jnp.add, total, unflatten(noise, total))

    return perturb


def unprotected(reason: str = NO_NOISE) -> Mechanism:
    """A mechanism that neither bounds nor hides anything; certificates state the reason (ours)."""
    require(isinstance(reason, str), "reason", reason, "say why nothing is hidden")
    return gaussian(math.inf, 0)._replace(clip=_measured, reason=reason)


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
