"""Federated averaging of messages that clients perturb themselves: local differential privacy.

FedAvg + LDP: K. Wei et al., "Federated Learning with Differential Privacy: Algorithms and Performance Analysis", IEEE
TIFS 2020, arXiv:1911.00222, with noise on the uploaded model; here on the clipped update, which is the model up to what
everyone knows.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import optax

from fedpriv.compression.codecs import UNCODED, Codec
from fedpriv.core.complaints import require
from fedpriv.core.types import Key, LossFn, Metrics, Params
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.local_training import Batches, Schedule, mean_grad, optimizer_of, train_locally
from fedpriv.rounds.parts import check_parts
from fedpriv.rounds.scheduled_samplers import AnySampler
from fedpriv.rounds.server_step import MEAN, ServedState, server_init, server_update


def ldp_fed_avg(
    loss: LossFn,
    *,
    sampler: AnySampler,
    mechanism: Mechanism,
    optimizer: Schedule,
    batches: Batches,
    codec: Codec = UNCODED,
    server: optax.GradientTransformation = MEAN,
) -> Algorithm:
    """FedAvg + LDP (Wei et al. 2020): each client clips its update, adds all of `mechanism`'s noise, and sends it.

    Formal guarantees: a message is `mechanism` on one contribution, of its multiplier, whoever sees it; coding it is
    post-processing of that message. A view of the sum alone sees sqrt(M) times as much Gaussian noise, of M clients,
    where the sum is not one of messages that were rounded. Of Poisson cohorts no secrecy is used: a client that stays
    away takes its noise along. Clients count equally, because a weight would show through a client's own noise.

    Args:
      mechanism: such as `laplace(C, b / C)`, (C / b)-private per message for one client zeroed out, or `gaussian`.
      codec: codes the noisy messages.
      optimizer, batches, server: as `fed_avg`.

    Raises:
      ValueError: a mechanism whose noise changes over the rounds.
    """
    check_parts(sampler=sampler, optimizer=optimizer, batches=batches, codec=codec, server=server)
    remedy = "give one whose noise is the same in all rounds, such as fp.laplace(1.0, 2.0)"
    require(isinstance(mechanism, Mechanism), "mechanism", mechanism, remedy)
    grad = mean_grad(loss)

    def round(key: Key, state: ServedState, cohort: Cohort) -> tuple[ServedState, Metrics]:
        theta, t = state.params, state.round

        def client_update(key: Key, shard: Shard) -> Params:
            theta_i = train_locally(
                key, theta, shard, grad=grad, optimizer=optimizer_of(optimizer, t), batches=batches
            )
            return jax.tree.map(jnp.subtract, theta, theta_i)

        total, metrics, _ = cohort.sum(
            client_update, key, mechanism=mechanism, codec=codec, adder="own"
        )
        mean = jax.tree.map(lambda s: -s / cohort.expected_size, total)
        return server_update(server, state, mean), metrics

    return Algorithm(partial(server_init, server), round, sampler)
