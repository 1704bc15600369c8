"""Average consensus between a server and clients, each of which shows it one submodel.

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
from fedpriv.compression.quantization import FloatBound, Levels, Quantized, quantize
from fedpriv.core.arguments import Count, CountOrZero, Positive, Probability, checked
from fedpriv.core.array_arguments import check_key, check_numbers
from fedpriv.core.checked_tuples import checking_fields
from fedpriv.core.complaints import require
from fedpriv.core.types import Key


@checking_fields
class Coupling(NamedTuple):
    """The weights of an exchange, by which clients come to a consensus.

    Attributes:
      step: e, how far a visible submodel follows the server's mean.
      gamma: bound on alpha, the weight between the visible and each invisible submodel; `Submodels.weights` are
        fractions of it.
      decay: k -> alpha[k] / gamma, which does not increase.
    """

    step: Positive
    gamma: Positive
    decay: Callable[[jax.Array], jax.Array]

    def alpha(self, k: jax.Array) -> jax.Array:
        """f32[]: alpha[k], k being i32[]."""
        return jnp.float32(self.gamma * self.decay(k))


Decay: TypeAlias = Literal["linear", "root", "none"]
COUPLING = "one such as fp.papers.consensus.coupling(0.3, 0.1)"
TRANSMISSION = "one such as fp.papers.consensus.dynamic(8)"

DECAYS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "linear": lambda k: 1.0 / (jnp.asarray(k, float) + 1.0),
    "root": lambda k: 1.0 / jnp.sqrt(jnp.asarray(k, float) + 1.0),
    "none": lambda k: jnp.float32(1.0),
}
"""gamma / (k + 1), the paper's; gamma / sqrt(k + 1), its comparison; gamma."""


def eigenvalues(step: Positive, size: Count) -> tuple[float, float]:
    """(second largest, smallest) eigenvalue of U = I - e (I - 11^T / M), eq. 47: 1 once and 1 - e, M - 1 times."""
    step = checked("step", step, Positive)
    size = checked("size", size, Count)
    return (1 - step, 1 - step) if size > 1 else (1.0, 1.0)


def coupling(step: Positive, gamma: Positive, decay: Decay = "linear") -> Coupling:
    """A `Coupling` with alpha[k] = gamma / (k + 1) ("linear", Theorem 3), gamma / sqrt(k + 1) ("root") or gamma.

    Raises:
      ValueError: a step or gamma that is not positive, or an unknown decay.
    """
    step = checked("step", step, Positive)
    gamma = checked("gamma", gamma, Positive)
    decay = checked("decay", decay, Decay)
    return Coupling(step, gamma, DECAYS[decay])


def check_coupling(coupling: Coupling, size: Count, most: Count, *, stable: bool = True) -> None:
    """The conditions of Lemma 7 and Section V-B: e in (0, M / (M - 1)), sum_n gamma < lambda_min / (1 + lambda_min).

    Args:
      size: M.
      most: largest number of invisible submodels.
      stable: whether gamma must meet its condition.

    Raises:
      ValueError: a condition does not hold.
    """
    require(isinstance(coupling, Coupling), "coupling", coupling, f"give {COUPLING}")
    size = checked("size", size, Count)
    most = checked("most", most, Count)
    stable = checked("stable", stable, bool)
    e, gamma = coupling.step, coupling.gamma
    widest = size / (size - 1) if size > 1 else math.inf
    if e >= widest:
        raise ValueError(f"step: {e} is not in (0, M / (M - 1)) = (0, {widest:.4g})")
    least = eigenvalues(e, size)[1]
    bound = least / (1 + least) if least > 0 else 0.0
    if stable and not most * gamma < bound:
        raise ValueError(
            f"gamma: {gamma} for up to {most} invisible submodels adds up to {most * gamma:.4g}, not below "
            f"lambda_min(U) / (1 + lambda_min(U)) = {bound:.4g} for a step of {e}; lower gamma, the step or the number "
            "of submodels, or allow unstable=True"
        )


