"""Buffered linear Toeplitz matrices (BLT): C with coefficients 1, sum_i s_i, sum_i s_i q_i, sum_i s_i q_i^2, ...

H. B. McMahan, Z. Xu, Y. Zhang, "A Hassle-free Algorithm for Private Learning in Practice: Don't Use Tree Aggregation,
Use BLTs", arXiv:2408.08868.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.arguments import Count, Decay, checked
from fedpriv.mechanisms.noise_matrices.errors import per_contribution
from fedpriv.mechanisms.noise_matrices.factorization import Factorization, Rounds, toeplitz
from fedpriv.proof.noise import Floats


@dataclass(frozen=True, repr=False)
class BufferedToeplitz(Factorization):
    """A few buffers, each of which decays and takes in the noise (Algorithm 3 of the paper).

    Attributes:
      rounds: T.
      decays: q, f64[buffers], from 0 to 1.
      scales: s, f64[buffers].
    """

    rounds: int
    decays: tuple[float, ...]
    scales: tuple[float, ...]

    @property
    def memory_size(self) -> int:
        """The buffers."""
        return len(self.decays)

    def _strategy(self, rounds: int) -> Floats:
        powers = np.array(self.decays) ** np.arange(rounds - 1)[:, None]
        return toeplitz(np.append(1.0, powers @ np.array(self.scales)), rounds)

    def _next(self, memory: jax.Array, z: jax.Array, t: jax.Array) -> tuple[jax.Array, Any]:
        decays = jnp.asarray(self.decays, memory.dtype).reshape(-1, *[1] * z.ndim)
        scales = jnp.asarray(self.scales, memory.dtype)
        past = jnp.tensordot(scales, memory, axes=1, precision=jax.lax.Precision.HIGHEST)
        noise = z - past
        return noise, decays * memory + noise

    def __repr__(self) -> str:
        return (
            f"fp.noise_matrices.blt(rounds={self.rounds}, decays={self.decays}, "
            f"scales={self.scales})"
        )


def blt(
    rounds: Rounds,
    separation: Count = 1,
    participations: Count | None = None,
    buffers: Count = 3,
    momentum: Decay = 0.0,
) -> Factorization:
    """A buffered linear Toeplitz matrix (BLT), optimised for the mean squared `error` under the momentum.

    `jax_privacy.matrix_factorization` finds it in half a minute. Under a momentum of 0.9 its bounds leave only about
    one useful buffer.

    Args:
      rounds: T.
      separation: least number of rounds from one participation of a unit to the next.
      participations: most rounds in which a unit takes part; None for as many as fit.
      buffers: memory in vectors; 2 to 5 suffice.
      momentum: of the server's SGD; 0 for prefix sums.

    Raises:
      ValueError: more than 10,000 rounds, a count below 1, a momentum of 1 or more, or buffers for which the
        optimisation fails.
    """
    rounds = checked("rounds", rounds, Rounds)
    separation = checked("separation", separation, Count)
    participations = checked("participations", participations, Count | None)
    buffers = checked("buffers", buffers, Count)
    momentum = checked("momentum", momentum, Decay)
    decays, scales = _optimized(rounds, separation, participations, buffers, momentum)
    return BufferedToeplitz(rounds, decays, scales)


@lru_cache(maxsize=64)
def _optimized(
    rounds: int, separation: int, participations: int | None, buffers: int, momentum: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    from jax_privacy.matrix_factorization import buffered_toeplitz as library
    from jax_privacy.matrix_factorization.toeplitz import per_query_error

    # To 1 in the limit, as the library's penalties are for.
    workload = per_contribution(rounds, momentum) * (1 - momentum)

    def error(inverse: library.BufferedToeplitz) -> jax.Array:
        noising = inverse.toeplitz_coefs(rounds)
        each = per_query_error(noising_coef=noising, workload_coef=workload, skip_checks=True)
        return jnp.mean(each)

    with jax.enable_x64():
        given = {"n": rounds, "min_sep": separation, "max_participations": participations}
        loss = replace(library.LossFn.build_min_sep(**given, error="mean"), error_for_inv=error)
        try:
            found, _ = library.optimize_loss(loss, num_buffers=buffers)
        except (RuntimeError, ValueError) as failure:
            raise ValueError(
                f"buffers: {buffers}; no matrix was found with so many; give fewer"
            ) from failure
        decays, scales = np.asarray(found.buf_decay), np.asarray(found.output_scale)
    return tuple(decays.tolist()), tuple(scales.tolist())
