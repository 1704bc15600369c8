"""FedAvg and DP-FedAvg in asynchronous rounds.

FedBuff: J. Nguyen, K. Malik, H. Zhan, A. Yousefpour, M. Rabbat, M. Malek, D. Huba, "Federated Learning with Buffered
Asynchronous Aggregation", AISTATS 2022, arXiv:2106.06639, Algorithm 1.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import optax

from fedpriv.algorithms.fed_avg import local_update
from fedpriv.compression.codecs import UNCODED, Codec
from fedpriv.core.arguments import CountOrZero
from fedpriv.core.types import Key, LossFn, Params
from fedpriv.mechanisms.mechanisms import Mechanism, unprotected
from fedpriv.mechanisms.schedules import Dynamic
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.buffered import buffered, round_given
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.delays import DelayLaw
from fedpriv.rounds.late_samplers import FreeClients, Staleness
from fedpriv.rounds.local_training import Batches, GradFn, Schedule, mean_grad
from fedpriv.rounds.parts import check_parts
from fedpriv.rounds.scheduled_samplers import AnySampler
from fedpriv.rounds.server_step import MEAN, ServedState, server_init, server_update
from fedpriv.rounds.weighting import EQUALLY, Weighting


def buffered_fed_avg(
    loss: LossFn,
    *,
    sampler: AnySampler | FreeClients,
    delay: DelayLaw,
    optimizer: Schedule,
    batches: Batches,
    staleness: Staleness = None,
    most_late: CountOrZero | None = None,
    mechanism: Mechanism | Dynamic = unprotected(),
    grad: GradFn | None = None,
    codec: Codec = UNCODED,
    server: optax.GradientTransformation = MEAN,
    weighting: Weighting = EQUALLY,
) -> Algorithm:
    """FedAvg whose clients answer late; with `fp.gaussian(clip_norm, noise_multiplier)` as its mechanism, DP-FedAvg.

    Args:
      sampler, delay, staleness, most_late: as `fp.buffered`.
      optimizer: as `fp.fed_avg`, of the round in which the client was given its model.
      loss, batches, mechanism, grad, codec, server, weighting: as `fp.fed_avg`.

    Raises:
      ValueError: as `fp.fed_avg` and `fp.buffered`.
    """
    check_parts(optimizer=optimizer, batches=batches, server=server)
    grad = mean_grad(loss) if grad is None else grad
    check_parts(grad=grad)

    def client_update(key: Key, theta: Params, shard: Shard) -> Params:
        given = round_given(shard)
        return local_update(key, theta, shard, given, grad, optimizer, batches)

    def server_step(state: ServedState, mean: Params) -> ServedState:
        return server_update(server, state, jax.tree.map(jnp.negative, mean))

    return buffered(
        client_update,
        server_step,
        sampler=sampler,
        delay=delay,
        staleness=staleness,
        most_late=most_late,
        init=partial(server_init, server),
        mechanism=mechanism,
        codec=codec,
        weighting=weighting,
    )
