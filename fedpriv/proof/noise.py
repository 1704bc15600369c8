"""Laws of noise, by what they hide of a move: the door `Noise`, and the two of plain runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpriv.core.complaints import require

Floats = NDArray[np.float64]


class Noise(ABC):
    """A law N on the line, symmetric about 0.

    Its curve is to bound whatever a unit may do that is `far` at most: also vectors, each coordinate with noise of its
    own, whose norm is measured as the noise is (Gaussian: l2; Laplace: l1). Values are equal only where their laws are.

    Attributes:
        kind: its name, in words.
    """

    kind: str

    @abstractmethod
    def curve(self, epsilon: ArrayLike, far: ArrayLike) -> Floats:
        """H_{e^eps}(N + far || N) = sup_S Pr[N + far in S] - e^eps Pr[N in S], for any real epsilon.

        Or that of another pair, which is a bound: as a function of e^eps it has to be convex.

        Args:
            epsilon: f64[...], nats.
            far: f64[...], in deviations of the noise (Laplace: in its scale), above 0.
        """

    @abstractmethod
    def largest_loss(self, far: float, deviations: float) -> float:
        """Nats of loss up to which a grid goes: the largest, or that of noise so many deviations away.

        What is beyond counts as infinite, so that it may be any number.
        """


class Gaussian(Noise):
    """N(0, 1)."""

    kind = "gaussian"

    def curve(self, epsilon: ArrayLike, far: ArrayLike) -> Floats:
        """Of N(far, 1) against N(0, 1).

        Formal guarantees: exact (Balle and Wang 2018, Theorem 8); `far` is sqrt(steps) / multiplier for composed, also
        adaptively composed, Gaussian releases (Dong, Roth and Su 2022, Corollary 3.3).
        """
        from scipy.special import log_ndtr

        eps, mu = np.asarray(epsilon, float), np.asarray(far, float)
        upper = log_ndtr(mu / 2 - eps / mu)
        lower = eps + log_ndtr(-mu / 2 - eps / mu)
        return np.exp(upper) * -np.expm1(np.minimum(lower - upper, 0.0))

    def largest_loss(self, far: float, deviations: float) -> float:
        """The loss is N(far^2 / 2, far^2)."""
        return far**2 / 2 + deviations * far


class Laplace(Noise):
    """Of density e^-|z| / 2."""

    kind = "laplace"

    def curve(self, epsilon: ArrayLike, far: ArrayLike) -> Floats:
        """Of Laplace(far, 1) against Laplace(0, 1).

        Formal guarantees: exact on the line, and a bound for any vector release with independent Laplace noise and l1
        distance `far`. For one shift of a + b the privacy loss is a + b - 2 U, U = min(W, a + b), W being 0 or Exp(1)
        with probability 1/2 each; for shifts a and b along two axes it is the same with U = min(W, a) + min(W', b).
        Both have delta = integral of 2 e^(2u + eps - a - b) Pr[U <= u] over u from 0 to (a + b - eps) / 2. The two
        Pr[U <= u] cross once, the single shift's being larger near 0, and over the whole range the integrals agree: so
        up to any u the single shift's is the larger. More axes: by induction.
        """
        eps, mu = np.asarray(epsilon, float), np.asarray(far, float)
        inside = -np.expm1(np.minimum((eps - mu) / 2, 0.0))  # 0 for eps >= mu
        return np.where(eps <= -mu, -np.expm1(np.minimum(eps, 0.0)), inside)

    def largest_loss(self, far: float, deviations: float) -> float:
        """|z| - |z - far| is no more."""
        return far


LAWS: Mapping[str, Noise] = MappingProxyType({"gaussian": Gaussian(), "laplace": Laplace()})
"""By name: what pairs and files hold of these."""


def law_of(noise: str | Noise) -> Noise:
    """By its name, or itself.

    Raises:
        ValueError: neither a name nor a law.
    """
    known = isinstance(noise, Noise) or (isinstance(noise, str) and noise in LAWS)
    require(known, "noise", noise, f"give one of {tuple(LAWS)}, or of integers")
    return LAWS[noise] if isinstance(noise, str) else noise


gaussian_delta, laplace_delta = LAWS["gaussian"].curve, LAWS["laplace"].curve
"""(epsilon, far) -> the curve of one sure move."""
