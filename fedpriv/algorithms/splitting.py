"""Model splitting: a client's model becomes one visible submodel and m invisible ones, with a known mean.

Y. Wang, X. Cao, S. Jin, M.-Y. Chow, "A Novel Privacy Enhancement Scheme with Dynamic Quantization for Federated
Learning" (MSP-FL, MSPDQ-FL); section and equation numbers from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from fedpriv.core.arguments import Budget, Count, Decay, Positive, Rate, checked
from fedpriv.core.array_arguments import check_key, check_numbers
from fedpriv.core.checked_tuples import checking_fields
from fedpriv.core.types import Key
from fedpriv.privacy import Claim
from fedpriv.privacy.claims import msp_laplace_claim


class Submodels(NamedTuple):
    """A cohort's submodels, by splitting.

    Attributes:
      visible: f32[M, d], a_i.
      invisible: f32[M, m_max, d], b_{i,n}; zeros beyond a client's m_i.
      weights: f32[M, m_max] in [0, 1], a_(i, alpha beta_n)[k] divided by gamma decay(k), constant in k; 0 beyond a
        client's m_i.
    """

    visible: jax.Array
    invisible: jax.Array
    weights: jax.Array

    @property
    def real(self) -> jax.Array:
        """bool[M, m_max], True for submodels that exist."""
        return self.weights > 0


@checking_fields
class Splitting(NamedTuple):
    """How the visible submodel is drawn.

    Attributes:
      draw: (key, w: f32[d], m: i32[]) -> a[0]: f32[d].
      claim: the paper's epsilon, or None.
    """

    draw: Callable[[Key, jax.Array, jax.Array], jax.Array]
    claim: Claim | None = None


def uniform(factor: Decay) -> Splitting:
    """a[0] ~ U[eps w, (1 + m - eps) w], each entry independently (Remark 1); eps is the splitting factor.

    Its mean is (1 + m) w / 2, which is w only for m = 1. Remark 1 cites Lemma 8 for all m, but its proof is for m = 1.
    The sum is exact for any a[0].

    Raises:
      ValueError: a factor outside [0, 1).
    """
    factor = checked("factor", factor, Decay)

    def draw(key: Key, w: jax.Array, m: jax.Array) -> jax.Array:
        return w * jax.random.uniform(
            key, w.shape, w.dtype, factor, 1 + jnp.asarray(m, w.dtype) - factor
        )

    return Splitting(draw)


def laplace(sensitivity: Positive, epsilon: Budget) -> Splitting:
    """MSP + Lap: a[0] ~ Laplace(w, Delta_1 / eps_DP) (eq. 16), with the claim of Proposition 1.

    Args:
      sensitivity: Delta_1, in the l1 norm.
      epsilon: eps_DP, pure epsilon in nats.

    Raises:
      ValueError: a sensitivity Delta_1 or an epsilon that is not positive and finite.
    """
    sensitivity = checked("sensitivity", sensitivity, Positive)
    epsilon = checked("epsilon", epsilon, Budget)
    claim = msp_laplace_claim(epsilon)
    scale = sensitivity / epsilon

    def draw(key: Key, w: jax.Array, m: jax.Array) -> jax.Array:
        return w + scale * jax.random.laplace(key, w.shape, w.dtype)

    return Splitting(draw, claim)


def gaussian(std: Positive) -> Splitting:
    """a[0] ~ N(w, std^2), with `std` the standard deviation of each entry (ours, for comparison).

    Raises:
      ValueError: a standard deviation that is not positive and finite.
    """
    std = checked("std", std, Positive)
    return Splitting(lambda key, w, m: w + std * jax.random.normal(key, w.shape, w.dtype))


Weights: TypeAlias = Callable[[Key, tuple[int, int]], jax.Array]
"""(key, (clients, m_max)) -> f32[clients, m_max] in (0, 1], as in `Submodels`: each client's secret, drawn once."""


def equal(key: Key, shape: tuple[Count, Count]) -> jax.Array:
    """A splitting, gamma_i = gamma for all clients and submodels, as in the experiments (Remark 10)."""
    shape = checked("shape", shape, tuple[Count, Count])
    return jnp.ones(shape)


def per_client(least: Rate) -> Weights:
    """gamma_i ~ U[least gamma, gamma], one per client (Algorithm 1; the paper names no distribution).

    Raises:
      ValueError: least is not in (0, 1].
    """
    least = checked("least", least, Rate)
    return lambda key, shape: jnp.broadcast_to(
        jax.random.uniform(key, (shape[0], 1), minval=least, maxval=1), shape
    )


def per_submodel(least: Rate) -> Weights:
    """a_(i, alpha beta_n) ~ U[least gamma, gamma], one per submodel (eq. 3, Section V-B).

    Raises:
      ValueError: least is not in (0, 1].
    """
    least = checked("least", least, Rate)
    return lambda key, shape: jax.random.uniform(key, shape, minval=least, maxval=1)


def invisible(key: Key, w: jax.Array, a: jax.Array, m: jax.Array, most: Count) -> jax.Array:
    """The invisible submodels, f32[most, d]: random b_1..b_m with the sum (1 + m) w - a, then zeros.

    The paper fixes only the sum. Here every entry moves from the mean by a uniform part of w, which cancels in the sum.

    Args:
      w: f32[d], the model.
      a: f32[d], its visible submodel.
      m: i32[] in 1..most.
    """
    check_key("key", key)
    check_numbers("w", w)
    check_numbers("a", a)
    check_numbers("m", m)
    most = checked("most", most, Count)
    real = (jnp.arange(most) < m)[:, None]
    m, row = jnp.asarray(m, w.dtype), w[None]
    u = jnp.where(real, jax.random.uniform(key, (most, *w.shape), w.dtype, -1, 1), 0.0)
    spread = jnp.where(real, u - jnp.sum(u, 0, keepdims=True) / m, 0.0)
    return jnp.where(real, ((1 + m) * row - a[None]) / m + spread * row, 0.0)
