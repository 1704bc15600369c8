"""DP-SGD-WAV and DP-FedAvg-WAV: Gaussian noise on Haar-wavelet coefficients.

K. Ranaweera et al., "Federated Learning with Differential Privacy: An Utility-Enhanced Approach"; algorithm and section
numbers from there. The paper's claim does not hold, see `fedpriv.papers.wavelet_claim`; every mechanism here has its
certified multiplier, and `calibrated=True` makes that the stated sigma.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import optax

from fedpriv.algorithms.dp_sgd import dp_sgd
from fedpriv.algorithms.fed_avg import fed_avg
from fedpriv.compression.codecs import UNCODED, Codec
from fedpriv.core.arguments import Count, NonNegative, Norm, checked
from fedpriv.core.random_losses import GradientFunction, needs_keys
from fedpriv.core.types import Example, Key, LossFn, Params
from fedpriv.mechanisms.clipping import Clipping, coefficients, flat, per_level
from fedpriv.mechanisms.described import described, worst_case_of
from fedpriv.mechanisms.mechanisms import Mechanism, gaussian, mechanism, unprotected
from fedpriv.mechanisms.noise import Noise, haar_noise
from fedpriv.mechanisms.per_example import Gradients, RecordMechanism, per_example, private_mean
from fedpriv.privacy import Claim
from fedpriv.privacy.claims import wavelet_claim
from fedpriv.rounds.algorithm import Algorithm, claim_if_sampled, unclaimed
from fedpriv.rounds.local_dp_sgd import LocalSteps
from fedpriv.rounds.local_training import Batches, GradFn, Schedule
from fedpriv.rounds.samplers import Sampler
from fedpriv.rounds.scheduled_samplers import AnySampler
from fedpriv.rounds.server_step import MEAN

Clip: TypeAlias = Literal["coefficients", "levels", "gradient"]
"""All coefficients together (Algorithm 1), those of each level (Section 4.3), or the gradient before the transform."""

Bounded: TypeAlias = Literal["gradients", "update"]

_CLIPPINGS: dict[str, Callable[[int], Clipping]] = {
    "coefficients": coefficients,
    "levels": per_level,
    "gradient": lambda d: flat(),
}


def haar_mechanism(
    d: Count,
    *,
    clip_norm: Norm,
    noise_multiplier: NonNegative,
    clip: Clip = "coefficients",
    calibrated: bool = False,
) -> Mechanism:
    """WaveletNoise of Algorithm 1: noise N(0, (sigma C / W)^2) on each Haar coefficient of the sum, then the inverse.

    As the transform is linear, only clipping that looks at coefficients transforms single contributions, and noise is
    added after its own inverse.

    Formal guarantees: those of `mechanism`, with multiplier sigma / m for "coefficients", sigma / sqrt(m) for
    "gradient", sigma / sqrt(1 + log2 m) for "levels", where m is d padded to a power of two; sigma if `calibrated`.

    Args:
      d: number of coordinates of the model.
      clip_norm: C.
      noise_multiplier: sigma.
      calibrated: with so much more noise that the multiplier is sigma.

    Raises:
      ValueError: an unknown clip, or as `mechanism`.
    """
    d = checked("d", d, Count)
    clip = checked("clip", clip, Clip)
    calibrated = checked("calibrated", calibrated, bool)
    return mechanism(
        _CLIPPINGS[clip](d),
        haar_noise(d),
        clip_norm=clip_norm,
        noise_multiplier=noise_multiplier,
        calibrated=calibrated,
    )


def dp_sgd_wav(
    local: LocalSteps,
    *,
    sampler: AnySampler,
    noise_on_each: bool = False,
    codec: Codec = UNCODED,
    server: optax.GradientTransformation = MEAN,
) -> Algorithm:
    """DP-SGD-WAV (Algorithm 1): `dp_sgd` whose `local.mechanism` is a `haar_mechanism`, with the paper's claim.

    Formal guarantees: those of `dp_sgd`. Clients count equally, because the paper's claim is of their plain mean.

    Args:
      sampler, codec, server: as `dp_sgd`.
      noise_on_each: add noise to each record of a lot, as the pseudo-code is indented, instead of to their sum. The
        sum's multiplier is then sqrt(L) times as large. This requires lots of one size: otherwise the noise shows how
        many took part.

    Raises:
      ValueError: as `dp_sgd`; `noise_on_each` with lots that vary.
    """
    noise_on_each = checked("noise_on_each", noise_on_each, bool)
    options: dict[str, Any] = {"sampler": sampler, "codec": codec, "server": server}
    algorithm = dp_sgd(local, **options)
    if noise_on_each:
        if not local.records.accounting.uniform:
            raise ValueError(
                f"noise_on_each: the lots are {local.records.accounting}; draw exact subsets"
            )
        louder = _on_each(local.mechanism, round(local.records.expected_size))
        algorithm = dp_sgd(local._replace(mechanism=louder), **options)
    return algorithm._replace(claim=_claim_of_records(local, sampler))


def _on_each(used: RecordMechanism, lot: int) -> Mechanism:
    if not isinstance(used, Mechanism) or used.at is None:
        raise ValueError("noise_on_each: the noise cannot be changed; give a haar_mechanism")
    return used.at(used.clip_norm, used.noise_multiplier * math.sqrt(lot))


def _claim_of_records(
    local: LocalSteps, sampler: AnySampler
) -> Callable[[int, float], Claim | None]:
    """The paper counts a client's steps, each on a random sample of its records; here those of one in every round."""
    used = local.mechanism
    if not isinstance(used, Mechanism) or not _weaker(used) or local.unit != "record":
        return unclaimed
    records, reach = local.records.accounting, used.noise_multiplier / used.certified_multiplier
    return lambda rounds, delta: wavelet_claim(
        used.noise_multiplier, records, rounds * local.steps, delta, "record", reach
    )


