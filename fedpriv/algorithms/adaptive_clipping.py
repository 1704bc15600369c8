"""DP-FedAvg whose clip norm follows a quantile of the clients' update norms, counted privately.

G. Andrew, O. Thakkar, B. McMahan, S. Ramaswamy, "Differentially Private Learning with Adaptive Clipping", NeurIPS 2021,
arXiv:1905.03871: Algorithm 1, here with plain averaging at the server (eta_s = 1, beta = 0), and Theorem 1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedpriv import probe
from fedpriv.algorithms._shared import client_releases, measured, starting_from
from fedpriv.codecs import UNCODED, Codec
from fedpriv.cohort import Sampler, Shard, for_each_client
from fedpriv.federation import Federation
from fedpriv.local import Batches, Schedule, check_schedule, mean_grad, train
from fedpriv.mechanisms import Mechanism, gaussian
from fedpriv.privacy.whitening import joint_multiplier
from fedpriv.types import Algorithm, Key, LossFn, Metrics, Params
from fedpriv.vectors import dimension

_LEAST, _MOST = 1e-8, 1e8  # of the clip norm: beyond, float32 squares of what it bounds lose it


class AdaptiveState(NamedTuple):
    """Model and clip norm.

    Attributes:
      params: theta.
      round: i32[], rounds done.
      clip_norm: f32[], C of the next round, in [1e-8, 1e8].
    """

    params: Params
    round: jax.Array
    clip_norm: jax.Array


def adaptive_fed_avg(
    loss: LossFn,
    *,
    sampler: Sampler,
    optimizer: Schedule,
    batches: Batches,
    quantile: float,
    clip_norm: float,
    noise_multiplier: float,
    count_noise: float | None = None,
    clip_rate: float = 0.2,
    mechanism: Mechanism | None = None,
    codec: Codec = UNCODED,
) -> Algorithm:
    """DP-FedAvg with adaptive clipping (Algorithm 1): C <- C exp(-eta_C (b - gamma)), b being the noisy fraction below.

    Formal guarantees: a client adds its update clipped at C, under noise z_Delta C, and its bit minus 1/2, under noise
    sigma_b; the two are one release of multiplier (z_Delta^-2 + (2 sigma_b)^-2)^-1/2 = z (Theorem 1), or of what the
    reach of another `mechanism` makes of it. C is computed from what was released before. An update whose norm is NaN
    or infinite is 0 and counts as not below.

    Args:
      quantile: gamma in (0, 1), the fraction of updates that C should leave as they are.
      clip_norm: C of the first round, in [1e-8, 1e8], where it stays.
      noise_multiplier: z of both parts together; 0 for none on the updates, which certifies nothing.
      count_noise: sigma_b, standard deviation of the noise on the count; by default the paper's 1/20 of the cohort.
      clip_rate: eta_C.
      mechanism: how updates are clipped and perturbed at (C, z_Delta), whatever its own clip norm and noise; by default
        `gaussian`. The quantile is of the norms that its `clip` reports.
      loss, sampler, optimizer, batches, codec: as `fed_avg`.

    Raises:
      ValueError: an argument out of range, 2 sigma_b <= z, or a mechanism whose clip norm cannot change.
    """
    check_schedule(optimizer)
    if count_noise is None:
        count_noise = sampler.expected_size / 20
    base = gaussian(clip_norm, noise_multiplier) if mechanism is None else mechanism
    _check(quantile, clip_norm, noise_multiplier, count_noise, clip_rate, base)
    at = base.at
    assert at is not None
    z_delta = update_noise(noise_multiplier, count_noise)
    grad = mean_grad(loss)

    def init(params: Params, federation: Federation) -> AdaptiveState:
        return AdaptiveState(*starting_from(sampler)(params, federation), jnp.float32(clip_norm))

    def round(
        key: Key, state: AdaptiveState, federation: Federation
    ) -> tuple[AdaptiveState, Metrics]:
        theta, t, bound = state
        now = at(bound, z_delta)
        # The first three are the keys of `fed_avg`, which this is to the bit if C does not move.
        cohort_key, local_key, noise_key, count_key = jax.random.split(key, 4)
        cohort = sampler.draw(cohort_key)

        def client_update(key: Key, shard: Shard) -> tuple:
            theta_i = train(key, theta, shard, grad=grad, optimizer=optimizer(t), batches=batches)
            coded = codec.code(key, jax.tree.map(jnp.subtract, theta, theta_i))
            clipped, norm = now.clip(coded.message)
            below = jnp.where(norm <= bound, 0.5, -0.5)  # NaN is not below
            return (clipped, below), {"mean_update_norm": norm} | coded.diagnostics

        (total, count), seen = for_each_client(client_update, local_key, cohort, federation)
        probe.show("perturb", now.perturb)
        total = now.perturb(noise_key, total)
        count += count_noise * jax.random.normal(count_key)
        theta = jax.tree.map(
            lambda p, s: (p - s / sampler.expected_size).astype(p.dtype), theta, total
        )
        error = count / sampler.expected_size + 0.5 - quantile
        moved = jnp.clip(bound * jnp.exp(-clip_rate * error), _LEAST, _MOST)
        wire = codec.wire(dimension(theta))
        metrics = measured(cohort, wire._replace(overhead=wire.overhead + 1), seen)  # the bit
        metrics["diagnostics"]["clip_norm"] = bound
        return AdaptiveState(theta, t + 1, moved.astype(bound.dtype)), metrics

    updates = at(clip_norm, z_delta)
    both = joint_multiplier([updates.multiplier, 2 * count_noise])
    releases = client_releases(updates._replace(multiplier=both), sampler, codec)
    return Algorithm(init, round, releases)


def update_noise(noise_multiplier: float, count_noise: float) -> float:
    """z_Delta = (z^-2 - (2 sigma_b)^-2)^-1/2 (Theorem 1), for z < 2 sigma_b; 0 for z = 0."""
    if noise_multiplier == 0:
        return 0.0
    ratio = noise_multiplier / (2 * count_noise)
    return noise_multiplier / math.sqrt((1 - ratio) * (1 + ratio))


def _check(
    quantile: float,
    clip_norm: float,
    noise_multiplier: float,
    count_noise: float,
    clip_rate: float,
    mechanism: Mechanism,
) -> None:
    if not 0 < quantile < 1:
        raise ValueError(f"quantile: {quantile} is not in (0, 1); 0.5 is the median")
    if not _LEAST <= clip_norm <= _MOST:
        raise ValueError(
            f"clip_norm: {clip_norm} is not in [{_LEAST:g}, {_MOST:g}]; rescale the loss or the rate"
        )
    for name, value in (
        ("noise_multiplier", noise_multiplier),
        ("count_noise", count_noise),
        ("clip_rate", clip_rate),
    ):
        if not 0 <= value < math.inf:
            raise ValueError(f"{name}: {value} is not in [0, inf); use 0 for none")
    if noise_multiplier > 0 and 2 * count_noise <= noise_multiplier:
        raise ValueError(
            f"count_noise: {count_noise} does not hide a bit well enough for a noise_multiplier of {noise_multiplier}; "
            f"give more than {noise_multiplier / 2:g}"
        )
    if getattr(mechanism, "at", None) is None:
        raise ValueError(
            "mechanism: its clip norm cannot be changed; give one of `mechanism` or `gaussian`"
        )
