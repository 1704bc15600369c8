"""Federated averaging of clients that train by DP-SGD, so that every record is protected.

DP-SGD: M. Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, arXiv:1607.00133, Algorithm 1; in
federated learning as in Algorithm 2 of M. Noble, A. Bellet, A. Dieuleveut, arXiv:2111.09278 (DP-FedAvg by noisy local
steps), and the baseline of K. Ranaweera et al., "Federated Learning with Differential Privacy: An Utility-Enhanced
Approach".
With `optax.adam` or `optax.adagrad` as the clients' optimiser it is DP-Adam and DP-AdaGrad.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fedpriv.algorithms._shared import measured, starting_from
from fedpriv.codecs import UNCODED, Codec
from fedpriv.cohort import Sampler, Shard, for_each_client
from fedpriv.federation import Federation
from fedpriv.private_steps import LocalSteps
from fedpriv.types import Algorithm, Key, Metrics, ModelState
from fedpriv.vectors import dimension


def dp_sgd(
    local: LocalSteps, *, sampler: Sampler, global_rate: float = 1.0, codec: Codec = UNCODED
) -> Algorithm:
    """Each client of the cohort takes the K noisy steps of `local` (Algorithm 1); the model follows their mean.

    Formal guarantees: every view sees no more of a unit than the K noisy gradients of each round that its client takes
    part in, see `LocalSteps`; for one `linear` step on cohorts that are not Poisson, third parties and servers behind
    secure aggregation see a record in the cohort's sum only, with the noise of all.

    Args:
      local: the clients' steps.
      sampler: draws the cohort of clients.
      global_rate: what their mean update is multiplied by.
      codec: of the clients' messages, which are noisy already; where they are rounded, a sum of them is not taken to
        have the noise of all.

    Raises:
      ValueError: what `local` holds is out of range; at `init`, clients of another size.
    """
    local.check()

    def round(key: Key, state: ModelState, federation: Federation) -> tuple[ModelState, Metrics]:
        x, t = state
        cohort_key, local_key = jax.random.split(key)
        cohort = sampler.draw(cohort_key)

        def client(key: Key, shard: Shard) -> tuple:
            y, _, drift = local.run(key, x, shard, t=t)
            coded = codec.code(key, jax.tree.map(jnp.subtract, y, x))
            return coded.message, {"user_drift": drift} | coded.diagnostics

        total, seen = for_each_client(client, local_key, cohort, federation)
        x = jax.tree.map(
            lambda x, s: (x + global_rate * (s / sampler.expected_size)).astype(x.dtype), x, total
        )
        return ModelState(x, t + 1), measured(cohort, codec.wire(dimension(x)), seen)

    summed = local.steps == 1 and local.linear and local.unit == "record" and not codec.lossy
    releases = local.releases(sampler, summed=summed)
    return Algorithm(starting_from(sampler, local.records), round, releases)
