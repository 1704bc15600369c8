"""An LSTM layer whose gradient costs what its products cost.

Autodiff of a scan adds up the gradient of the recurrent weights step by step, in an array of their size. Here the
backward scan gives the gates' gradients alone, and one product over all steps the weights'.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from fedpriv.core.types import Key


class LSTM(nn.Module):
    """S. Hochreiter and J. Schmidhuber's layer as of `flax.linen.OptimizedLSTMCell`, from a state of zeros.

    Attributes:
      hidden: width.
    """

    hidden: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """f32[length, inputs] -> f32[length, hidden]."""
        inputs = self.param(
            "input", _each_gate(nn.initializers.lecun_normal()), x.shape[1], self.hidden
        )
        states = self.param(
            "recurrent", _each_gate(nn.initializers.orthogonal()), self.hidden, self.hidden
        )
        bias = self.param("bias", nn.initializers.zeros, (4 * self.hidden,))
        return recurrence(x @ inputs + bias[None], states)


def _each_gate(initializer: Any) -> Any:
    """Initialises the weights of the four gates one by one, side by side."""

    def init(key: Key, rows: int, columns: int) -> jax.Array:
        return jnp.concatenate(
            [initializer(k, (rows, columns)) for k in jax.random.split(key, 4)], 1
        )

    return init


@jax.custom_vjp
def recurrence(z: jax.Array, w: jax.Array) -> jax.Array:
    """The outputs h_t of an LSTM cell's steps.

    Args:
      z: f32[length, 4 hidden], what the input adds to the gates i, f, g, o before their nonlinearities.
      w: f32[hidden, 4 hidden], by which h_(t-1) enters them.

    Returns:
      f32[length, hidden].
    """
    return _forward(z, w)[0]


def _forward(z: jax.Array, w: jax.Array) -> tuple[jax.Array, tuple]:
    def step(carry: tuple, z: jax.Array) -> tuple[tuple, tuple]:
        h, c = carry
        i, f, g, o = jnp.split(z + h @ w, 4)
        i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
        new = f * c + i * g
        h = o * jnp.tanh(new)
        return (h, new), (h, (i, f, g, o, c, new))

    zeros = jnp.zeros_like(z, shape=w.shape[:1])
    _, (h, steps) = lax.scan(step, (zeros, zeros), z)
    return h, (h, w, steps)


def _backward(kept: tuple, dh: jax.Array) -> tuple[jax.Array, jax.Array]:
    h, w, steps = kept
    transposed = lax.optimization_barrier(w.T)  # once, not in every step

    def step(carry: tuple, given: tuple) -> tuple[tuple, jax.Array]:
        later, dc = carry
        here, (i, f, g, o, c, new) = given
        dh, squashed = here + later, jnp.tanh(new)
        dc = dc + dh * o * (1 - squashed**2)
        gates = (
            dc * g * i * (1 - i),
            dc * c * f * (1 - f),
            dc * i * (1 - g**2),
            dh * squashed * o * (1 - o),
        )
        dz = jnp.concatenate(gates)
        return (dz @ transposed, dc * f), dz

    zeros = jnp.zeros_like(dh[0])
    _, dz = lax.scan(step, (zeros, zeros), (dh, steps), reverse=True)
    return dz, h[:-1].T @ dz[1:]


recurrence.defvjp(_forward, _backward)
