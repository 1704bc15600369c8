"""Federated averaging of clients that train by DP-SGD, so that every record is protected.

DP-SGD: M. Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, arXiv:1607.00133, Algorithm 1; in
federated learning as in Algorithm 2 of M. Noble, A. Bellet, A. Dieuleveut, arXiv:2111.09278 (DP-FedAvg by noisy local
steps), and the baseline of K. Ranaweera et al., "Federated Learning with Differential Privacy: An Utility-Enhanced
Approach". With `optax.adam` or `optax.adagrad` as the clients' optimiser it is DP-Adam and DP-AdaGrad.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import optax

from fedpriv.algorithms.dp_scaffold import claimed
from fedpriv.compression.codecs import UNCODED, Codec
from fedpriv.core.arguments import checked
from fedpriv.core.complaints import require
from fedpriv.core.types import Key, Metrics
from fedpriv.mechanisms.mechanisms import ALREADY_PRIVATE
from fedpriv.rounds.algorithm import Algorithm, claim_if_sampled, unclaimed
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.local_dp_sgd import LocalSteps, check_steps
from fedpriv.rounds.local_training import optimizer_of
from fedpriv.rounds.optimizers import ready
from fedpriv.rounds.parts import check_parts
from fedpriv.rounds.scheduled_samplers import AnySampler
from fedpriv.rounds.sent import Sent
from fedpriv.rounds.server_step import MEAN, ServedState, server_init, server_update
from fedpriv.rounds.weighting import EQUALLY, Weighting


def dp_sgd(
    local: LocalSteps,
    *,
    sampler: AnySampler,
    codec: Codec = UNCODED,
    server: optax.GradientTransformation = MEAN,
    weighting: Weighting = EQUALLY,
    together: bool = False,
    claim: Literal["dp_scaffold"] | None = None,
) -> Algorithm:
    """Each client of the cohort takes the K noisy steps of `local` (Algorithm 1); the model follows their mean.

    Formal guarantees: of a unit every view sees at most the K noisy gradients of each round in which its client takes
    part, see `LocalSteps`. With `together` third parties and servers behind secure aggregation see only the mean of the
    cohort's noisy gradients, see `Cohort.private_mean`.

    Args:
      local: the clients' steps.
      sampler: draws the cohort of clients.
      codec: codes the clients' messages, which are already noisy.
      server: optimiser that follows the mean update, see `fed_avg`; `optax.sgd(eta_g)` for a global rate.
      weighting: `fp.ByPublicSizes` weights clients by their number of records; by default they count equally.
      together: the cohort takes one step as a whole: the optimiser of `local`, then `server`, follows the mean of the
        clients' noisy gradients. For one step without codec, weighting and stragglers.
      claim: "dp_scaffold" for the epsilon that DP-SCAFFOLD's paper has for DP-FedAvg, beside the certificate; else the
        algorithm has no claim.

    Raises:
      ValueError: a field of `local` out of range, a `server` that is not an optimiser, or `together` with more than one
        step, a codec, a weighting or stragglers.
    """
    check_steps(local)
    check_parts(sampler=sampler, codec=codec, server=server, weighting=weighting)
    of_paper = checked("claim", claim, Literal["dp_scaffold"] | None) is not None
    epsilon = claim_if_sampled(sampler, partial(claimed, local)) if of_paper else unclaimed
    if checked("together", together, bool):
        one_step = local.steps == 1 and local.stragglers == 0 and codec is UNCODED
        remedy = "leave it out, or take one step, without stragglers, codec and weighting"
        require(one_step and weighting == EQUALLY, "together", together, remedy)
        return _one_step_of_all(local, sampler, server)._replace(claim=epsilon)

    def round(key: Key, state: ServedState, cohort: Cohort) -> tuple[ServedState, Metrics]:
        x = state.params

        def client(key: Key, shard: Shard) -> Sent:
            y, _, drift = local.run(key, x, shard)
            return Sent(jax.tree.map(jnp.subtract, y, x), {"user_drift": drift})

        total, metrics, _ = cohort.sum(
            client, key, mechanism=ALREADY_PRIVATE, codec=codec, weighting=weighting
        )
        mean = jax.tree.map(lambda s: s / cohort.expected_size, total)
        return server_update(server, state, mean), metrics

    return Algorithm(partial(server_init, server), round, sampler, local.unit, epsilon)


def _one_step_of_all(
    local: LocalSteps, sampler: AnySampler, server: optax.GradientTransformation
) -> Algorithm:
    def round(key: Key, state: ServedState, cohort: Cohort) -> tuple[ServedState, Metrics]:
        x = state.params
        gradient, metrics = cohort.private_mean(
            local.gradients, x, records=local.records, mechanism=local.mechanism
        )
        optimizer = ready("optimizer", optimizer_of(local.optimizer, state.round))
        update, _ = optimizer.update(gradient, optimizer.init(x), x)
        return server_update(server, state, update), metrics

    return Algorithm(partial(server_init, server), round, sampler, local.unit)
