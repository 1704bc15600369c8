"""Fed-SMP: federated learning with sparsified model perturbation.

R. Hu, Y. Guo, Y. Gong, "Federated Learning with Sparsified Model Perturbation: Improving Accuracy under Client-Level
Differential Privacy", IEEE Transactions on Mobile Computing 2023, arXiv:2202.07178. Equation and line numbers are those
of Algorithm 2 there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedpriv.compression.codecs import UNCODED, Codec
from fedpriv.compression.sparsification import rand_k, top_k
from fedpriv.core.arguments import Count, NonNegative, Norm, Rate, checked
from fedpriv.core.complaints import require
from fedpriv.core.coordinates import gather, scatter
from fedpriv.core.trees import dimension, flatten
from fedpriv.core.types import Key, LossFn, Metrics, Params
from fedpriv.data.federation import Federation
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
    Schedule,
    mean_grad,
    optimizer_of,
    train_locally,
)
from fedpriv.rounds.parts import check_parts
from fedpriv.rounds.samplers import Sampler
from fedpriv.rounds.scheduled_samplers import AnySampler
from fedpriv.rounds.server_step import MEAN, server_init, server_update
from fedpriv.rounds.weighting import EQUALLY, Weighting


class SparseState(NamedTuple):
    """State of Fed-SMP: model, what the server's optimiser remembers, and the mask.

    Attributes:
      params: theta.
      round: i32[], rounds done.
      server: the optimiser's state.
      kept: i32[k], the coordinates of the last round; zeros before the first.
    """

    params: Params
    round: jax.Array
    server: optax.OptState
    kept: jax.Array


class Sparsifier(NamedTuple):
    """How the server chooses the coordinates of a round, the same for the whole cohort.

    Attributes:
      kept: (d) -> k, the number of coordinates.
      select: (key, theta, cohort, grad, optimizer) -> i32[k], sorted.
      scale: (d, k) -> factor on the kept coordinates.
      needs_public: whether the federation must have public examples.
      period: rounds for which a choice stays; None is the whole run.
    """

    kept: Callable[[int], int]
    select: Callable[..., jax.Array]
    scale: Callable[[int, int], float]
    needs_public: bool
    period: int | None


def select_rand_k(p: Rate, *, unbiased: bool = True, period: Count | None = 1) -> Sparsifier:
    """k = round(p d) uniformly random coordinates, scaled by d / k to keep the mean unbiased (eq. 5).

    Args:
      p: k / d.
      unbiased: False omits the factor d / k.
      period: number of rounds for which the choice stays, drawn with the key of the first; 1 as in the paper, None for
        the whole run. For correlated noise see `mechanism` of `fed_avg_sparse`.

    Raises:
      ValueError: p outside (0, 1], or a period below 1.
    """
    p = checked("p", p, Rate)
    unbiased = checked("unbiased", unbiased, bool)
    period = checked("period", period, Count | None)

    def select(key: Key, theta: Params, *_: object) -> jax.Array:
        d = dimension(theta)
        return rand_k(key, d, _kept(p, d))  # line 16

    def scale(d: int, k: int) -> float:
        return d / k if unbiased else 1.0

    return Sparsifier(partial(_kept, p), select, scale, False, period)


def select_top_k(p: Rate, batches: Batches, *, period: Count | None = 1) -> Sparsifier:
    """The k = round(p d) coordinates that move most in training on the public examples (eq. 6).

    Args:
      p: k / d.
      batches: batches of the public training; the paper's are `epochs(E, B)` with the clients' E and B, reading "the
        same local update period" in epochs.
      period: as `select_rand_k`; the public training takes place only in the first of these rounds.

    Raises:
      ValueError: p outside (0, 1], no batches, or a period below 1.
    """
    p = checked("p", p, Rate)
    period = checked("period", period, Count | None)
    check_parts(batches=batches)

    def select(
        key: Key,
        theta: Params,
        cohort: Cohort,
        grad: GradFn,
        optimizer: optax.GradientTransformation,
    ) -> jax.Array:
        theta_p = train_locally(
            key, theta, cohort.public, grad=grad, optimizer=optimizer, batches=batches
        )
        delta_p = flatten(jax.tree.map(jnp.subtract, theta, theta_p))  # line 23
        return top_k(jnp.abs(delta_p), _kept(p, delta_p.size))  # line 24

    return Sparsifier(partial(_kept, p), select, lambda d, k: 1.0, True, period)


def _kept(p: float, d: int) -> int:
    k = round(p * d)
    if not 1 <= k <= d:
        raise ValueError(
            f"p: {p} keeps k = {k} of d = {d} coordinates; choose p so that 1 <= k <= d"
        )
    return k


def fed_avg_sparse(
    loss: LossFn,
    *,
    sampler: AnySampler,
    optimizer: Schedule,
    batches: Batches,
    sparsifier: Sparsifier,
    mechanism: Mechanism | Dynamic = unprotected(),
    codec: Codec = UNCODED,
    server: optax.GradientTransformation = MEAN,
    weighting: Weighting = EQUALLY,
) -> Algorithm:
    """FedAvg-rand_k and FedAvg-top_k, the paper's baselines (Section 6); with a `mechanism`, Fed-SMP.

    Args:
      sparsifier: `select_rand_k(p)` or `select_top_k(p, public_batches)`.
      codec: codes the kept coordinates, see `fed_avg`.
      server: as `fed_avg`; momentum also moves coordinates that a round did not keep.
      mechanism: as `fed_avg`; integers are the k kept values, rotated and padded. Noise of `correlated` goes by the
        place among the k kept values. Its certificate bounds these values, so it holds for any mask. But when the mask
        changes, earlier noise is taken back on the wrong coordinates, and noise of different periods adds up. Use the
        period None, or many times the bands; with a new mask in every round independent noise is smaller.
      loss, sampler, optimizer, batches, weighting: as `fed_avg`.

    Raises:
      ValueError: as `fed_avg`; at `init`, k = 0 or no public examples for top_k.
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
    fits = isinstance(sparsifier, Sparsifier)
    require(fits, "sparsifier", sparsifier, "give one such as fp.papers.select_rand_k(0.1)")
    grad = mean_grad(loss)

    def init(params: Params, federation: Federation) -> SparseState:
        k = sparsifier.kept(dimension(params))
        if sparsifier.needs_public and federation.public.shape[-1] == 0:
            raise ValueError("public: top_k needs public examples, but the federation has none")
        return SparseState(*server_init(server, params, federation), jnp.zeros(k, jnp.int32))

    def round(key: Key, state: SparseState, cohort: Cohort) -> tuple[SparseState, Metrics]:
        theta, t = state.params, state.round
        select_key, local_key = jax.random.split(key)

        def select() -> jax.Array:
            return sparsifier.select(select_key, theta, cohort, grad, optimizer_of(optimizer, t))

        kept = _for_a_period(sparsifier.period, t, select, state.kept)  # lines 4-8
        scale = sparsifier.scale(dimension(theta), kept.size)

        def client_update(key: Key, shard: Shard) -> jax.Array:
            theta_i = train_locally(
                key, theta, shard, grad=grad, optimizer=optimizer_of(optimizer, t), batches=batches
            )  # lines 26-30
            delta = jax.tree.map(jnp.subtract, theta, theta_i)
            return scale * gather(delta, kept)  # lines 33-37

        # Lines 38 and 39: the shares N(0, C^2 sigma^2 / r) on the kept coordinates add up to N(0, C^2 sigma^2).
        total, metrics, _ = cohort.sum(
            client_update, local_key, mechanism=mechanism, codec=codec, weighting=weighting
        )
        step = scatter(total / cohort.expected_size, kept, theta)
        after = server_update(server, state, jax.tree.map(jnp.negative, step))  # line 13
        return after._replace(kept=kept), metrics

    return Algorithm(init, round, sampler)


