"""Banded matrices: C with b bands, or C^-1 with b bands.

C: C. A. Choquette-Choo et al., arXiv:2306.08153; R. McKenna, arXiv:2405.15913 (Toeplitz). C^-1: N. P. Kalinin, R.
McKenna, J. Upadhyay, C. H. Lampert, "Back to Square Roots", arXiv:2505.12128.

Either way a round's noise needs b - 1 earlier vectors. They lie in a ring: that of round s in row s mod its length.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.arguments import Count, Decay, checked
from fedpriv.core.complaints import require
from fedpriv.mechanisms.noise_matrices.errors import per_contribution
from fedpriv.mechanisms.noise_matrices.factorization import (
    Factorization,
    Identity,
    Rounds,
    inverse,
    toeplitz,
)
from fedpriv.proof.noise import Floats

Rows = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, repr=False)
class Banded(Factorization):
    """C with b bands: C_t0 x_t + sum_j C_tj x_(t-j) = z_t gives the noise x_t from that of the b - 1 rounds before.

    Attributes:
      made_by: the call.
      rounds: T.
      rows: for each round the entries from the diagonal leftwards, f64[T, b]; one row where they are all the same.
    """

    made_by: str
    rounds: int
    rows: Rows

    @property
    def bands(self) -> int:  # type: ignore[override]
        """B, at least 2."""
        return len(self.rows[0])

    @property
    def memory_size(self) -> int:
        """The noise of b - 1 rounds."""
        return self.bands - 1

    def _strategy(self, rounds: int) -> Floats:
        row, back = np.meshgrid(np.arange(rounds), np.arange(self.bands), indexing="ij")
        entries = np.broadcast_to(self.rows, (self.rounds, self.bands))[:rounds]
        there = back <= row
        c = np.zeros((rounds, rounds))
        c[row[there], (row - back)[there]] = entries[there]
        return c

    def _next(self, memory: jax.Array, z: jax.Array, t: jax.Array) -> tuple[jax.Array, Any]:
        row = jnp.asarray(self.rows, memory.dtype)[jnp.minimum(t, len(self.rows) - 1)]
        noise = (z - weighted(row[1 + ages(memory, t - 1)], memory)) / row[0]
        return noise, remembered(memory, noise, t)

    def __repr__(self) -> str:
        return self.made_by


@dataclass(frozen=True, repr=False)
class BandedInverse(Factorization):
    """C^-1 is Toeplitz with b bands: the noise is sum_j a_j z_(t-j).

    Attributes:
      made_by: the call.
      rounds: T.
      coefficients: a, f64[b].
    """

    made_by: str
    rounds: int
    coefficients: tuple[float, ...]

    @property
    def memory_size(self) -> int:
        """Fresh noise of b rounds: written before it is read, or XLA would copy all of it."""
        return len(self.coefficients)

    def _strategy(self, rounds: int) -> Floats:
        return inverse(self._noising(rounds))

    def _noising(self, rounds: int) -> Floats:
        return toeplitz(np.array(self.coefficients), rounds)

    def _next(self, memory: jax.Array, z: jax.Array, t: jax.Array) -> tuple[jax.Array, Any]:
        a = jnp.asarray(self.coefficients, memory.dtype)
        memory = remembered(memory, z, t)
        return weighted(a[ages(memory, t)], memory), memory

    def __repr__(self) -> str:
        return self.made_by


def ages(memory: jax.Array, latest: jax.Array) -> jax.Array:
    """Of banded noise, i32[rows]: how many rounds before `latest` the vector in each row of the ring was remembered."""
    return (latest - jnp.arange(len(memory))) % len(memory)


def weighted(weights: jax.Array, memory: jax.Array) -> jax.Array:
    """Of banded noise: the sum of the ring's rows, times their weights."""
    return jnp.tensordot(weights, memory, axes=1, precision=jax.lax.Precision.HIGHEST)


def remembered(memory: jax.Array, x: jax.Array, t: jax.Array) -> jax.Array:
    """The ring with x of round t in place of the oldest; `memory.at[].set` would have XLA copy all of it in a scan."""
    return jax.lax.dynamic_update_index_in_dim(memory, x, t % len(memory), 0)


def banded_toeplitz(rounds: Rounds, bands: Count, momentum: Decay = 0.0) -> Factorization:
    """Toeplitz C of norm 1 with `bands` bands, optimised for the mean squared `error` under the momentum.

    Its sensitivity is sqrt(k) if units take part at most k times, at least `bands` rounds apart.
    `jax_privacy.matrix_factorization` optimises it in about 5 seconds. One band is `identity`.

    Args:
      rounds: T.
      bands: b, at most T; memory is b - 1 vectors.
      momentum: of the server's SGD; 0 for prefix sums.

    Raises:
      ValueError: more bands than rounds, more than 10,000 rounds, a count below 1, or a momentum of 1 or more.
    """
    rounds, bands, momentum = _checked(rounds, bands, momentum)
    if bands == 1:
        return Identity()
    made_by = _call("banded_toeplitz", rounds, bands, momentum)
    return Banded(made_by, rounds, (tuple(_toeplitz(rounds, bands, momentum)),))


