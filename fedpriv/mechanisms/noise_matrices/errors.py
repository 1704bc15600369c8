"""How far the noise of a factorization takes what is learned away from what it would be."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from fedpriv.core.arguments import Count, Decay, checked, require
from fedpriv.mechanisms.noise_matrices.factorization import Factorization, Rounds

Workload: TypeAlias = Literal["prefix", "momentum"]


class Error(NamedTuple):
    """Standard deviations of the noise in one coordinate, over the rounds of a run.

    Attributes:
      root_mean_square: of the average variance.
      largest: of the round with the largest variance.
    """

    root_mean_square: float
    largest: float


def error(
    factorization: Factorization,
    rounds: Rounds,
    separation: Count = 1,
    most: Count | None = None,
    of: Workload = "prefix",
    momentum: Decay = 0.9,
) -> Error:
    """The noise that is left in the model, at a noise that gives sensitivity 1 (for mu-GDP: divide by mu).

    Args:
      factorization: such as `banded_toeplitz(100, 8)`.
      rounds: of the run.
      separation, most: as for `Factorization.sensitivity`.
      of: "prefix" sums of all rounds, or those of a "momentum": the model less its start, for a learning rate of 1.
      momentum: of the second.

    Raises:
      ValueError: more rounds than it is for, a count below 1, an unknown workload, or a momentum of 1 or more.
    """
    given = isinstance(factorization, Factorization)
    require(given, "factorization", factorization, "give such as fp.noise_matrices.tree(100)")
    of = checked("of", of, Workload)
    momentum = checked("momentum", momentum, Decay)
    noise = factorization.noising(rounds)
    if of == "momentum":
        for t in range(1, len(noise)):
            noise[t] += momentum * noise[t - 1]
    variances = (np.cumsum(noise, axis=0) ** 2).sum(axis=1)
    scale = factorization.sensitivity(rounds, separation, most)
    return Error(scale * float(np.sqrt(variances.mean())), scale * float(np.sqrt(variances.max())))
