"""DP-FedAvg whose clip norm follows a quantile of the clients' update norms, counted privately.

G. Andrew, O. Thakkar, B. McMahan, S. Ramaswamy, "Differentially Private Learning with Adaptive Clipping", NeurIPS 2021,
arXiv:1905.03871: Algorithm 1 and Theorem 1. The paper's server, of rate eta_s and momentum beta, is
`server=optax.sgd(eta_s, momentum=beta)`; the default is plain averaging.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from fedpriv.compression.codecs import UNCODED, Codec, Coded, Wire
from fedpriv.core.arguments import NonNegative, Probability, Range, checked
from fedpriv.core.complaints import require
from fedpriv.core.provenance import constructed, sealed
from fedpriv.core.types import Key, LossFn, Metrics, Params
from fedpriv.data.federation import Federation
from fedpriv.mechanisms.mechanisms import Mechanism, gaussian, joint
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.client_shard import Shard
from fedpriv.rounds.cohort import Cohort
from fedpriv.rounds.local_training import Batches, Schedule, mean_grad, optimizer_of, train_locally
from fedpriv.rounds.parts import check_parts
from fedpriv.rounds.scheduled_samplers import AnySampler
from fedpriv.rounds.server_step import MEAN, server_init, server_update

_LEAST, _MOST = 1e-8, 1e8  # of the clip norm: beyond, float32 squares of what it bounds lose it
FirstNorm: TypeAlias = Annotated[
    float, Range(f"one from {_LEAST:g} to {_MOST:g}; rescale the loss or the rate", _LEAST, _MOST)
]


class AdaptiveState(NamedTuple):
    """Model and clip norm of adaptive clipping.

    Attributes:
      params: theta.
      round: i32[], rounds done.
      server: the server's optimiser's.
      clip_norm: f32[], C of the next round, in [1e-8, 1e8].
    """

    params: Params
    round: jax.Array
    server: optax.OptState
    clip_norm: jax.Array


def adaptive_fed_avg(
    loss: LossFn,
    *,
    sampler: AnySampler,
    optimizer: Schedule,
    batches: Batches,
    quantile: Probability,
    clip_norm: FirstNorm,
    noise_multiplier: NonNegative,
    count_noise: NonNegative | None = None,
    clip_rate: NonNegative = 0.2,
    mechanism: Mechanism | None = None,
    codec: Codec = UNCODED,
    server: optax.GradientTransformation = MEAN,
) -> Algorithm:
    """DP-FedAvg with adaptive clipping (Algorithm 1): C <- C exp(-eta_C (b - gamma)), b the noisy fraction below C.

    Formal guarantees: a client adds its update clipped at C, under noise z_Delta C, and its bit minus 1/2, under noise
    sigma_b; the two are one release of multiplier (z_Delta^-2 + (2 sigma_b)^-2)^-1/2 = z (Theorem 1), or of what the
    reach of another `mechanism` makes of it. C is computed from what was released before. An update whose norm is NaN
    or infinite is 0 and counts as not below. Clients count equally, because b is a fraction of clients.

    Args:
      quantile: gamma in (0, 1), the fraction of updates that C should leave unclipped.
      clip_norm: C of the first round; it stays within [1e-8, 1e8].
      noise_multiplier: z of both parts together; 0 adds no noise to the updates and certifies nothing.
      count_noise: sigma_b, standard deviation of the noise on the count; by default 1/20 of the cohort, as in the
        paper.
      clip_rate: eta_C.
      mechanism: how updates are clipped and perturbed at (C, z_Delta), which replace its own clip norm and noise; by
        default `gaussian`. The quantile refers to the norms that its `clip` reports.
      loss, sampler, optimizer, batches, codec, server: as `fed_avg`.

    Raises:
      ValueError: an argument out of range, 2 sigma_b <= z, or a mechanism whose clip norm cannot change.
    """
    check_parts(sampler=sampler, optimizer=optimizer, batches=batches, codec=codec, server=server)
    quantile = checked("quantile", quantile, Probability)
    clip_norm = checked("clip_norm", clip_norm, FirstNorm)
    noise_multiplier = checked("noise_multiplier", noise_multiplier, NonNegative)
    count_noise = checked("count_noise", count_noise, NonNegative | None)
    clip_rate = checked("clip_rate", clip_rate, NonNegative)
    if count_noise is None:
        count_noise = sampler.expected_size / 20
    hidden = noise_multiplier == 0 or 2 * count_noise > noise_multiplier
    remedy = f"give more than half the noise_multiplier, {noise_multiplier / 2:g}, to hide a bit"
    require(hidden, "count_noise", count_noise, remedy)
    base = gaussian(clip_norm, noise_multiplier) if mechanism is None else mechanism
    at = getattr(base, "at", None)
    remedy = "give one whose clip norm can be changed, of `mechanism` or `gaussian`"
    require(callable(at), "mechanism", mechanism, remedy)
    assert at is not None
    z_delta = update_noise(noise_multiplier, count_noise)
    grad = mean_grad(loss)

    counted = gaussian(0.5, 2 * count_noise)  # bits minus 1/2, under noise of deviation sigma_b
    # Shares of the noise travel with messages that are not coded.
    coded = _with_one_more(codec, 32 if noise_multiplier > 0 and not codec.lossy else 1)

    def init(params: Params, federation: Federation) -> AdaptiveState:
        return AdaptiveState(*server_init(server, params, federation), jnp.float32(clip_norm))

    def round(key: Key, state: AdaptiveState, cohort: Cohort) -> tuple[AdaptiveState, Metrics]:
        theta, t, _, bound = state
        updates = at(bound, z_delta)

        def client_update(key: Key, shard: Shard) -> tuple:
            theta_i = train_locally(
                key, theta, shard, grad=grad, optimizer=optimizer_of(optimizer, t), batches=batches
            )
            delta = jax.tree.map(jnp.subtract, theta, theta_i)
            norm = updates.clip(delta)[1]
            return delta, jnp.where(norm <= bound, 0.5, -0.5)  # NaN is not below

        (total, count), metrics, _ = cohort.sum(
            client_update, key, mechanism=joint(updates, counted), codec=coded
        )
        mean = jax.tree.map(lambda s: -s / cohort.expected_size, total)
        error = count / cohort.expected_size + 0.5 - quantile
        moved = jnp.clip(bound * jnp.exp(-clip_rate * error), _LEAST, _MOST)
        metrics["diagnostics"]["clip_norm"] = bound
        state = state._replace(clip_norm=moved.astype(bound.dtype))
        return server_update(server, state, mean), metrics

    return Algorithm(init, round, sampler)


def _with_one_more(codec: Codec, bits: int) -> Codec:
    """`codec` for the first part of a message whose second part is one value of so many bits."""

    def code(key: Key, message: tuple) -> Coded:
        update, bit = message
        coded = codec.code(key, update)
        return Coded((coded.message, bit), coded.diagnostics)

    def wire(d: int) -> Wire:
        of_update = codec.wire(d - 1)
        return of_update._replace(overhead=of_update.overhead + bits)

    both = Codec(code, wire, codec.lossy)
    return sealed(both) if constructed(codec) else both


def update_noise(noise_multiplier: float, count_noise: float) -> float:
    """Of adaptive clipping: z_Delta = (z^-2 - (2 sigma_b)^-2)^-1/2 (Theorem 1), for z < 2 sigma_b; 0 for z = 0."""
    if noise_multiplier == 0:
        return 0.0
    ratio = noise_multiplier / (2 * count_noise)
    return noise_multiplier / math.sqrt((1 - ratio) * (1 + ratio))
