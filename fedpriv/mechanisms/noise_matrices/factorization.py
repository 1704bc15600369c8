"""What every factorization has: its matrices, its noise in a stream, its sensitivity."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedpriv.core.arguments import Count, Range, checked
from fedpriv.core.complaints import require
from fedpriv.core.types import PyTree
from fedpriv.privacy.strategy_sensitivity import most_participations, sensitivity
from fedpriv.proof.noise import Floats

MOST_ROUNDS = 10_000
Rounds: TypeAlias = Annotated[
    int,
    Range(
        f"a whole number from 1 to {MOST_ROUNDS}, as matrices have a row for each round",
        1,
        MOST_ROUNDS,
        integer=True,
    ),
]


class Factorization(ABC):
    """A strategy matrix C, and its noise C^-1 z for independent z ~ N(0, 1). Equal numbers make equal factorizations.

    Attributes:
      rounds: the longest run that it supports; None for any.
      bands: number of bands of C; None if C is not banded.
    """

    rounds: int | None
    bands: int | None = None

    @property
    @abstractmethod
    def memory_size(self) -> int:
        """How many numbers are kept between rounds for each coordinate of the sum."""

    def init(self, like: PyTree) -> PyTree:
        """The memory before the first round: f32[memory_size, n] for each leaf of n numbers, f64 where the leaf is.

        Args:
          like: the sum that gets the noise, or its shapes and types.
        """
        return jax.tree.map(self._empty, like)

    def next(self, memory: PyTree, z: PyTree, t: jax.Array) -> tuple[PyTree, PyTree]:
        """The noise of round t (row t of C^-1, applied to z of rounds 0 to t), and the memory for the next round.

        Args:
          memory: that of the previous round, or of `init`.
          z: fresh noise N(0, 1) of this round, in the shapes of the sum.
          t: i32[], the round.
        """
        leaves: list[jax.Array]
        treedef: Any
        leaves, treedef = jax.tree.flatten(z)
        kept = treedef.flatten_up_to(memory)
        # Flat, as XLA's sums over the rows of matrices are several times slower.
        flat = [x.astype(m.dtype).reshape(-1) for m, x in zip(kept, leaves, strict=True)]
        both = [self._next(m, x, t) for m, x in zip(kept, flat, strict=True)]
        noise = [x.reshape(z.shape) for (x, _), z in zip(both, leaves, strict=True)]
        return treedef.unflatten(noise), treedef.unflatten([after for _, after in both])

    def strategy(self, rounds: Rounds) -> Floats:
        """C, f64[rounds, rounds], lower triangular: a run releases C times the sums, with noise N(0, 1) on each row.

        Raises:
          ValueError: more rounds than it supports, or than 10,000.
        """
        return self._strategy(self._checked(rounds))

    def noising(self, rounds: Rounds) -> Floats:
        """f64[rounds, rounds], lower triangular: the matrix that `next` applies to z.

        Raises:
          ValueError: more rounds than it supports, or than 10,000.
        """
        return self._noising(self._checked(rounds))

    def sensitivity(
        self, rounds: Rounds, separation: Count = 1, most: Count | None = None
    ) -> float:
        """The largest ||C u|| of a unit whose contributions have norm at most 1.

        With noise sigma z the whole run is one Gaussian release of multiplier sigma / sensitivity.

        Args:
          rounds: of the run.
          separation: least number of rounds from one participation of a unit to the next.
          most: most rounds in which a unit takes part; None for as many as fit.

        Raises:
          ValueError: more rounds than it supports, or than 10,000; a count below 1.
        """
        return sensitivity(self.strategy(rounds), separation, most)

    @abstractmethod
    def _strategy(self, rounds: int) -> Floats: ...

    def _noising(self, rounds: int) -> Floats:
        return inverse(self._strategy(rounds))

    @abstractmethod
    def _next(self, memory: Any, z: jax.Array, t: jax.Array) -> tuple[jax.Array, Any]: ...

    def _empty(self, leaf: Any) -> Any:
        dtype = jnp.promote_types(leaf.dtype, jnp.float32)
        return jnp.zeros((self.memory_size, math.prod(leaf.shape)), dtype)

    def _checked(self, rounds: Rounds) -> int:
        rounds = checked("rounds", rounds, Rounds)
        fits = self.rounds is None or rounds <= self.rounds
        require(fits, "rounds", rounds, f"{self!r} is for at most {self.rounds}; make it for more")
        return rounds


@dataclass(frozen=True)
class Identity(Factorization):
    """C = 1: fresh noise in every round, to the bit, and no memory."""

    rounds = None
    bands = 1
    memory_size = 0

    def init(self, like: PyTree) -> PyTree:
        """No memory."""
        return ()

    def next(self, memory: PyTree, z: PyTree, t: jax.Array) -> tuple[PyTree, PyTree]:
        """The noise as it is."""
        return z, memory

    def sensitivity(self, rounds: Count, separation: Count = 1, most: Count | None = None) -> float:
        """The square root of the number of participations."""
        return math.sqrt(most_participations(rounds, separation, most))

    def _strategy(self, rounds: int) -> Floats:
        return np.eye(rounds)

    def _next(self, memory: Any, z: jax.Array, t: jax.Array) -> tuple[jax.Array, Any]:
        return z, memory

    def __repr__(self) -> str:
        return "fp.noise_matrices.identity()"


def identity(rounds: Count | None = None) -> Factorization:
    """The factorization of independent noise in every round: the Gaussian mechanism.

    Args:
      rounds: T, as of the others; the noise is the same for any number of rounds.

    Raises:
      ValueError: rounds below 1.
    """
    checked("rounds", rounds, Count | None)
    return Identity()


def inverse(lower: Floats) -> Floats:
    """The inverse of a factorization's lower triangular matrix, f64[T, T]."""
    from scipy.linalg import solve_triangular

    return np.asarray(solve_triangular(lower, np.eye(len(lower)), lower=True))


def toeplitz(coefficients: Floats, rounds: int) -> Floats:
    """The lower triangular f64[T, T] with these on the first column; zeros are added, what is too long is cut."""
    from scipy.linalg import toeplitz as symmetric

    column = np.zeros(rounds)
    column[: len(coefficients)] = coefficients[:rounds]
    return np.tril(symmetric(column))