def exchange(
    now: Submodels, mean: jax.Array, sent: jax.Array, step: Positive | jax.Array, alpha: jax.Array
) -> Submodels:
    """One communication round on the clients' side: eq. 3 for `sent` = the visible submodels, eq. 21 else.

    Args:
      mean: f32[d], w[k].
      sent: f32[M, d], q_i[k].
      alpha: f32[], gamma decay(k), of which every pair has its fraction.
    """
    require(isinstance(now, Submodels), "now", now, "give those of fp.papers.splitting.Submodels")
    check_numbers("mean", mean)
    check_numbers("sent", sent)
    check_numbers("alpha", alpha, 0)
    step = checked("step", step, Positive | jax.Array)
    a, b, weights = now
    apart = weights[..., None] * (b - a[:, None])
    return Submodels(
        a + step * (mean[None] - sent) + alpha * jnp.sum(apart, 1),  # (3a), (21a)
        b - alpha * apart,  # (3b), (21b)
        weights,
    )


Norm: TypeAlias = Literal["frobenius", "columns"]

_NORMS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "frobenius": jnp.linalg.norm,
    "columns": lambda apart: jnp.max(jnp.linalg.norm(apart, axis=0)),
}


@checking_fields
class Transmission(NamedTuple):
    """The part of a visible submodel that reaches the server.

    Attributes:
      bits: B per value.
      send: (key, a: f32[M, d], q: f32[M, d] sent before, width: f32[] of the interval) -> Quantized.
      common: whether all visible submodels must begin at one value, on the grid.
      overhead: bits per message beside the values.
      interval: the paper's width -> the width in use; 0 if nothing is quantized.
      distance: submodels -> ||A - B||; the rule's W~ is the largest so far.
    """

    bits: Count
    send: Callable[[Key, jax.Array, jax.Array, jax.Array], Quantized]
    common: bool
    overhead: CountOrZero
    interval: Callable[[jax.Array], jax.Array]
    distance: Callable[[Submodels], jax.Array]


def full_precision() -> Transmission:
    """A transmission that is unquantized, in 32 bits (MSP-FL, eq. 3 and 4)."""

    def send(key: Key, a: jax.Array, q: jax.Array, width: jax.Array) -> Quantized:
        return Quantized(a, jnp.zeros(a.shape, jnp.int32), jnp.zeros(a.shape, bool))

    return Transmission(32, send, False, 0, jnp.zeros_like, _unused)


def dynamic(bits: Levels, norm: Norm = "frobenius") -> Transmission:
    """MSPDQ's quantizer: 2^B levels on [q[k] - pi a_max[k] / 2, q[k] + pi a_max[k] / 2] (eq. 18 to 20).

    Args:
      bits: B.
      norm: norm of A - B [M, d]: the paper's Frobenius norm, or the longest column. The latter suffices, as Lemma 10
        can be argued for every coordinate separately: eq. 23, read the right way round, is then 2^B >= sqrt(M) pi + 1
        instead of sqrt(M d) pi + 1. The lemma's printed constants need e below 0.41; they have room up to 1.2.

    Raises:
      ValueError: bits outside 1..22, or an unknown norm.
    """
    bits = checked("bits", bits, Levels)
    norm = checked("norm", norm, Norm)

    def send(key: Key, a: jax.Array, q: jax.Array, width: jax.Array) -> Quantized:
        return quantize(key, a, q - width / 2, q + width / 2, bits)

    return Transmission(bits, send, True, 32, lambda width: width, partial(_distance, _NORMS[norm]))


def fixed(bits: Levels, bound: FloatBound) -> Transmission:
    """In place of `dynamic`: 2^B levels from -bound to bound in every round (eq. 18 on one interval), for comparison.

    Raises:
      ValueError: bits outside 1..22, or a bound that is not positive.
    """
    bits = checked("bits", bits, Levels)
    bound = checked("bound", bound, FloatBound)

    def send(key: Key, a: jax.Array, q: jax.Array, width: jax.Array) -> Quantized:
        return quantize(key, a, jnp.float32(-bound), jnp.float32(bound), bits)

    return Transmission(
        bits, send, False, 0, lambda width: jnp.full_like(width, 2 * bound), _unused
    )


