"""Federated averaging of clients that train by DP-SGD, so that every record is protected.

DP-SGD: M. Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, arXiv:1607.00133, Algorithm 1; in
federated learning as in Algorithm 2 of M. Noble, A. Bellet, A. Dieuleveut, arXiv:2111.09278 (DP-FedAvg by noisy local
steps), and the baseline of K. Ranaweera et al., "Federated Learning with Differential Privacy: An Utility-Enhanced
Approach". With `optax.adam` or `optax.adagrad` as the clients' optimiser it is DP-Adam and DP-AdaGrad.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import optax

from fedpriv.compression.codecs import UNCODED, Codec
from fedpriv.core.types import Key, Metrics
from fedpriv.mechanisms.mechanisms import ALREADY_PRIVATE
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.local_dp_sgd import LocalSteps, check_steps
from fedpriv.rounds.parts import check_parts
from fedpriv.rounds.scheduled_samplers import AnySampler
from fedpriv.rounds.sent import Sent
from fedpriv.rounds.server_step import MEAN, ServedState, begun, follow
from fedpriv.rounds.weighting import EQUALLY, Weighting


def dp_sgd(
    local: LocalSteps,
    *,
    sampler: AnySampler,
    codec: Codec = UNCODED,
    server: optax.GradientTransformation = MEAN,
    weighting: Weighting = EQUALLY,
) -> Algorithm:
    """Each client of the cohort takes the K noisy steps of `local` (Algorithm 1); the model follows their mean.

    Formal guarantees: of a unit every view sees at most the K noisy gradients of each round in which its client takes
    part, see `LocalSteps`. If there is one step, its message is a fixed multiple of the noisy gradient, parameters have
    32 bits or more, and cohorts are not Poisson, then third parties and servers behind secure aggregation see only the
    cohort's sum, with the noise of all.

    Args:
      local: the clients' steps.
      sampler: draws the cohort of clients.
      codec: codes the clients' messages, which are already noisy. If it rounds them, their sum is not taken to have the
        noise of all.
      server: optimiser that follows the mean update, see `fed_avg`; `optax.sgd(eta_g)` for a global rate.
      weighting: `fp.ByPublicSizes` weights clients by their number of records; by default they count equally.

    Raises:
      ValueError: a field of `local` out of range, or a `server` that is not an optimiser.
    """
    check_steps(local)
    check_parts(sampler=sampler, codec=codec, server=server, weighting=weighting)

    def round(key: Key, state: ServedState, cohort: Cohort) -> tuple[ServedState, Metrics]:
        x = state.params

        def client(key: Key, shard: Shard) -> Sent:
            y, _, drift = local.run(key, x, shard)
            return Sent(jax.tree.map(jnp.subtract, y, x), {"user_drift": drift})

        total, metrics, _ = cohort.sum(
            client, key, mechanism=ALREADY_PRIVATE, codec=codec, weighting=weighting
        )
        mean = jax.tree.map(lambda s: s / cohort.expected_size, total)
        return follow(server, state, mean), metrics

    return Algorithm(partial(begun, server), round, sampler, local.unit)
