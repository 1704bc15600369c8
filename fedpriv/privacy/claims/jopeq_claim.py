"""JoPEQ: "Joint Privacy Enhancement and Quantization in Federated Learning" (Lang, Sofer, Shaked and Shlezinger)."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from fedpriv.core.arguments import Budget, LargeCount, NonNegative, Positive, checked
from fedpriv.privacy.certificate import Claim

_REASONS = (
    "Epsilon is for one group of values (one or two) of one message; a model has thousands, whose "
    "epsilons add up, and so do those of all rounds.",
    "A server that decodes knows the dither, and with it the message is a function of input plus "
    "added noise alone: the error of quantization, which the claim counts as noise, hides nothing "
    "from it.",
)
_LAPLACE = (
    "No added noise makes the total exactly Laplace: the characteristic function of a uniform error "
    "has zeros where that of the Laplace distribution has none. What is added here, as in the "
    "authors' code, has the right variance."
)


JopeqNoise: TypeAlias = Literal["laplace", "t"]


def jopeq_claim(epsilon: Budget, noise: JopeqNoise) -> Claim:
    """Local epsilon of JoPEQ (Lang et al. 2023): added noise and quantization error are a mechanism's noise.

    The paper's numbers are settings (scalar lattices: Laplace noise of scale 2 / epsilon on values in [-1, 1]), so that
    there is nothing to reproduce.

    Formal guarantees: none; see the claim's reasons.

    Args:
        epsilon: pure epsilon in nats, the setting, or for t noise `t_epsilon`; positive and finite.
        noise: "laplace" or "t".

    Raises:
        ValueError: for an epsilon that is not positive and finite, or an unknown noise.
    """
    epsilon = checked("epsilon", epsilon, Budget)
    noise = checked("noise", noise, JopeqNoise)
    return Claim(
        epsilon=epsilon,
        delta=0.0,
        unit="client",
        view="server",
        relation="replace_one",
        source="JoPEQ (Lang et al.), local privacy of one group of values in one message",
        reproduced=False,
        sound=False,
        reasons=(*_REASONS, _LAPLACE) if noise == "laplace" else _REASONS,
    )


def t_epsilon(distance: NonNegative, scale: Positive, degrees: Positive, dim: LargeCount) -> float:
    """Pure epsilon of multivariate t noise of `dim` dimensions on two inputs `distance` apart.

    The density is proportional to (1 + |x|^2 / (nu s^2))^-((nu + L) / 2). The largest ratio of 1 + |x + v|^2 to
    1 + |x|^2, lengths in units of s sqrt(nu), is (2 + a^2 + a sqrt(a^2 + 4)) / 2 for |v| = a, taken along v.

    Formal guarantees: exact, for one group of values.

    Args:
        distance: l2.
        scale: s.
        degrees: nu, above 0.
        dim: L.

    Raises:
        ValueError: for an argument outside its range.
    """
    distance = checked("distance", distance, NonNegative)
    scale = checked("scale", scale, Positive)
    degrees = checked("degrees", degrees, Positive)
    dim = checked("dim", dim, LargeCount)
    a = distance / (scale * math.sqrt(degrees))
    return (degrees + dim) / 2 * math.log((2 + a * a + a * math.sqrt(a * a + 4)) / 2)
