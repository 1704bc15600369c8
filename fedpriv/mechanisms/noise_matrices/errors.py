"""How far the noise of a factorization takes what is learned away from what it would be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedpriv.core.arguments import Count, Decay, checked
from fedpriv.core.complaints import require
from fedpriv.mechanisms.noise_matrices.factorization import Factorization, Rounds
from fedpriv.proof.noise import Floats


class Error(NamedTuple):
    """Of the noise of a matrix: standard deviations in one coordinate, over the rounds of a run.

    Attributes:
      root_mean_square: square root of the average variance.
      largest: in the round with the largest variance.
    """

    root_mean_square: float
    largest: float


def error(
    factorization: Factorization,
    rounds: Rounds,
    separation: Count = 1,
    most: Count | None = None,
    momentum: Decay = 0.0,
) -> Error:
    """The noise of a matrix that stays in the model, scaled to 1-GDP for the whole run (for mu-GDP, divide by mu).

    Args:
      factorization: such as `banded_toeplitz(100, 8)`.
      rounds: of the run.
      separation, most: as for `Factorization.sensitivity`.
      momentum: of the server's SGD with rate 1. With 0, the model minus its start is the sum of all rounds so far.

    Raises:
      ValueError: more rounds than it is for, a count below 1, or a momentum of 1 or more.
    """
    given = isinstance(factorization, Factorization)
    require(given, "factorization", factorization, "give one such as fp.noise_matrices.tree(100)")
    momentum = checked("momentum", momentum, Decay)
    noise = factorization.noising(rounds)
    for t in range(1, len(noise)):
        noise[t] += momentum * noise[t - 1]
    variances = (np.cumsum(noise, axis=0) ** 2).sum(axis=1)
    scale = factorization.sensitivity(rounds, separation, most)
    return Error(scale * float(np.sqrt(variances.mean())), scale * float(np.sqrt(variances.max())))


def least_error(
    candidates: Sequence[Factorization],
    rounds: Rounds,
    separation: Count = 1,
    most: Count | None = None,
    momentum: Decay = 0.0,
) -> Factorization:
    """The candidate whose `error` has the smallest root mean square; the first one on a tie.

    Args:
      candidates: such as `[tree(100), banded_inverse(100, 8)]`.
      rounds, separation, most, momentum: as for `error`.

    Raises:
      ValueError: no candidates, or as `error`.
    """
    several = isinstance(candidates, Sequence) and not isinstance(candidates, str | bytes)
    known = several and all(isinstance(each, Factorization) for each in candidates)
    remedy = "give some in a list, such as [fp.noise_matrices.tree(100)]"
    require(known and len(candidates) > 0, "candidates", candidates, remedy)
    errors = [
        error(each, rounds, separation, most, momentum).root_mean_square for each in candidates
    ]
    return candidates[int(np.argmin(errors))]


def per_contribution(rounds: int, momentum: float) -> Floats:
    """f64[rounds]: what is in the model of a contribution after 0, 1, 2, ... rounds: 1, 1 + m, 1 + m + m^2, ..."""
    return np.cumsum(momentum ** np.arange(rounds))
