"""How the server moves the model: any optimiser of optax, which takes the mean update for a gradient.

FedOpt: S. J. Reddi et al., "Adaptive Federated Optimization", ICLR 2021, arXiv:2003.00295, Algorithm 1.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedpriv.core.trees import widened
from fedpriv.core.types import Params, State
from fedpriv.rounds.optimizers import ready


class _Mean(optax.GradientTransformation):
    """Prints as its name, where it is a default."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MEAN"


MEAN = _Mean(*optax.stateless(lambda gradient, params: jax.tree.map(jnp.negative, gradient)))
"""`optax.sgd(1.0)` in operations that XLA leaves out: the model moves by the mean update."""


class ServedState(NamedTuple):
    """Model, and what the server's optimiser remembers. Richer states have these fields first.

    Attributes:
      params: theta.
      round: i32[], rounds done.
      server: the optimiser's state.
    """

    params: Params
    round: jax.Array
    server: optax.OptState


def server_init(
    server: optax.GradientTransformation, params: Params, federation: object
) -> ServedState:
    """The server's state before the first round; the optimiser has the types of the sums that it will be given."""
    return ServedState(params, jnp.int32(0), ready("server", server).init(widened(params)))


def server_update(server: optax.GradientTransformation, state: State, mean: Params) -> State:
    """The state a round later: theta_t+1 = ServerOpt(theta_t, -Delta_t, t).

    Formal guarantees: post-processing of `mean`.

    Args:
      state: a `ServedState`, or one that has its fields.
      mean: Delta_t, the mean of theta_i - theta_t, a tree like `params`.
    """
    gradient = jax.tree.map(jnp.negative, mean)
    step, after = ready("server", server).update(gradient, state.server, state.params)
    theta = optax.apply_updates(state.params, step)
    return state._replace(params=theta, round=state.round + 1, server=after)
