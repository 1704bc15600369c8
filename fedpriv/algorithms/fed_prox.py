"""FedProx: clients stay near the model that they were sent.

T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith, "Federated Optimization in Heterogeneous Networks",
MLSys 2020, arXiv:1812.06127, Algorithm 2: a client minimises h(w; w_t) = F_k(w) + mu / 2 ||w - w_t||^2.
"""

from __future__ import annotations

import jax
import optax

from fedpriv.core.arguments import NonNegative, checked
from fedpriv.core.types import Params
from fedpriv.rounds.optimizers import check_optimizer


def proximal(
    optimizer: optax.GradientTransformation, mu: NonNegative, center: Params | None = None
) -> optax.GradientTransformation:
    """The clients' optimiser with a proximal term: it minimises h, so its gradient is that of F_k plus mu (w - w_t).

    Any algorithm whose clients train with it becomes FedProx. w_t is where the optimiser begins, and clients'
    optimisers begin anew in every round. Privacy does not change: updates are clipped as usual, and where records are
    protected, the term depends on noisy gradients alone. Do not use it as `server`: it would pull every model towards
    the first one.

    Args:
      mu: weight of the proximal term; 0 gives `optimizer` itself.
      center: w_t, if it is not where training begins.

    Raises:
      ValueError: mu below 0 or infinite, or no optimiser.
    """
    check_optimizer("optimizer", optimizer)
    mu = checked("mu", mu, NonNegative)
    if mu == 0:
        return optimizer

    def update(gradient: Params, start: Params, params: Params = None) -> tuple[Params, Params]:
        pulled = jax.tree.map(lambda g, w, w_t: g + mu * (w - w_t), gradient, params, start)
        return pulled, start

    def begin(params: Params) -> Params:
        return params if center is None else center

    return optax.chain(optax.GradientTransformation(begin, update), optimizer)
