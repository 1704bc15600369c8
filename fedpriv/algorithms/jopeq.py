"""JoPEQ: joint privacy enhancement and quantization.

N. Lang, E. Sofer, T. Shaked, N. Shlezinger, "Joint Privacy Enhancement and Quantization in Federated Learning", IEEE
TSP 2023, arXiv:2208.10888. Clients add noise to their updates and send them through a dithered lattice quantizer; noise
and error together shall be a private mechanism's noise. Exactly Laplace noise cannot be had so (see `jopeq_claim`): the
authors' code adds Laplace or t noise of the right variance, and so does this.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from fedpriv.algorithms.fed_avg import fed_avg
from fedpriv.compression.codecs import Codec, Coded, Wire
from fedpriv.compression.lattice import Lattice, dithered, lattice_for
from fedpriv.compression.quantization import SignedLevels
from fedpriv.core import random_streams
from fedpriv.core.arguments import Budget, Positive, Probability, Range, checked
from fedpriv.core.trees import flatten, unflatten
from fedpriv.core.types import Key, LossFn, PyTree
from fedpriv.mechanisms.mechanisms import unprotected
from fedpriv.privacy.claims import jopeq_claim, t_epsilon
from fedpriv.privacy.claims.jopeq_claim import JopeqNoise
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.scheduled_samplers import AnySampler

_LARGEST_SINH = 700.0  # whose hyperbolic sine is a float
Degrees: TypeAlias = Annotated[
    float,
    Range(
        "a finite number above 2, below which the variance is infinite", 2, math.inf, (2, math.inf)
    ),
]


class PrivateQuantizer(NamedTuple):
    """Noise and lattice that belong together.

    Attributes:
      lattice: what is quantized on.
      limit: end of the quantizer's range.
      bound: gamma, what values are clipped to.
      scale: of all noise together, b or s.
      added: scale of the clients' part.
      draw: (key, n) -> f32[n], the clients' part.
      hidden: pure epsilon of a value (or pair) towards those who know the dither: that of the clients' part, if the key
        that it is drawn from is secret.
    """

    lattice: Lattice
    limit: float
    bound: float
    scale: float
    added: float
    draw: Callable[[Key, int], jax.Array]
    hidden: float

    def apply(self, key: Key, values: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(decoded f32[n], fraction outside the range) of f32[n]."""
        noise_key, dither_key = jax.random.split(key)
        bounded = jnp.clip(values, -self.bound, self.bound)
        noisy = bounded + self.draw(noise_key, values.size)
        return dithered(dither_key, noisy, self.lattice, self.limit)


def private_laplace(
    bits: SignedLevels, bound: Positive, epsilon: Budget, *, tail: Probability = 1e-6
) -> PrivateQuantizer:
    """A scalar lattice and Laplace noise, in all of the variance of Laplace(2 bound / epsilon) (Lang et al. 2023).

    Args:
      bits: B per value.
      bound: gamma, what values are clipped to.
      epsilon: pure epsilon in nats, of one value.
      tail: bound on the probability that the noise of a value goes beyond the lattice's range.

    Raises:
      ValueError: arguments out of range, or bits too few: the error alone has more than that variance.
    """
    bits = checked("bits", bits, SignedLevels)
    bound = checked("bound", bound, Positive)
    epsilon = checked("epsilon", epsilon, Budget)
    tail = checked("tail", tail, Probability)
    b = 2 * bound / epsilon
    lattice, limit = lattice_for(bits, bound + b * math.log(1 / tail), 1)
    left = _left(b**2 - lattice.variance / 2, bits)
    return PrivateQuantizer(
        lattice,
        limit,
        bound,
        b,
        left,
        lambda key, n: left * jax.random.laplace(key, (n,)),
        2 * bound / left,
    )


