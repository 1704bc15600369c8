"""FedAdagrad, FedAdam and FedYogi: adaptive optimisers of the server, for `server=` of any algorithm.

S. J. Reddi et al., "Adaptive Federated Optimization", ICLR 2021, arXiv:2003.00295, Algorithm 2: without the bias
correction of `optax.adam` and `optax.yogi`. FedAvgM (T.-M. H. Hsu, H. Qi, M. Brown, "Measuring the Effects of
Non-Identical Data Distribution for Federated Visual Classification", 2019, arXiv:1909.06335) is `optax.sgd(1.0,
momentum=0.9)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedpriv.core.arguments import Decay, Positive, checked
from fedpriv.core.types import Params
from fedpriv.rounds.local_training import LearningRate


class Moments(NamedTuple):
    """What an adaptive optimiser of the server remembers.

    Attributes:
      m: a tree like the model, the momentum of the pseudo-gradient, which is -m_t of the paper.
      v: likewise, of its square.
    """

    m: Params
    v: Params


def adagrad(
    learning_rate: LearningRate, *, momentum: Decay = 0.0, adaptivity: Positive = 1e-3
) -> optax.GradientTransformation:
    """FedAdagrad: v_t = v_{t-1} + Delta_t^2. Arguments as `adam`."""
    return _adaptive(lambda v, squared: v + squared, learning_rate, momentum, adaptivity)


def adam(
    learning_rate: LearningRate,
    *,
    momentum: Decay = 0.9,
    second_momentum: Decay = 0.99,
    adaptivity: Positive = 1e-3,
) -> optax.GradientTransformation:
    """FedAdam: v_t = beta_2 v_{t-1} + (1 - beta_2) Delta_t^2.

    Args:
      learning_rate: eta, or a schedule of optax over the rounds.
      momentum: beta_1.
      second_momentum: beta_2.
      adaptivity: tau; v begins at tau^2.

    Raises:
      ValueError: a beta outside [0, 1), or a tau that is not positive.
    """
    b2 = checked("second_momentum", second_momentum, Decay)
    second = lambda v, squared: b2 * v + (1 - b2) * squared  # noqa: E731
    return _adaptive(second, learning_rate, momentum, adaptivity)


def yogi(
    learning_rate: LearningRate,
    *,
    momentum: Decay = 0.9,
    second_momentum: Decay = 0.99,
    adaptivity: Positive = 1e-3,
) -> optax.GradientTransformation:
    """FedYogi: v_t = v_{t-1} - (1 - beta_2) Delta_t^2 sign(v_{t-1} - Delta_t^2). Arguments as `adam`."""
    b2 = checked("second_momentum", second_momentum, Decay)
    second = lambda v, squared: v - (1 - b2) * squared * jnp.sign(v - squared)  # noqa: E731
    return _adaptive(second, learning_rate, momentum, adaptivity)


def _adaptive(
    second: Callable[[jax.Array, jax.Array], jax.Array],
    learning_rate: LearningRate,
    momentum: Decay,
    adaptivity: Positive,
) -> optax.GradientTransformation:
    learning_rate = checked("learning_rate", learning_rate, LearningRate)
    b1 = checked("momentum", momentum, Decay)
    tau = checked("adaptivity", adaptivity, Positive)

    def init(params: Params) -> Moments:
        return Moments(
            jax.tree.map(jnp.zeros_like, params),
            jax.tree.map(lambda p: jnp.full_like(p, tau**2), params),
        )

    def update(gradient: Params, state: Moments, params: Params = None) -> tuple[Params, Moments]:
        m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.m, gradient)
        v = jax.tree.map(lambda v, g: second(v, jnp.square(g)), state.v, gradient)
        direction = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + tau), m, v)
        return direction, Moments(m, v)

    scaled = optax.scale_by_learning_rate(
        learning_rate
    )  # x_t+1 = x_t + eta m_t / (sqrt(v_t) + tau)
    return optax.chain(optax.GradientTransformation(init, update), scaled)
