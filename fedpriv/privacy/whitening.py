"""From a clip set, a linear map and a noise covariance to the multiplier that `declared` needs."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpriv.core.arguments import Multiplier, Norm, checked
from fedpriv.core.complaints import require, shown


def whitened_multiplier(
    noise_std: ArrayLike, clip_norm: Norm, transform: ArrayLike | None = None
) -> float:
    """Multiplier of releasing A u + N(0, diag(noise_std^2)), where a unit contributes u with ||u||_2 <= clip_norm.

    The inverse of the largest singular value of Sigma^-1/2 A times the clip norm; exact. 0 where some direction that a
    unit can move in gets no noise.

    Args:
        noise_std: standard deviation of the noise on each released coordinate, f64[m] (a number is m = 1), 0 or more.
        clip_norm: C, above 0; infinity gives 0.
        transform: A, f64[m, d]; by default the identity.

    Raises:
        ValueError: for a negative standard deviation, a clip norm that is not positive, or shapes that do not fit.
    """
    clip_norm = checked("clip_norm", clip_norm, Norm)
    std = np.atleast_1d(_floats("noise_std", noise_std))
    least = std.min() if std.ndim == 1 and std.size else np.nan
    require(least >= 0, "noise_std", noise_std, "give numbers of at least 0, one per coordinate")
    a = np.eye(len(std)) if transform is None else _floats("transform", transform)
    fits = a.ndim == 2 and a.shape[0] == len(std) and bool(np.isfinite(a).all())
    require(fits, "transform", transform, f"give a matrix of finite numbers with {len(std)} rows")
    if math.isinf(clip_norm) or a[std == 0].any():
        return 0.0
    if transform is None:
        return float(std.min()) / clip_norm
    with np.errstate(over="ignore"):
        whitened = a[std > 0] / std[std > 0, None]
    if not np.isfinite(whitened).all():  # hardly any noise
        return 0.0
    sensitivity = clip_norm * float(np.linalg.norm(whitened, 2))
    return 1 / sensitivity if sensitivity > 0 else math.inf


def _floats(name: str, array: ArrayLike) -> NDArray[np.float64]:
    try:
        return np.asarray(array, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name}: {shown(array)}; give numbers") from None


def joint_multiplier(multipliers: Iterable[Multiplier]) -> float:
    """Whitened multiplier of several Gaussian releases of the same cohort, each with noise of its own.

    (sum_k m_k^-2)^-1/2: whitened sensitivities add up in squares. Declare such releases as one; two would be composed
    as if their cohorts were drawn independently.

    Raises:
        ValueError: for a negative multiplier.
    """
    sensitivity = 0.0
    for multiplier in multipliers:
        multiplier = checked("multiplier", multiplier, Multiplier)
        if multiplier == 0:
            return 0.0
        sensitivity = math.hypot(sensitivity, 1 / multiplier)
    return 1 / sensitivity if sensitivity > 0 else math.inf
