"""Average consensus between a server and clients who show it one of their submodels.

Y. Wang, X. Cao, S. Jin, M.-Y. Chow, "A Novel Privacy Enhancement Scheme with Dynamic Quantization for Federated
Learning"; equation numbers from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.algorithms.splitting import Submodels
from fedpriv.compression.quantization import Quantized, check_bits, quantize
from fedpriv.core.types import Key


class Coupling(NamedTuple):
    """The weights of an exchange.

    Attributes:
      step: e, how far a visible submodel follows the server's mean.
      gamma: bound on alpha, the weight between the visible and each invisible submodel, of which `Submodels.weights`
        are parts.
      decay: k -> alpha[k] / gamma, not increasing.
    """

    step: float
    gamma: float
    decay: Callable[[jax.Array], jax.Array]

    def alpha(self, k: jax.Array) -> jax.Array:
        """f32[]: alpha[k], k being i32[]."""
        return jnp.float32(self.gamma * self.decay(k))


DECAYS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "linear": lambda k: 1.0 / (k + 1),
    "root": lambda k: 1.0 / jnp.sqrt(k + 1.0),
    "none": lambda k: jnp.float32(1.0),
}
"""gamma / (k + 1), the paper's; gamma / sqrt(k + 1), its comparison; gamma."""


def eigenvalues(step: float, size: int) -> tuple[float, float]:
    """(second largest, smallest) eigenvalue of U = I - e (I - 11^T / M), eq. 47: 1 once and 1 - e, M - 1 times."""
    return (1 - step, 1 - step) if size > 1 else (1.0, 1.0)


def coupling(step: float, gamma: float, decay: str = "linear") -> Coupling:
    """A `Coupling` with alpha[k] = gamma / (k + 1) ("linear", Theorem 3), gamma / sqrt(k + 1) ("root") or gamma.

    Raises:
      ValueError: an unknown decay.
    """
    if decay not in DECAYS:
        raise ValueError(f"decay: {decay!r} is not one of {', '.join(DECAYS)}")
    return Coupling(step, gamma, DECAYS[decay])


def check_coupling(coupling: Coupling, size: int, most: int, *, stable: bool = True) -> None:
    """The conditions of Lemma 7 and Section V-B: e in (0, M / (M - 1)), sum_n gamma < lambda_min / (1 + lambda_min).

    Args:
      size: M.
      most: largest number of invisible submodels.
      stable: whether gamma has to meet its condition.

    Raises:
      ValueError: where they do not hold.
    """
    e, gamma = coupling.step, coupling.gamma
    widest = size / (size - 1) if size > 1 else math.inf
    if not 0 < e < widest:
        raise ValueError(f"step: {e} is not in (0, M / (M - 1)) = (0, {widest:.4g})")
    if not 0 < gamma < math.inf:
        raise ValueError(f"gamma: {gamma} is not positive and finite")
    least = eigenvalues(e, size)[1]
    bound = least / (1 + least) if least > 0 else 0.0
    if stable and not most * gamma < bound:
        raise ValueError(
            f"gamma: {gamma} for up to {most} invisible submodels adds up to {most * gamma:.4g}, not below "
            f"lambda_min(U) / (1 + lambda_min(U)) = {bound:.4g} for a step of {e}; lower gamma, the step or the number "
            "of submodels, or allow unstable=True"
        )


def exchange(
    now: Submodels, mean: jax.Array, sent: jax.Array, step: float, alpha: jax.Array
) -> Submodels:
    """One communication round on the clients' side: eq. 3 for `sent` = the visible submodels, eq. 21 else.

    Args:
      mean: f32[d], w[k].
      sent: f32[M, d], q_i[k].
      alpha: f32[], gamma decay(k), of which every pair has its part.
    """
    a, b, weights = now
    apart = weights[..., None] * (b - a[:, None])
    return Submodels(
        a + step * (mean - sent) + alpha * jnp.sum(apart, 1),  # (3a), (21a)
        b - alpha * apart,  # (3b), (21b)
        weights,
    )


Norm: TypeAlias = Literal["frobenius", "columns"]

_NORMS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "frobenius": jnp.linalg.norm,
    "columns": lambda apart: jnp.max(jnp.linalg.norm(apart, axis=0)),
}


