"""A clip norm from public data, fixed from then on.

K. Ranaweera et al., "Federated Learning with Differential Privacy: An Utility-Enhanced Approach": the median of the
norms on a public proxy data set, computed in the initial rounds only. It costs no privacy as long as the examples are
public; the median of private norms is `MedianClipping`, which is not private.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedpriv.core.arguments import Count, checked
from fedpriv.core.array_arguments import check_leaves
from fedpriv.core.complaints import require
from fedpriv.core.types import Example, Key, LossFn, Params
from fedpriv.core.user_code import names_user_code
from fedpriv.data.federation import Federation
from fedpriv.mechanisms.clipping import Clipping, flat, over_tensors
from fedpriv.mechanisms.per_example import Gradients
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.local_training import Batches, mean_grad, train_locally
from fedpriv.rounds.optimizers import check_optimizer
from fedpriv.rounds.over_clients import over_clients
from fedpriv.rounds.parts import check_parts
from fedpriv.rounds.samplers import Answer, everyone


@names_user_code
def median_norm(
    gradients: Gradients,
    params: Params,
    examples: Example,
    clipping: Clipping | None = None,
    *,
    chunk: Count = 64,
) -> jax.Array:
    """f32[]: the median over public examples of the norm that `clipping` uses; NaN if a norm is NaN.

    Args:
      gradients: gradients of single records, as in `LocalSteps`.
      params: where the gradients are taken, usually the initial model.
      examples: leaves [n, ...]; in a federation, `examples` at the rows `public`.
      clipping: by default the l2 norm of the whole gradient.
      chunk: number of examples side by side; memory grows with it, not with n.

    Raises:
      ValueError: no example, or a chunk below 1.
    """
    check_parts(gradients=gradients, clipping=flat() if clipping is None else clipping)
    chunk = checked("chunk", chunk, Count)
    check_leaves("examples", examples)
    leaves = jax.tree.leaves(examples)
    count = jnp.shape(leaves[0])[0] if leaves and jnp.ndim(leaves[0]) else 0
    require(count > 0, "examples", examples, "give public examples, leaves [n, ...]")
    examples = jax.tree.map(jnp.asarray, examples)

    def norms(rows: jax.Array) -> jax.Array:
        batch = gradients(params, jax.tree.map(lambda leaf: leaf[rows], examples))
        if clipping is None or (clipping.scales and not clipping.norms):
            return over_tensors(batch.norms)
        return jax.vmap(lambda g: clipping.clip(g, math.inf)[1])(batch.each())

    width = min(chunk, count)
    rows = jnp.arange(-(-count // width) * width).reshape(-1, width)
    return jnp.median(lax.map(norms, jnp.minimum(rows, count - 1)).reshape(-1)[:count])


@names_user_code
def median_update_norm(
    key: Key,
    loss: LossFn,
    params: Params,
    proxies: Federation,
    *,
    optimizer: optax.GradientTransformation,
    batches: Batches,
    clipping: Clipping | None = None,
) -> jax.Array:
    """f32[]: the median norm of updates trained on public pseudo-clients; NaN if a norm is NaN.

    Args:
      loss: of one example.
      proxies: public examples divided into clients of the size of the federation's, for whose updates they stand.
      optimizer, batches: the clients' own.
      clipping: whose norm, as in `median_norm`.

    Raises:
      ValueError: an argument of another kind.
    """
    check_optimizer("optimizer", optimizer)
    check_parts(batches=batches, clipping=flat() if clipping is None else clipping)
    require(isinstance(proxies, Federation), "proxies", proxies, "give a federation of them")
    clip = (clipping or flat()).clip
    grad = mean_grad(loss)

    def norm(i: jax.Array, examples: Example, size: jax.Array, _: Answer) -> tuple:
        own_key, shard = jax.random.fold_in(key, i), Shard(examples, size)
        trained = train_locally(
            own_key, params, shard, grad=grad, optimizer=optimizer, batches=batches
        )
        return (), clip(jax.tree.map(jnp.subtract, params, trained), math.inf)[1]

    drawn = everyone(proxies.num_clients).draw(key)
    return jnp.median(over_clients(norm, drawn, proxies)[1])