def _for_a_period(
    period: int | None, t: jax.Array, select: Callable[[], jax.Array], before: jax.Array
) -> jax.Array:
    """i32[k]: what is selected in the first of every `period` rounds, and what was kept `before` in the others."""
    if period == 1:
        return select()
    begins = t == 0 if period is None else t % period == 0
    return lax.cond(begins, select, lambda: before)


def fed_smp(
    loss: LossFn,
    *,
    sampler: AnySampler,
    optimizer: Schedule,
    batches: Batches,
    sparsifier: Sparsifier,
    clip_norm: Norm,
    noise_multiplier: NonNegative,
    codec: Codec = UNCODED,
    server: optax.GradientTransformation = MEAN,
    weighting: Weighting = EQUALLY,
) -> Algorithm:
    """Fed-SMP with rand_k or top_k (Algorithm 2): sparsify, then clip, then perturb the kept coordinates.

    As integers it is `fp.papers.fed_avg_sparse(..., mechanism=fp.skellam(C, sigma, bits=16))`; of that the paper claims
    nothing.

    Args:
      sparsifier: `select_rand_k(p)` or `select_top_k(p, public_batches)`.
      clip_norm: C, bound on the l2 norm of a client's sparsified update.
      noise_multiplier: sigma; the noise of the released mean has standard deviation C sigma / r on each kept
        coordinate and is exactly 0 elsewhere.
      codec: codes the kept coordinates, see `fed_avg`; `qsgd(8)` for 8 bits each.
      server, weighting: as `fed_avg_sparse`.

    Raises:
      ValueError: C <= 0 or sigma < 0, or noise without a finite C; at `init`, k = 0 or no public examples for top_k.
    """
    mechanism = gaussian(clip_norm, noise_multiplier)
    sparse = fed_avg_sparse(
        loss,
        sampler=sampler,
        optimizer=optimizer,
        batches=batches,
        sparsifier=sparsifier,
        mechanism=mechanism,
        codec=codec,
        server=server,
        weighting=weighting,
    )

    def claim(drawn: Sampler) -> Callable[[int, float], Claim]:
        return partial(fed_smp_claim, mechanism.certified_multiplier, drawn.accounting)

    return sparse._replace(claim=claim_if_sampled(sampler, claim))
