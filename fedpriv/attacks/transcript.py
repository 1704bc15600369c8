"""What a server learns from the visible submodels of MSP-FL alone.

Y. Wang, X. Cao, S. Jin, M.-Y. Chow, "A Novel Privacy Enhancement Scheme with Dynamic Quantization for Federated
Learning", keep the number m of a client's invisible submodels secret, and with it the trained model (Lemma 2 and
Theorem 1; eq. 8). But where a client weighs all its invisible submodels alike, alpha[k] = a c_k with public c_k such as
1 / (k + 1), everything that is secret enters the messages through two numbers, 1 / a and m: with

    x[k] = a[k + 1] - a[k] - e (w[k] - a[k]) = alpha[k] (B[k] - m a[k]),  B = sum_n b_n,  B[k + 1] = B[k] - x[k]

which a server computes up to K - 1, every exchange but the last gives d linear equations

    (1 / a) (x[k + 1] / c_{k + 1} - x[k] / c_k) + m (a[k + 1] - a[k]) = -x[k].

Solved, they give B[0] and the trained model w = (a[0] + B[0]) / (1 + m).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Recovered(NamedTuple):
    """What was found of each client.

    Attributes:
      model: f32[M, d], the trained model.
      number: f32[M], m before it is rounded.
      weight: f32[M], a.
    """

    model: jax.Array
    number: jax.Array
    weight: jax.Array


def least_squares(
    messages: jax.Array, step: float, decay: Callable[[jax.Array], jax.Array]
) -> Recovered:
    """The attack of this file's header (ours), on a whole cohort; approximate where messages are quantized.

    Args:
      messages: f32[K + 1, M, d], the visible submodels as sent; K >= 2.
      step: e.
      decay: k -> c_k, see `fedpriv.consensus.DECAYS`.

    Raises:
      ValueError: fewer than two exchanges.
    """
    exchanges = len(messages) - 1
    if exchanges < 2:
        raise ValueError(f"messages: of {exchanges} exchange(s); the equations need at least 2")
    public = jax.vmap(decay)(jnp.arange(exchanges))[:, None, None]
    moved = _moved(messages, step)  # x[k]
    scaled = moved / public
    of_weight = jnp.diff(scaled, axis=0)
    of_number = jnp.diff(messages[:-1], axis=0)
    right = -moved[:-1]

    def solve(u: jax.Array, v: jax.Array, y: jax.Array) -> jax.Array:
        columns = jnp.stack([u.reshape(-1), v.reshape(-1)], 1)
        # Columns of equal length: float32 squares of very different ones would lose the smaller.
        length = jnp.maximum(jnp.linalg.norm(columns, axis=0), jnp.finfo(jnp.float32).tiny)
        return jnp.linalg.lstsq(columns / length, y.reshape(-1))[0] / length

    inverse, number = jax.vmap(solve, in_axes=1, out_axes=1)(of_weight, of_number, right)
    whole = jnp.maximum(jnp.round(number), 1)  # a client has at least one
    # (a[0] + B[0]) / (1 + m), with B[0] = x[0] / (a c_0) + m a[0].
    model = messages[0] + inverse[:, None] * scaled[0] / (1 + whole)[:, None]
    return Recovered(model, number, 1 / inverse)


def state_sum(messages: jax.Array, step: float, number: jax.Array | float) -> jax.Array:
    """f32[M, d]: the naive attack, eq. 8 cut off after K exchanges, for an assumed m; right for the true m alone.

    ((1 + m) a[K] - e sum_k (w[k] - a[k])) / (1 + m), up to what is left of the consensus.

    Args:
      messages: f32[K + 1, M, d].
      step: e.
      number: m, one for all or f32[M].
    """
    drift = step * jnp.sum(messages.mean(1, keepdims=True) - messages, 0)
    drift -= step * (messages[-1].mean(0) - messages[-1])  # up to k = K - 1
    return messages[-1] - drift / (1 + jnp.broadcast_to(number, messages.shape[1:2])[:, None])


def unmixed(
    messages: jax.Array, received: jax.Array, step: float, number: jax.Array | float = 1.0
) -> jax.Array:
    """f32[M, d]: theta - w of each client up to its length, where quantization leaves `least_squares` nothing.

    `state_sum` undoes the mixing with the others' submodels exactly. What it leaves of the first message, an unknown
    multiple of a[0] - w, is taken out as the part along a[0] - theta, on which a model close to theta has hardly any.

    Args:
      messages, step, number: as `state_sum`.
      received: f32[d], theta, the model that clients trained from.
    """
    update = received - state_sum(messages, step, number)
    start = received - messages[0]
    tiny = jnp.finfo(jnp.float32).tiny
    share = jnp.sum(update * start, 1) / jnp.maximum(jnp.sum(start**2, 1), tiny)
    return update - share[:, None] * start


def _moved(messages: jax.Array, step: float) -> jax.Array:
    """x[k] = a[k + 1] - a[k] - e (w[k] - a[k]), f32[K, M, d]."""
    now = messages[:-1]
    return jnp.diff(messages, axis=0) - step * (now.mean(1, keepdims=True) - now)
