"""Haar-wavelet noise's claim.

K. Ranaweera, D. C. Nguyen, P. N. Pathirana, D. Smith, M. Ding, T. Rakotoarivelo, A. Seneviratne, "Federated Learning
with Differential Privacy: An Utility-Enhanced Approach".
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from fedpriv.core.arguments import CountOrZero, LargeCount, Multiplier, Norm, Probability, checked
from fedpriv.core.complaints import require
from fedpriv.privacy.certificate import Claim
from fedpriv.privacy.claims._renyi import poisson_rdp_epsilon
from fedpriv.privacy.sampling import Poisson, Sampling
from fedpriv.proof.seen import ClippedUnit

_SOURCE = "DP-SGD-WAV and DP-FedAvg-WAV (Ranaweera et al.), section 5.2: the vanilla accountant"
_REASONS = (
    "The weights come from the sensitivity to one changed entry, while a neighbour of DP-SGD moves "
    "along any direction of an l2 ball, and the constant direction is hardly hidden: see "
    "`haar_multiplier`.",
    "For an l2 ball no shape of noise hides more than the isotropic one of the same total variance; "
    "an orthonormal transform with equal noise keeps the whole multiplier.",
    "The paper prints epsilons (6.38, 3.61, 1.64; 24.5, 7.94, 4.75) without the sampling rate and "
    "the number of steps that they belong to, so the number cannot be checked against it.",
)


def wavelet_claim(
    noise_multiplier: Multiplier,
    sampling: Sampling,
    rounds: CountOrZero,
    delta: Probability,
    unit: ClippedUnit,
    reach: Norm | None = None,
) -> Claim:
    """Epsilon of DP-SGD-WAV or DP-FedAvg-WAV as the paper argues it.

    The weights are "applied prior to the accountant", so that the epsilon is that of vanilla DP-SGD or DP-FedAvg at the
    same sigma: Rényi analysis of the Poisson subsampled Gaussian, orders 1.1 to 10.9 by 0.1 and 12 to 63, epsilon = rdp
    + log(1 / delta) / (order - 1).

    Not reproduced: no rate and number of steps give the printed epsilons at the printed sigma 1, 1.5 and 3, neither so
    nor by the newer conversion (Canonne, Kamath and Steinke 2020) of the library that the paper names.

    Formal guarantees: none; see the claim's reasons.

    Args:
        noise_multiplier: sigma, before the division by the weights.
        sampling: how the units are drawn; only its rate is used.
        rounds: number of steps (records) or rounds (clients).
        delta: probability, in (0, 1).
        unit: "record" (DP-SGD-WAV) or "client" (DP-FedAvg-WAV).
        reach: sigma over the certified multiplier, where it is known; it goes into the reasons.

    Raises:
        ValueError: for a negative noise multiplier or number of rounds, delta outside (0, 1), or an unknown unit.
    """
    noise_multiplier = checked("noise_multiplier", noise_multiplier, Multiplier)
    require(
        isinstance(sampling, Sampling),
        "sampling",
        sampling,
        "give one such as Poisson(1000, 0.1)",
    )
    rounds = checked("rounds", rounds, CountOrZero)
    delta = checked("delta", delta, Probability)
    unit = checked("unit", unit, ClippedUnit)
    reach = checked("reach", reach, Norm | None)
    epsilon = poisson_rdp_epsilon(noise_multiplier, sampling.inclusion, rounds, delta)
    trivial = math.isinf(epsilon) or epsilon == 0
    return Claim(
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        view="third_party",
        relation="add_or_remove",
        source=_SOURCE,
        reproduced=False,
        sound=trivial,
        reasons=("Trivially true.",) if trivial else _reasons(sampling, reach),
    )


def _reasons(sampling: Sampling, reach: float | None) -> tuple[str, ...]:
    reasons: tuple[str, ...] = _REASONS
    if reach is not None:
        moved = (
            f"The weights come from the sensitivity to one changed entry; a neighbour moves many "
            f"coefficients at once, in units of the noise {reach:.4g} times as far as the formula "
            "supposes."
        )
        reasons = (_REASONS[-1],) if reach == 1 else (moved, _REASONS[-1])
    if not isinstance(sampling, Poisson):
        reasons = ("The formula is for Poisson samples, and for adding or removing.", *reasons)
    return reasons


Clip: TypeAlias = Literal["coefficients", "gradient", "levels"]


def haar_multiplier(noise_multiplier: Multiplier, m: LargeCount, clip: Clip) -> float:
    """Multiplier (1 / whitened sensitivity) of noise sigma C / W on each Haar coefficient.

    With h the coefficients and D = diag(W), W being m for the base coefficient and 2^l for the details of level l, the
    whitened sensitivity is sup ||D h|| / (sigma C).

    - "coefficients", ||h|| <= C (Algorithm 1): the largest weight, so sigma / m.
    - "gradient", ||g|| <= C before the transform h = A g: the rows of D A are orthogonal, of norm sqrt(m) for the base
      coefficient and 2^(l / 2) at level l: sigma / sqrt(m), reached by a constant gradient.
    - "levels", each level's coefficients, and the base one, clipped to C / W (section 4.3): 1 + log2 m groups, each
      moving D h by at most C, so sigma / sqrt(1 + log2 m).

    Args:
        noise_multiplier: sigma.
        m: length of the padded vector, a power of two.
        clip: "coefficients", "gradient" or "levels".

    Raises:
        ValueError: for a negative noise multiplier, m not a power of two, or an unknown clip.
    """
    noise_multiplier = checked("noise_multiplier", noise_multiplier, Multiplier)
    m = checked("m", m, LargeCount)
    clip = checked("clip", clip, Clip)
    require(m & (m - 1) == 0, "m", m, "give a power of two: pad the vector with zeros")
    squared = {"coefficients": m * m, "gradient": m, "levels": m.bit_length()}
    return noise_multiplier / math.sqrt(squared[clip])
