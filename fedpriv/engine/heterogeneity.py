"""What heterogeneity does to training: objective, its minimum, and how far the clients' gradients differ.

M. Noble, A. Bellet, A. Dieuleveut, arXiv:2111.09278, Appendix D.3. Diagnostics of an experiment, not private.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optax

from fedpriv.core.arguments import Finite, NonNegative, checked
from fedpriv.core.complaints import require
from fedpriv.core.parameters import check_params
from fedpriv.core.random_losses import without_key
from fedpriv.core.trees import flatten
from fedpriv.core.types import Example, LossFn, Params, State
from fedpriv.core.user_code import names_user_code
from fedpriv.data.federation import Federation
from fedpriv.engine.simulate import Measure
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.over_clients import over_clients
from fedpriv.rounds.samplers import Draw


def objective(
    loss: LossFn, l2: NonNegative = 0.0
) -> Callable[[Params, Example, jax.Array], jax.Array]:
    """Of heterogeneity: (params, examples [n, ...], mask bool[n]) -> mean loss of real examples + l2 / 2 ||params||^2.

    Raises:
      ValueError: an l2 below 0, or a loss that is not a number, as `fedpriv.mean_grad`.
    """
    one, l2 = without_key(loss), checked("l2", l2, NonNegative)

    def mean(params: Params, examples: Example, mask: jax.Array) -> jax.Array:
        losses = jax.vmap(one, in_axes=(None, 0))(params, examples)
        data = jnp.sum(jnp.where(mask, losses, 0.0)) / jnp.sum(mask)
        return data + l2 / 2 * optax.tree.norm(params, squared=True)

    return mean


def heterogeneity(loss: LossFn, l2: NonNegative = 0.0, minimum: Finite | None = None) -> Measure:
    """A `measure` for `simulate`, over all clients' training data; every client counts equally.

    `objective` is F(x) = mean_i F_i(x); with `minimum`, `log_gap` is log10(F(x) - F*). `dissimilarity` is mean_i ||grad
    F_i||^2 - ||grad F||^2, and `log_dissimilarity` the difference of the natural logarithms of these two terms.

    Args:
      loss: of ONE example.
      l2: weight of the regulariser, as in training.
      minimum: F*, see `minimum_of`.

    Raises:
      ValueError: as `objective`, or a minimum that is not a number.
    """
    minimum = checked("minimum", minimum, Finite | None)
    of_client = objective(loss, l2)

    def measure(state: State, federation: Federation) -> dict[str, jax.Array]:
        clients = federation.num_clients
        everyone = Draw(jnp.arange(clients), jnp.ones(clients, bool))

        def client(i: jax.Array, examples: Example, size: jax.Array, _: Any) -> tuple[Any, tuple]:
            shard = Shard(examples, size)
            value, gradient = jax.value_and_grad(of_client)(state.params, examples, shard.mask)
            g = flatten(gradient)
            return (value, g, jnp.sum(g**2)), ()

        total, _ = over_clients(client, everyone, federation)
        value, mean, squared = jax.tree.map(lambda leaf: leaf / clients, total)
        of_mean = jnp.sum(mean**2)
        measured = {
            "objective": value,
            "dissimilarity": squared - of_mean,
            "log_dissimilarity": jnp.log(squared) - jnp.log(of_mean),
        }
        if minimum is not None:
            measured["log_gap"] = jnp.log10(value - minimum)
        return measured

    return measure


@names_user_code
def minimum_of(
    loss: LossFn, params: Params, federation: Federation, l2: NonNegative = 0.0
) -> float:
    """F*, the minimum of mean_i F_i, by L-BFGS in double precision from `params` to machine tolerance.

    It is the global minimum if F is convex, as for logistic regression.

    Raises:
      ValueError: as `objective`, or parameters that cannot be trained.
    """
    from scipy.optimize import minimize

    one, l2 = without_key(loss), checked("l2", l2, NonNegative)
    check_params(params)
    remedy = "give one such as fp.Federation.from_arrays(...)"
    require(isinstance(federation, Federation), "federation", federation, remedy)
    with jax.enable_x64(True):
        start = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
        vector, unravel = jax.flatten_util.ravel_pytree(start)
        size, rows = federation.client_rows.on_host()
        examples = jax.tree.map(_double, federation.examples)
        # Each record's share of mean_i F_i is 1 / (clients x size of its client).
        shares = np.zeros(jax.tree.leaves(examples)[0].shape[0])
        np.add.at(shares, rows, np.repeat(1 / (len(size) * size), size))

        def f(v: jax.Array, examples: Example, shares: jax.Array) -> jax.Array:
            losses = jax.vmap(one, in_axes=(None, 0))(unravel(v), examples)
            return jnp.dot(shares, losses) + l2 / 2 * jnp.dot(v, v)

        # The data are arguments: XLA would compute for minutes, and say so, with constants of their size.
        data = jax.device_put((examples, shares))
        value_and_grad = jax.jit(jax.value_and_grad(f))
        solution = minimize(
            lambda v: tuple(np.asarray(part, np.float64) for part in value_and_grad(v, *data)),
            np.asarray(vector),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 5000, "maxfun": 10000, "ftol": 1e-16, "gtol": 1e-10},
        )
    return float(solution.fun)


def _double(leaf: jax.Array) -> np.ndarray:
    array = np.asarray(leaf)
    return array.astype(np.float64) if array.dtype == np.float32 else array