def _weaker(used: Mechanism) -> bool:
    """Gaussian noise that hides less than its sigma says."""
    return used.noise == "gaussian" and 0 < used.certified_multiplier < used.noise_multiplier


def dp_fed_avg_wav(
    loss: LossFn,
    *,
    d: Count,
    sampler: AnySampler,
    optimizer: Schedule,
    batches: Batches,
    clip_norm: Norm,
    noise_multiplier: NonNegative,
    bounded: Bounded,
    noise: Noise | None = None,
    codec: Codec = UNCODED,
    server: optax.GradientTransformation = MEAN,
) -> Algorithm:
    """DP-FedAvg-WAV (Algorithm 2): noise N(0, (z C / (q_c d W))^2) on each Haar coefficient of the aggregate.

    Clients count equally, because q_c d is then the expected size of the cohort, which the paper's claim is of.

    Formal guarantees: with "update" (ours) those of `mechanism`, of multiplier z / sqrt(m) for Haar noise and z for
    isotropic noise. With "gradients", as the paper writes it, none: clipping the gradients of single records to C does
    not bound an update of many steps by C.

    Args:
      d: number of coordinates of the model.
      clip_norm: C.
      noise_multiplier: z.
      bounded: what is clipped to C, the records' gradients or the clients' whole updates.
      noise: by default the paper's Haar noise; `noise.isotropic()` gives the paper's vanilla DP-FedAvg.
      codec, server: as `fed_avg`.

    Raises:
      ValueError: an unknown `bounded`, or as `mechanism`.
    """
    d = checked("d", d, Count)
    bounded = checked("bounded", bounded, Bounded)
    shape = haar_noise(d) if noise is None else noise
    used = mechanism(flat(), shape, clip_norm=clip_norm, noise_multiplier=noise_multiplier)
    by_gradient = bounded == "gradients"
    algorithm = fed_avg(
        loss,
        sampler=sampler,
        optimizer=optimizer,
        batches=batches,
        mechanism=_unbounded(used) if by_gradient else used,
        grad=clipped_mean(per_example(loss), clip_norm) if by_gradient else None,
        codec=codec,
        server=server,
    )

    def claim(drawn: Sampler) -> Callable[[int, float], Claim | None]:
        return _claim_of_clients(used, drawn, by_gradient)

    return algorithm._replace(claim=claim_if_sampled(sampler, claim))


def _unbounded(used: Mechanism) -> Mechanism:
    """The same noise on whatever is sent."""
    reason = (
        "gradients are clipped, but the update of many steps, which is what is sent, has no bound"
    )
    whatever = used._replace(
        clip=unprotected().clip, certified_multiplier=0.0, reason=reason, at=None
    )
    return described(whatever, worst_case=worst_case_of(used))


def _claim_of_clients(
    used: Mechanism, sampler: Sampler, by_gradient: bool
) -> Callable[[int, float], Claim | None]:
    """None without noise, and for isotropic noise on bounded updates, which is DP-FedAvg."""
    if used.noise_multiplier == 0 or not (by_gradient or _weaker(used)):
        return unclaimed
    reach = used.noise_multiplier / used.certified_multiplier
    unbounded = "The update that is perturbed is not bounded by the clip norm of its gradients."

    def claim(rounds: int, delta: float) -> Claim:
        sigma, cohorts = used.noise_multiplier, sampler.accounting
        claimed = wavelet_claim(sigma, cohorts, rounds, delta, "client", reach)
        if not by_gradient or not math.isfinite(claimed.epsilon):
            return claimed
        return replace(claimed, sound=False, reasons=(unbounded, *claimed.reasons))

    return claim


def clipped_mean(gradients: Gradients, clip_norm: Norm) -> GradFn:
    """(params, batch, mask) -> the mean of the records' clipped gradients, without noise.

    Raises:
      ValueError: as `gaussian`.
    """
    total = private_mean(gradients, gaussian(clip_norm, 0), 1.0)

    def mean(params: Params, batch: Example, mask: jax.Array) -> Params:
        unused: Key = jax.random.key(0)
        count = jnp.maximum(jnp.sum(mask), 1)
        return jax.tree.map(lambda g: g / count, total(unused, params, batch, mask))

    return GradientFunction(mean, needs_keys(gradients))