def private_t(
    bits: SignedLevels,
    bound: Positive,
    epsilon: Budget,
    degrees: Degrees = 4.0,
    *,
    tail: Probability = 1e-6,
) -> PrivateQuantizer:
    """The hexagonal lattice and bivariate t noise, in all of the covariance of the t noise that gives pairs `epsilon`.

    Two pairs of values in [-bound, bound] are at most 2 sqrt(2) bound apart; epsilon = (nu + 2) asinh(a / 2) at a
    distance of a s sqrt(nu), see `t_epsilon` (Lang et al. 2023).

    Raises:
      ValueError: as `private_laplace`, or degrees not above 2 (the variance is infinite).
    """
    from scipy.stats import t as student

    bits = checked("bits", bits, SignedLevels)
    bound = checked("bound", bound, Positive)
    epsilon = checked("epsilon", epsilon, Budget)
    degrees = checked("degrees", degrees, Degrees)
    tail = checked("tail", tail, Probability)
    apart = 2 * math.sqrt(2) * bound
    s = apart / (2 * math.sinh(min(epsilon / (degrees + 2), _LARGEST_SINH)) * math.sqrt(degrees))
    widest = float(student.isf(tail / 2, degrees)) * s
    lattice, limit = lattice_for(bits, bound + widest, 2)
    left = _left(s**2 - (degrees - 2) / degrees * lattice.variance, bits)

    def draw(key: Key, n: int) -> jax.Array:
        normal_key, chi_key = jax.random.split(key)
        pairs = -(-n // 2)
        normal = jax.random.normal(normal_key, (pairs, 2))
        chi = 2 * jax.random.gamma(chi_key, degrees / 2, (pairs, 1))
        return (left * normal * jnp.sqrt(degrees / chi)).reshape(-1)[:n]

    hidden = t_epsilon(apart, left, degrees, 2)
    return PrivateQuantizer(lattice, limit, bound, s, left, draw, hidden)


def _left(squared: float, bits: int) -> float:
    """The scale that is left for the clients' part."""
    if not squared > 0:
        raise ValueError(
            f"bits: the error of a {bits}-bit lattice alone exceeds the noise of this epsilon; give more bits or less "
            "epsilon"
        )
    return math.sqrt(squared)


def jopeq(
    loss: LossFn,
    *,
    sampler: AnySampler,
    bits: SignedLevels,
    bound: Positive,
    epsilon: Budget,
    noise: JopeqNoise = "laplace",
    **options: Any,
) -> Algorithm:
    """JoPEQ (Lang et al. 2023): federated averaging of updates coded by `private_laplace` or `private_t`.

    Formal guarantees: towards a server that decodes, every value or pair of a message has a pure epsilon, that of the
    clients' part of the noise alone (`PrivateQuantizer.hidden`); a model's d of them add up, to a number in the
    thousands that the ledger does not print: it certifies infinity.

    Args:
      bits: B per value.
      bound: gamma, to which the values of an update are clipped.
      epsilon: pure epsilon in nats of one value (Laplace) or pair (t), the paper's setting.
      options: `optimizer` and `batches`, optionally `server` and `weighting`, as `fed_avg`.

    The diagnostics `clipped` and `saturated` are the fractions of values beyond gamma and, with noise, beyond the
    lattice's range.

    Raises:
      ValueError: an unknown noise, or as `private_laplace` and `private_t`.
    """
    bits = checked("bits", bits, SignedLevels)
    bound = checked("bound", bound, Positive)
    epsilon = checked("epsilon", epsilon, Budget)
    noise = checked("noise", noise, JopeqNoise)
    private = (private_laplace if noise == "laplace" else private_t)(bits, bound, epsilon)

    def code(key: Key, update: PyTree) -> Coded:
        values = flatten(update)
        decoded, outside = private.apply(jax.random.fold_in(key, random_streams.DITHER), values)
        decoded = jnp.where(jnp.isfinite(values), decoded, jnp.nan)  # diverged models stay visible
        diagnostics = {"clipped": jnp.mean(~(jnp.abs(values) <= bound)), "saturated": outside}
        return Coded(unflatten(decoded, update), diagnostics)

    group = private.lattice.dim
    codec = Codec(code, lambda d: Wire(-(-d // group) * group, bits), True)
    claim = jopeq_claim(epsilon, noise)
    reason = (
        f"a server that decodes knows the dither; each {'value' if noise == 'laplace' else 'pair of values'} of a "
        f"message then has epsilon {private.hidden:.4g}, if the client's key is secret, and those of all its values "
        "add up"
    )
    algorithm = fed_avg(
        loss, sampler=sampler, mechanism=unprotected(reason), codec=codec, **options
    )
    return algorithm._replace(claim=lambda rounds, delta: claim)
