"""What bounds a contribution, and the noise that hides it in a sum: flat clipping, with Gaussian or Laplace noise.

Clipping: H. B. McMahan, D. Ramage, K. Talwar, L. Zhang, ICLR 2018, arXiv:1710.06963, Section 2. Noise: C. Dwork,
A. Roth, "The Algorithmic Foundations of Differential Privacy", 2014, Section 3.3 (Laplace) and Appendix A (Gaussian).

What is proved, in exact arithmetic, of `gaussian(C, sigma)` with p = 2 and of `laplace(C, sigma)` with p = 1:

1. *Bound.* A contribution u becomes c(u) = u min(1, C / ||u||_p), or 0 where ||u||_p is NaN or infinite. A norm is
   homogeneous, so ||c(u)||_p <= C whatever u is.
2. *Sensitivity.* Contributions are clipped one by one, and whoever is absent counts as 0. So one that is added or
   removed moves their sum by c(u): by at most C in the norm p. One that is replaced moves it by at most 2 C.
3. *Noise.* Every coordinate of the sum gets C sigma times its own z, which depends on the key and on shapes alone:
   N(0, 1) for p = 2, and Laplace(0, 1) for p = 1. In units of C sigma, a contribution moves the sum by at most
   1 / sigma. Such a move on the line bounds that of the vector: N(0, I) is the same in all directions, and of Laplace
   noise a move along one axis is the worst of its l1 length (`fedpriv.proof.noise`).

So `certified_multiplier` is sigma. In float32 a square below 1.2e-38 counts as 0, and one above 3.4e38 as infinite;
`LEAST_CLIP` and `LEAST` keep what matters between them. The norm's rounding (relative 1e-6) is not accounted for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from fedpriv.core.complaints import require
from fedpriv.core.provenance import sealed
from fedpriv.core.trees import dimension, real, unflatten, width
from fedpriv.core.types import Key, PyTree
from fedpriv.proof.seen import NO_NOISE, NoiseKind

LEAST = 1e-36
"""Of the noise's deviation, and one over the largest."""

LEAST_CLIP = 1e-12
"""Of a clip norm, and one over the largest: between them float32 has the squares of all that could matter.

A square below 1.2e-38 counts as 0, so that up to sqrt(d) 1.1e-19 of a norm is not seen. For C = 1e-12 and d = 1e10 that
makes what is clipped 6e-5 too long, relative to C, and less for any other. From 1.8e19 on a norm is infinite.
"""

Bound: TypeAlias = float | jax.Array
"""C, which may be traced; a finite one is from `LEAST_CLIP` to one over it."""


class Mechanism(NamedTuple):
    """Bounds contributions and perturbs their sum; the privacy unit is whatever the sum runs over.

    One that this module seals has a `Clip` and an `AddNoise`, and the proof above. Any other comes in from outside: of
    one that is sealed there, the multiplier is the word of whoever sealed it. One without a seal, or with another field
    than it was sealed with, is declared: its multiplier is the user's word.

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

    def in_round(self, t: Any) -> Mechanism:
        """The mechanism of round t (i32[] or an integer): always this one, except in schedules."""
        return self

    def multipliers(self, rounds: Any) -> tuple[tuple[int, float], ...]:
        """(number of rounds, multiplier) for each part of a run."""
        return ((rounds, self.certified_multiplier),)


@dataclass(frozen=True, eq=False)
class Clip:
    """contribution u -> (u scaled into ||u||_p <= C, ||u||_p), over all coordinates of a tree together.

    Attributes:
      order: p, 1 or 2.
      bound: C; infinity leaves u as it is.
    """

    order: int
    bound: Bound

    def __call__(self, update: PyTree) -> tuple[PyTree, jax.Array]:
        """Real numbers of any type are taken, and floats of 32 bits or more come back."""
        update = real(update)
        norms = jax.tree.map(self._norm, update)
        return scaled(update, self.factors(norms)), self.length(norms)

    def factors(self, norms: PyTree) -> PyTree:
        """The factor of each tensor, from the tensors' norms: for all the same."""
        length = self.length(norms)
        one = factor(length, self.bound, length)
        return jax.tree.map(lambda _: one, norms)

    def length(self, norms: PyTree) -> jax.Array:
        """||u||_p, from the norms of its tensors."""
        total = sum(n**self.order for n in jax.tree.leaves(norms))
        return jnp.sqrt(total) if self.order == 2 else jnp.asarray(total)

    def _norm(self, leaf: jax.Array) -> jax.Array:
        return jnp.sum(jnp.abs(leaf)) if self.order == 1 else jnp.linalg.norm(leaf.reshape(-1))