class Transmission(NamedTuple):
    """What of a visible submodel reaches the server.

    Attributes:
      bits: B per value.
      send: (key, a: f32[M, d], q: f32[M, d] what was sent before, width: f32[] of the interval) -> Quantized.
      common: whether all visible submodels have to begin at one value, on the grid.
      overhead: bits per message beside the values.
      interval: width by the paper's rule -> width in use; 0 where nothing is quantized.
      distance: submodels -> ||A - B||, of which the rule's W~ is the largest so far.
    """

    bits: int
    send: Callable[[Key, jax.Array, jax.Array, jax.Array], Quantized]
    common: bool
    overhead: int
    interval: Callable[[jax.Array], jax.Array]
    distance: Callable[[Submodels], jax.Array]


def full_precision() -> Transmission:
    """32 bits, as it is (MSP-FL, eq. 3 and 4)."""

    def send(key: Key, a: jax.Array, q: jax.Array, width: jax.Array) -> Quantized:
        return Quantized(a, jnp.zeros(a.shape, jnp.int32), jnp.zeros(a.shape, bool))

    return Transmission(32, send, False, 0, jnp.zeros_like, _unused)


def dynamic(bits: int, norm: Norm = "frobenius") -> Transmission:
    """The paper's quantizer: 2^B levels on [q[k] - pi a_max[k] / 2, q[k] + pi a_max[k] / 2] (eq. 18 to 20).

    Args:
      bits: B.
      norm: of A - B [M, d]: the paper's Frobenius norm, or the longest column. Lemma 10 can be argued for every
        coordinate by itself, so that the latter will do: eq. 23, read the right way round, is then 2^B >= sqrt(M) pi +
        1 instead of sqrt(M d) pi + 1. The lemma's printed constants need e below 0.41; there is room in them up to 1.2.

    Raises:
      ValueError: bits outside 1..22, or an unknown norm.
    """
    check_bits(bits)
    if norm not in _NORMS:
        raise ValueError(f"norm: {norm!r} is not one of {', '.join(_NORMS)}")

    def send(key: Key, a: jax.Array, q: jax.Array, width: jax.Array) -> Quantized:
        return quantize(key, a, q - width / 2, q + width / 2, bits)

    return Transmission(bits, send, True, 32, lambda width: width, partial(_distance, _NORMS[norm]))


def fixed(bits: int, bound: float) -> Transmission:
    """2^B levels from -bound to bound in every round (eq. 18 on one interval), for comparison.

    Raises:
      ValueError: bits outside 1..22, or a bound that is not positive.
    """
    check_bits(bits)
    if not bound > 0:
        raise ValueError(f"bound: {bound} is not positive")
    if not 1e-30 <= bound <= 1e38:
        raise ValueError(f"bound: {bound} is beyond float32; give one from 1e-30 to 1e38")

    def send(key: Key, a: jax.Array, q: jax.Array, width: jax.Array) -> Quantized:
        return quantize(key, a, jnp.float32(-bound), jnp.float32(bound), bits)

    return Transmission(
        bits, send, False, 0, lambda width: jnp.full_like(width, 2 * bound), _unused
    )


def _unused(now: Submodels) -> jax.Array:
    return jnp.float32(0)


class Exchanges(NamedTuple):
    """How many exchanges follow local training.

    Attributes:
      at: round t (i32[]) -> K_t, i32[].
      most: the largest K_t.
    """

    at: Callable[[jax.Array], jax.Array]
    most: int


def constant(count: int) -> Exchanges:
    """K_t = K, as in the paper's experiments (Section VI-B).

    Raises:
      ValueError: K below 0.
    """
    if count < 0:
        raise ValueError(f"count: {count} is not 0 or more")
    return Exchanges(lambda t: jnp.int32(count), count)