def banded(rounds: Rounds, bands: Count, momentum: Decay = 0.0) -> Factorization:
    """C with `bands` bands and columns of norm 1, optimised for the mean squared `error` under the momentum.

    Its error is a little smaller than that of `banded_toeplitz`: by less than 1 % for 1,000 rounds. Optimising takes
    seconds for 100 rounds, and minutes for 1,000.

    Args:
      rounds: T. A shorter run has the same noise, and at most the same sensitivity.
      bands: b, at most T; memory is b - 1 vectors.
      momentum: of the server's SGD; 0 for prefix sums.

    Raises:
      ValueError: more bands than rounds, more than 10,000 rounds, a count below 1, or a momentum of 1 or more.
    """
    rounds, bands, momentum = _checked(rounds, bands, momentum)
    if bands == 1:
        return Identity()
    made_by = _call("banded", rounds, bands, momentum)
    return Banded(made_by, rounds, _normalized(rounds, bands, momentum))


def banded_inverse(rounds: Rounds, bands: Count, momentum: Decay = 0.0) -> Factorization:
    """Toeplitz C^-1 with `bands` bands: the first coefficients of (1 - x)^1/2, which are 1, -1/2, -1/8, -1/16, ...

    This is the banded inverse square root (BISR), for units that take part several times. One band is `identity`. Under
    a momentum m the inverse of the workload's square root is (1 - x)^1/2 (1 - m x)^1/2. Cut to few bands, it may leave
    more noise than the one for prefix sums; see `least_error`.

    Args:
      rounds: T.
      bands: b, at most T; memory is b vectors.
      momentum: of the server's SGD; 0 for prefix sums.

    Raises:
      ValueError: more bands than rounds, more than 10,000 rounds, a count below 1, or a momentum of 1 or more.
    """
    rounds, bands, momentum = _checked(rounds, bands, momentum)
    if bands == 1:
        return Identity()
    j = np.arange(1, bands)
    root = np.cumprod(np.append(1.0, (j - 1.5) / j))
    both = np.convolve(root, root * momentum ** np.arange(bands))[:bands]
    made_by = _call("banded_inverse", rounds, bands, momentum)
    return BandedInverse(made_by, rounds, tuple(both.tolist()))


def _checked(rounds: Rounds, bands: Count, momentum: Decay) -> tuple[int, int, float]:
    rounds, bands = checked("rounds", rounds, Rounds), checked("bands", bands, Count)
    require(bands <= rounds, "bands", bands, f"give at most the {rounds} rounds of the run")
    return rounds, bands, checked("momentum", momentum, Decay)


def _call(name: str, rounds: int, bands: int, momentum: float) -> str:
    under = f", momentum={momentum}" if momentum else ""
    return f"fp.noise_matrices.{name}(rounds={rounds}, bands={bands}{under})"


@lru_cache(maxsize=64)
def _toeplitz(rounds: int, bands: int, momentum: float) -> list[float]:
    from jax_privacy.matrix_factorization import optimization
    from jax_privacy.matrix_factorization import toeplitz as library

    workload = per_contribution(rounds, momentum)

    def loss(c: jax.Array) -> jax.Array:
        errors = library.per_query_error(strategy_coef=c, n=rounds, workload_coef=workload)
        return jnp.mean(errors) * jnp.sum(c**2)

    with jax.enable_x64():
        begin = library.optimal_max_error_strategy_coefs(bands)
        c = np.asarray(optimization.optimize(loss, begin))
    found: list[float] = (c / np.linalg.norm(c)).tolist()
    return found


@lru_cache(maxsize=64)
def _normalized(rounds: int, bands: int, momentum: float) -> Rows:
    from jax_privacy.matrix_factorization import banded as library
    from jax_privacy.matrix_factorization.streaming_matrix import momentum_sgd_matrix

    with jax.enable_x64():
        workload = momentum_sgd_matrix(momentum)
        c = np.asarray(library.optimize(rounds, bands=bands, A=workload).materialize())
    back = np.arange(rounds)[:, None] - np.arange(bands)
    rows = np.where(back >= 0, np.take_along_axis(c, np.maximum(back, 0), axis=1), 0.0)
    return tuple(map(tuple, rows.tolist()))