def factor(norm: jax.Array, bound: Bound, length: jax.Array) -> jax.Array:
    """What brings `norm` down to `bound`: 0 where the norm of the whole is NaN or infinite, 1 without a bound."""
    scale = jnp.where(norm <= bound, 1.0, bound / norm)  # 1 for 0 and a bound of 0
    scale = jnp.where(jnp.isfinite(length), scale, 0.0)
    return jnp.where(jnp.isinf(bound), 1.0, scale)


def scaled(update: PyTree, factors: PyTree) -> PyTree:
    """The tree times its tensors' factors; a factor of 0 makes 0 of NaN and infinity, too."""
    return jax.tree.map(lambda u, s: jnp.where(s == 0, 0.0, u * s).astype(u.dtype), update, factors)


@dataclass(frozen=True, eq=False)
class AddNoise:
    """(key, sum) -> the sum, with C sigma z on every coordinate: z from N(0, 1) for p = 2, Laplace(0, 1) for p = 1.

    Attributes:
      clip: of the contributions, which says p and C.
      multiplier: sigma; a number that is not above 0 adds nothing.
    """

    clip: Clip
    multiplier: float | jax.Array

    def __call__(self, key: Key, total: PyTree) -> PyTree:
        """The noise depends on the key, shapes and types alone."""
        if is_silent(self.multiplier):
            return total
        total = real(total)
        draw = jax.random.laplace if self.clip.order == 1 else jax.random.normal
        noise = unflatten(draw(key, (dimension(total),), width(total)), total)

        def noisy(s: jax.Array, z: jax.Array) -> jax.Array:
            return s + (self.clip.bound * self.multiplier * z).astype(s.dtype)

        return jax.tree.map(noisy, total, noise)


def is_silent(multiplier: float | jax.Array) -> bool:
    """Whether no noise is added, which is known before the program is traced."""
    return isinstance(multiplier, int | float) and not multiplier > 0


def gaussian(clip_norm: float, noise_multiplier: float) -> Mechanism:
    """Clips to l2 norm `clip_norm` (C), and adds N(0, (C sigma)^2) to every coordinate of the sum.

    Raises:
      ValueError: C beyond `LEAST_CLIP`, or noise without a finite clip norm or beyond `LEAST`.
    """
    check_scales(clip_norm, noise_multiplier)
    return gaussian_at(clip_norm, noise_multiplier)


def gaussian_at(bound: Bound, sigma: float | jax.Array) -> Mechanism:
    """As `gaussian`, also with values that are traced; C is raised to `LEAST_CLIP`, nothing else is checked."""
    return _proved("gaussian", Clip(2, at_least(bound)), sigma, gaussian_at)


def laplace(clip_norm: float, noise_multiplier: float) -> Mechanism:
    """Clips to l1 norm `clip_norm` (C), and adds Laplace(0, C sigma) to every coordinate of the sum.

    Raises:
      ValueError: as `gaussian`.
    """
    check_scales(clip_norm, noise_multiplier)
    return _proved("laplace", Clip(1, clip_norm), noise_multiplier)


def _proved(noise: NoiseKind, clip: Clip, sigma: Any, at: Any = None) -> Mechanism:
    """A mechanism as above, sealed: none but these two functions make one."""
    silent = is_silent(sigma)
    multiplier, reason = (0.0, NO_NOISE) if silent else (sigma, "")
    perturb = AddNoise(clip, sigma)
    return sealed(Mechanism(clip, perturb, multiplier, reason, noise, clip.bound, sigma, at))


def at_least(bound: Any) -> Any:
    """A clip norm, raised to that below which float32 could not see how long an update is."""
    if isinstance(bound, int | float):
        return max(bound, LEAST_CLIP)
    return jnp.maximum(bound, jnp.asarray(LEAST_CLIP, jnp.result_type(bound)))


def check_scales(clip_norm: float, noise_multiplier: float, when: str = "") -> None:
    """Refuses mechanisms whose squared bounds or noise float32 would round to 0 or infinity, whatever is certified.

    Args:
        clip_norm: C, in units of the update; infinity: no bound.
        noise_multiplier: sigma, noise over C.
        when: in words, when they hold.

    Raises:
        ValueError: a bound or noise that is beyond float32, or noise that has no bound, or is less than none.
    """
    require(noise_multiplier >= 0, "noise_multiplier", noise_multiplier, "give one from 0 on")
    if noise_multiplier > 0 and clip_norm == math.inf:
        raise ValueError("clip_norm: inf leaves the noise unbounded; give a finite clip_norm")
    limits = [("clip_norm", clip_norm, LEAST_CLIP)] if clip_norm != math.inf else []
    if noise_multiplier > 0:
        limits.append(("clip_norm x noise_multiplier", clip_norm * noise_multiplier, LEAST))
    for name, value, least in limits:
        if not least <= value <= 1 / least:
            squared = ", which squares what it bounds" if name == "clip_norm" else ""
            raise ValueError(
                f"{name}: {value:g}{when} is beyond float32{squared}; make it {least:g} to {1 / least:g}"
            )