def by_rate(
    learning_rate: Callable[[jax.Array], jax.Array],
    contraction: float,
    most: int,
    *,
    quantized: bool = False,
) -> Exchanges:
    """K_t = ceil(log_lambda eta_t) (Theorem 2); if quantized, no less than ceil(1 / eta_t) (Theorem 3).

    Args:
      learning_rate: t -> eta_t in (0, 1], the paper's 2 / (mu (theta + t)).
      contraction: lambda in (0, 1), by which an exchange brings the submodels together.
      most: what K_t is cut to.

    Raises:
      ValueError: lambda outside (0, 1), or most below 1.
    """
    if not 0 < contraction < 1:
        raise ValueError(f"contraction: {contraction} is not in (0, 1)")
    if most < 1:
        raise ValueError(f"most: {most} is not at least 1")

    def at(t: jax.Array) -> jax.Array:
        eta = learning_rate(t)
        needed = jnp.log(eta) / math.log(contraction)
        if quantized:
            needed = jnp.maximum(needed, 1 / eta)
        return jnp.clip(jnp.ceil(needed * (1 - 1e-6)), 1, most).astype(jnp.int32)

    return Exchanges(at, most)


class Consensus(NamedTuple):
    """What a cohort agreed on.

    Attributes:
      model: f32[d], w[K].
      submodels: those after K exchanges.
      saturated: f32[], fraction of the values of the K + 1 messages that lay outside their interval.
      width: f32[], of the interval of the last round (0 at full precision).
      messages: f32[K + 1, M, d], all that was sent; of exchanges that do not happen the last one again.
    """

    model: jax.Array
    submodels: Submodels
    saturated: jax.Array
    width: jax.Array
    messages: jax.Array


class _Round(NamedTuple):
    submodels: Submodels
    sent: jax.Array
    widest: jax.Array  # W~: the largest ||A - B|| so far
    width: jax.Array
    outside: jax.Array


def agree(
    key: Key,
    start: Submodels,
    sent: Quantized,
    coupling: Coupling,
    transmission: Transmission,
    rounds: jax.Array | int,
    most: int,
) -> Consensus:
    """K exchanges (Algorithm 1, lines 22 to 31), as one scan of `most` rounds of which the first K happen.

    Args:
      sent: of f32[M, d], q_i[0].
      rounds: K_t, i32[] in 0..most.
    """
    e = coupling.step
    pi = interval_scale(e, start.visible.shape[0])
    largest = jnp.max(start.weights)

    def once(now: _Round, k: jax.Array) -> _Round:
        alpha = coupling.alpha(k)
        widest = jnp.maximum(now.widest, transmission.distance(now.submodels))
        submodels = exchange(now.submodels, now.sent.mean(0), now.sent, e, alpha)
        width = pi(widest) * alpha * largest  # (20): pi_t a_max[k]
        q = transmission.send(jax.random.fold_in(key, k), submodels.visible, now.sent, width)
        outside = now.outside + jnp.mean(q.outside)
        return _Round(submodels, q.values, widest, transmission.interval(width), outside)

    def if_it_happens(now: _Round, k: jax.Array) -> tuple[_Round, jax.Array]:
        after = lax.cond(k < rounds, once, lambda now, k: now, now, k)
        return after, after.sent

    zero = jnp.zeros((), sent.values.dtype)
    begun = _Round(start, sent.values, zero, zero, jnp.mean(sent.outside))
    end, later = lax.scan(if_it_happens, begun, jnp.arange(most))
    model = end.sent.mean(0)  # (6), (22)
    return Consensus(
        model,
        end.submodels,
        end.outside / (rounds + 1),
        end.width,
        jnp.concatenate([sent.values[None], later]),
    )


def interval_scale(step: float, size: int) -> Callable[[Any], Any]:
    """W~ -> pi = 8 (e + e~ + e~ W~) / (1 - lambda_2(U)), e~ = max(1, e) (Assumption 3)."""
    second = eigenvalues(step, size)[0] if size > 1 else 0.0
    larger = max(1.0, step)
    return lambda widest: 8 * (step + larger + larger * widest) / (1 - second)


def _distance(norm: Callable[[jax.Array], jax.Array], now: Submodels) -> jax.Array:
    """||A - B||; of several invisible submodels their sum's, or that of what moves a per largest weight, if longer."""
    apart = jnp.where(now.real[..., None], now.invisible - now.visible[:, None], 0.0)
    moving = (now.weights / jnp.max(now.weights))[..., None] * apart
    return jnp.maximum(norm(apart.sum(1)), norm(moving.sum(1)))
