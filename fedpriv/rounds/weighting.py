"""How much a client counts in the cohort's sum.

H. B. McMahan, D. Ramage, K. Talwar, L. Zhang, "Learning Differentially Private Recurrent Language Models", ICLR 2018,
arXiv:1710.06963: the estimators f_f and f_c of Algorithm 1, and their sensitivities, Lemma 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from fedpriv.core.arguments import Count, Positive, Rate, check_fields, checked
from fedpriv.core.complaints import require
from fedpriv.core.types import PyTree


@dataclass(frozen=True)
class Weighting:
    """The weights in a cohort's sum: all clients count equally."""

    @property
    def adder(self) -> Literal["shares", "server"]:
        """Who can add the noise: the server alone where it comes after a division that only the server can make."""
        return "shares"

    @property
    def bits(self) -> int:
        """Bits of a weight; it travels only if the server adds the noise."""
        return 0

    def weigh(self, message: PyTree, size: jax.Array) -> tuple[PyTree, PyTree]:
        """(w_k times the clipped message, w_k: f32[] or nothing) of a client with `size` (i32[]) examples."""
        return message, ()

    def bounded(self, total: PyTree, weights: PyTree, expected_size: Positive) -> PyTree:
        """What is perturbed. One client moves it by at most the bound of a message.

        Args:
          total: the sum of the weighted messages.
          weights: f32[slots], w_k, 0 in an empty slot; or nothing.
          expected_size: of the cohort.
        """
        checked("expected_size", expected_size, Positive)
        return total

    def shown(self, total: PyTree) -> PyTree:
        """The perturbed value as a total, which the expected size divides to give the mean."""
        return total


EQUALLY = Weighting()


@dataclass(frozen=True)
class ByExamples(Weighting):
    """Client k, with n_k examples, has the weight w_k = min(n_k / cap, 1).

    Formal guarantees: an update is clipped to S before it is weighted, and w_k <= 1.

    - "fixed": f_f = sum_k w_k Delta_k / (q W). One client moves the sum by S, as without weights.
    - "clipped": f_c = sum_k w_k Delta_k / max(q W_min, sum_k w_k). One client that is left out, or sends zeros, moves
      it by 2 S / (q W_min): w_k S over the denominator in its own part, and as much through the denominator, which
      scales a mean of at most S. Replaced by another it moves it by twice that. This is so in any norm, so for any
      clipping. What is perturbed is f_c q W_min / 2, which one client moves by S. The server adds the noise, after it
      has divided.

    So both are releases of the mechanism as it is, of multiplier z; the mean gets noise of deviation z S / (q W), or
    2 z S / (q W_min).

    Attributes:
      cap: w_hat, in examples; clients with at least so many count equally.
      mean: the mean weight of all n clients, W / n ("fixed"), or a lower bound on it, W_min / n ("clipped"). It has to
        be public: do not compute it from the clients' numbers of examples. 1 is always safe, and makes the steps
        shorter.
      estimator: "fixed" (f_f) or "clipped" (f_c).

    Raises:
      ValueError: a cap that is not positive, a mean weight outside (0, 1], or an unknown estimator.
    """

    cap: Positive
    mean: Rate = 1.0
    estimator: Literal["fixed", "clipped"] = "fixed"

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def adder(self) -> Literal["shares", "server"]:
        """As `Weighting`."""
        return "server" if self.estimator == "clipped" else "shares"

    @property
    def bits(self) -> int:
        """As `Weighting`."""
        return 32

    def weigh(self, message: PyTree, size: jax.Array) -> tuple[PyTree, PyTree]:
        """As `Weighting`."""
        cap = min(self.cap, float(jnp.finfo(jnp.float32).max))
        weight = jnp.minimum(jnp.asarray(size, jnp.float32) / cap, 1.0)
        return jax.tree.map(lambda u: weight * u, message), weight

    def bounded(self, total: PyTree, weights: PyTree, expected_size: Positive) -> PyTree:
        """As `Weighting`."""
        expected_size = checked("expected_size", expected_size, Positive)
        if self.adder != "server":
            return total
        least = expected_size * self.mean  # q W_min
        share = least / 2 / jnp.maximum(least, jnp.sum(weights))
        return jax.tree.map(lambda s: share * s, total)

    def shown(self, total: PyTree) -> PyTree:
        """As `Weighting`."""
        factor = (2 if self.adder == "server" else 1) / self.mean
        return jax.tree.map(lambda s: factor * s, total)


@dataclass(frozen=True)
class ByPublicSizes(Weighting):
    """Client k, with n_k records, has the weight n_k / mean(n); all n_k are public (`fp.PublicSizes`).

    Formal guarantees: messages that are private already stay so; their sum is not taken to have the noise of all.

    Attributes:
      sizes: [clients], such as `federation.size`.

    Raises:
      ValueError: no clients, or one without records.
    """

    sizes: Sequence[Count]

    def __post_init__(self) -> None:
        check_fields(self)
        remedy = "give the number of records of each client"
        require(len(self.sizes) > 0, "sizes", self.sizes, remedy)

    def weigh(self, message: PyTree, size: jax.Array) -> tuple[PyTree, PyTree]:
        """As `Weighting`."""
        weight = jnp.asarray(size, jnp.float32) * (len(self.sizes) / sum(self.sizes))
        return jax.tree.map(lambda u: (weight * u).astype(u.dtype), message), ()