def _unused(now: Submodels) -> jax.Array:
    return jnp.float32(0)


@checking_fields
class Exchanges(NamedTuple):
    """How many exchanges of a consensus follow local training.

    Attributes:
      at: round t (i32[]) -> K_t, i32[].
      most: the largest K_t.
    """

    at: Callable[[jax.Array], jax.Array]
    most: CountOrZero


def constant(count: CountOrZero) -> Exchanges:
    """K_t = K exchanges, as in the paper's experiments (Section VI-B).

    Raises:
      ValueError: K below 0.
    """
    count = checked("count", count, CountOrZero)
    return Exchanges(lambda t: jnp.int32(count), count)


def by_rate(
    learning_rate: Callable[[jax.Array], jax.Array],
    contraction: Probability,
    most: Count,
    *,
    quantized: bool = False,
) -> Exchanges:
    """K_t = ceil(log_lambda eta_t) (Theorem 2); if quantized, no less than ceil(1 / eta_t) (Theorem 3).

    Args:
      learning_rate: t -> eta_t in (0, 1], the paper's 2 / (mu (theta + t)).
      contraction: lambda in (0, 1), by which an exchange contracts the distances of submodels.
      most: upper limit of K_t.

    Raises:
      ValueError: lambda outside (0, 1), or most below 1.
    """
    remedy = "give a function of the round, such as lambda t: 1 / (10 + t)"
    require(callable(learning_rate), "learning_rate", learning_rate, remedy)
    contraction = checked("contraction", contraction, Probability)
    most = checked("most", most, Count)
    quantized = checked("quantized", quantized, bool)

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
      saturated: f32[], fraction of the values in the K + 1 messages that lay outside their interval.
      width: f32[], of the interval of the last round (0 at full precision).
      messages: f32[K + 1, M, d], all messages; the last one is repeated for exchanges that do not happen.
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
    rounds: jax.Array | CountOrZero,
    most: CountOrZero,
) -> Consensus:
    """K exchanges (Algorithm 1, lines 22 to 31): one scan of `most` rounds, of which the first K happen.

    Args:
      sent: f32[M, d], q_i[0].
      rounds: K_t, i32[] in 0..most.
    """
    check_key("key", key)
    require(
        isinstance(start, Submodels), "start", start, "give those of fp.papers.splitting.Submodels"
    )
    require(
        isinstance(sent, Quantized), "sent", sent, "give what fp.papers.quantization.quantize does"
    )
    require(isinstance(coupling, Coupling), "coupling", coupling, f"give {COUPLING}")
    fits = isinstance(transmission, Transmission)
    require(fits, "transmission", transmission, f"give {TRANSMISSION}")
    rounds = checked("rounds", rounds, jax.Array | CountOrZero)
    most = checked("most", most, CountOrZero)
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
        end.outside / jnp.asarray(rounds + 1, end.outside.dtype),
        end.width,
        jnp.concatenate([sent.values[None], later]),
    )


def interval_scale(step: Positive, size: Count) -> Callable[[Any], Any]:
    """Of `dynamic`: W~ -> pi = 8 (e + e~ + e~ W~) / (1 - lambda_2(U)), e~ = max(1, e) (Assumption 3)."""
    step = checked("step", step, Positive)
    size = checked("size", size, Count)
    second = eigenvalues(step, size)[0] if size > 1 else 0.0
    larger = max(1.0, step)
    return lambda widest: 8 * (step + larger + larger * widest) / (1 - second)


def _distance(norm: Callable[[jax.Array], jax.Array], now: Submodels) -> jax.Array:
    """||A - B||; of several invisible submodels their sum's, or that of what moves a per largest weight, if longer."""
    apart = jnp.where(now.real[..., None], now.invisible - now.visible[:, None], 0.0)
    moving = (now.weights / jnp.max(now.weights))[..., None] * apart
    return jnp.maximum(norm(apart.sum(1)), norm(moving.sum(1)))
