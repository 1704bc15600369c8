"""FedAvg, FedSGD and DP-FedAvg.

FedAvg, FedSGD: H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas, "Communication-Efficient Learning of
Deep Networks from Decentralized Data", AISTATS 2017, arXiv:1602.05629.
DP-FedAvg: H. B. McMahan, D. Ramage, K. Talwar, L. Zhang, "Learning Differentially Private Recurrent Language Models",
ICLR 2018, arXiv:1710.06963; here as Algorithm 1 of R. Hu, Y. Guo, Y. Gong, "Federated Learning with Sparsified Model
Perturbation", arXiv:2202.07178, equation numbers from there.

Clients count equally, whatever their size (eq. 2 and 4 of Fed-SMP), but for a `Weighting`, which bounds their weights.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import optax

from fedpriv.compression.codecs import UNCODED, Codec
from fedpriv.core.arguments import NonNegative, Norm, checked
from fedpriv.core.types import Key, LossFn, Metrics, Params
from fedpriv.mechanisms.mechanisms import Mechanism, gaussian, unprotected
from fedpriv.mechanisms.schedules import Dynamic
from fedpriv.privacy import Claim
from fedpriv.privacy.claims import fed_smp_claim
from fedpriv.rounds.algorithm import Algorithm, claim_if_sampled
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.local_training import (
    Batches,
    GradFn,
    LearningRate,
    Schedule,
    full_batch,
    mean_grad,
    optimizer_of,
    train_locally,
)
from fedpriv.rounds.parts import check_parts
from fedpriv.rounds.samplers import Sampler
from fedpriv.rounds.scheduled_samplers import AnySampler
from fedpriv.rounds.server_step import MEAN, ServedState, server_init, server_update
from fedpriv.rounds.weighting import EQUALLY, Weighting


def fed_avg(
    loss: LossFn,
    *,
    sampler: AnySampler,
    optimizer: Schedule,
    batches: Batches,
    mechanism: Mechanism | Dynamic = unprotected(),
    grad: GradFn | None = None,
    codec: Codec = UNCODED,
    server: optax.GradientTransformation = MEAN,
    weighting: Weighting = EQUALLY,
) -> Algorithm:
    """FederatedAveraging (McMahan et al. 2017, Algorithm 1); a `mechanism` bounds and perturbs the updates.

    Args:
      loss: loss of one example.
      sampler: draws the cohort.
      optimizer: round -> the clients' optimiser, such as `lambda t: optax.sgd(0.1)`; its state begins anew in every
        round.
      batches: a client's batches.
      mechanism: bounds a client's update and perturbs the sum; by default neither.
      grad: the gradient that clients follow; by default, that of the mean loss.
      codec: codes the clients' messages, which are clipped after decoding. With a lossy codec the server adds the
        noise.
      server: optimiser whose gradient is the negative mean update: any of optax that follows gradients alone, such as
        `optax.sgd(1.0, momentum=0.9)`, or `fedpriv.fed_opt.adam(0.01)`; by default SGD with rate 1.
      weighting: weights of the clients by the number of their examples; by default they count equally.

    Raises:
      ValueError: an `optimizer` that is not a function of the round, a `server` that is not an optimiser, either of
        which asks for more than gradients or trains another model than the one to evaluate, or an unknown weighting.
    """
    check_parts(
        sampler=sampler,
        optimizer=optimizer,
        batches=batches,
        mechanism=mechanism,
        codec=codec,
        server=server,
        weighting=weighting,
    )
    grad = mean_grad(loss) if grad is None else grad
    check_parts(grad=grad)

    def round(key: Key, state: ServedState, cohort: Cohort) -> tuple[ServedState, Metrics]:
        theta, t = state.params, state.round

        def client_update(key: Key, shard: Shard) -> Params:
            return local_update(key, theta, shard, t, grad, optimizer, batches)

        # Lines 17 and 18: the clients' shares N(0, C^2 sigma^2 / r) add up to N(0, C^2 sigma^2).
        total, metrics, _ = cohort.sum(
            client_update, key, mechanism=mechanism, codec=codec, weighting=weighting
        )
        mean = jax.tree.map(lambda s: -s / cohort.expected_size, total)
        return server_update(server, state, mean), metrics  # (4)

    return Algorithm(partial(server_init, server), round, sampler)


def local_update(
    key: Key,
    theta: Params,
    shard: Shard,
    t: jax.Array,
    grad: GradFn,
    optimizer: Schedule,
    batches: Batches,
) -> Params:
    """How far a client's local training moves the model theta of round t, negated."""
    theta_i = train_locally(
        key, theta, shard, grad=grad, optimizer=optimizer_of(optimizer, t), batches=batches
    )  # (3)
    return jax.tree.map(jnp.subtract, theta, theta_i)  # Alg. 1, line 16


def fed_sgd(
    loss: LossFn,
    *,
    sampler: AnySampler,
    learning_rate: LearningRate,
    server: optax.GradientTransformation = MEAN,
    weighting: Weighting = EQUALLY,
) -> Algorithm:
    """FedSGD (McMahan et al. 2017, Section 2): the server takes one step along the mean of the clients' full gradients.

    Args:
      learning_rate: of that step, or round -> rate.
      loss, sampler, server, weighting: as `fed_avg`.

    Raises:
      ValueError: as `fed_avg`.
    """
    learning_rate = checked("learning_rate", learning_rate, LearningRate)
    rate = learning_rate if callable(learning_rate) else lambda _: learning_rate
    return fed_avg(
        loss,
        sampler=sampler,
        optimizer=lambda t: optax.sgd(rate(t)),
        batches=full_batch(),
        server=server,
        weighting=weighting,
    )


def dp_fed_avg(
    loss: LossFn,
    *,
    sampler: AnySampler,
    optimizer: Schedule,
    batches: Batches,
    clip_norm: Norm,
    noise_multiplier: NonNegative,
    codec: Codec = UNCODED,
    server: optax.GradientTransformation = MEAN,
    weighting: Weighting = EQUALLY,
) -> Algorithm:
    """DP-FedAvg with client-level privacy (Fed-SMP, Algorithm 1).

    Args:
      clip_norm: C, bound on the l2 norm of a client's update.
      noise_multiplier: sigma; the noise of the released mean has standard deviation C sigma / r per coordinate.
      codec, server, weighting: as `fed_avg`.

    Raises:
      ValueError: C <= 0 or sigma < 0, or noise without a finite C.
    """
    mechanism = gaussian(clip_norm, noise_multiplier)
    algorithm = fed_avg(
        loss,
        sampler=sampler,
        optimizer=optimizer,
        batches=batches,
        mechanism=mechanism,
        codec=codec,
        server=server,
        weighting=weighting,
    )

    def claim(drawn: Sampler) -> Callable[[int, float], Claim]:
        return partial(fed_smp_claim, mechanism.certified_multiplier, drawn.accounting)

    return algorithm._replace(claim=claim_if_sampled(sampler, claim))
