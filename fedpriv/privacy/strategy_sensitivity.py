"""Sensitivity of a strategy matrix when a unit takes part in at most k rounds at least b apart, or once in a block.

C. A. Choquette-Choo et al., "(Amplified) Banded Matrix Factorization: A unified approach to private training",
arXiv:2306.08153: the participation schema, called b-min-sep there.

Released is C x plus noise of variance 1, x f64[T, d] being the sums of T rounds. A unit adds a vector of the unit ball
to those rows of x in which it takes part: u. It moves C x by C u, and the sensitivity is the largest Frobenius norm of
that.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from fedpriv.core.arguments import Count, checked
from fedpriv.core.complaints import require
from fedpriv.proof.noise import Floats


def most_participations(rounds: Count, separation: Count, most: Count | None = None) -> int:
    """For a sensitivity, k: as many rounds of a run as fit at that separation, and no more than `most`.

    Raises:
      ValueError: a count below 1.
    """
    rounds = checked("rounds", rounds, Count)
    separation = checked("separation", separation, Count)
    most = checked("most", most, Count | None)
    fit = -(-rounds // separation)
    return fit if most is None else min(most, fit)


def sensitivity(strategy: ArrayLike, separation: Count, most: Count | None = None) -> float:
    """The largest ||C u|| of a unit that takes part in at most `most` rounds, at least `separation` apart.

    Formal guarantees: an upper bound for every C. It is attained where C^T C has no negative entry between rounds that
    are `separation` apart and
      - C is lower triangular with `separation` bands or fewer, or
      - |C^T C| falls along its diagonals and with the distance from its main one, as of a Toeplitz C with coefficients
        that are not negative and do not increase.

    *Proof.* Let G = C^T C. For a pattern p of rounds, ||C u||^2 = sum_{i, j in p} G_ij <u_i, u_j> <= sum_{i, j in p}
    |G_ij|, with equality for equal u_i where no G_ij is negative. Two bounds on this sum follow, see `_of_earliest` and
    `_by_rows`, and the smaller is taken.

    Args:
      strategy: C, f64[m, T], a column for each round.
      separation: b, at least 1; 1 lets a unit take part in every round.
      most: k; None is as many as fit.

    Raises:
      ValueError: no matrix of finite numbers, or a count below 1.
    """
    c = np.asarray(strategy, np.float64)
    usable = c.ndim == 2 and c.size > 0 and bool(np.isfinite(c).all())
    require(usable, "strategy", strategy, "give a matrix of finite numbers with a column per round")
    separation = checked("separation", separation, Count)
    k = most_participations(c.shape[1], separation, most)
    gram = np.abs(c.T @ c)
    return math.sqrt(min(_of_earliest(gram, separation, k), _by_rows(gram, separation, k)))


def block_sensitivity(strategy: ArrayLike, block: Count) -> float:
    """The largest ||C u|| of a unit that takes part in at most one round of each block, any of it.

    Formal guarantees: an upper bound for every C, never above that of `sensitivity` for rounds that are one apart.
    It is attained for blocks of one round where C^T C has no negative entry, and where C^T C is diagonal.

    *Proof.* Let G = C^T C and p a pattern. As in `sensitivity`, ||C u||^2 <= sum_{i in p} (G_ii + sum_{j in p, j != i}
    |G_ij|). The rounds j are in blocks B other than that of i, one in each: the inner sum is at most that over B of the
    largest |G_ij| of j in B. With it each i has a bound v_i, and the sum of v_i over p is at most that over all blocks
    of their largest v_i.

    Args:
        strategy: C, f64[m, T], a column for each round.
        block: b, rounds of a block; the last may be shorter.

    Raises:
        ValueError: as `sensitivity`.
    """
    block = checked("block", block, Count)
    c = np.asarray(strategy, np.float64)
    apart = sensitivity(c, 1, most_participations(c.shape[-1], block))
    gram = np.abs(c.T @ c)
    starts = np.arange(0, len(gram), block)
    of_blocks = np.maximum.reduceat(gram, starts, axis=1)
    own = np.arange(len(gram))
    of_round = np.diag(gram) + of_blocks.sum(1) - of_blocks[own, own // block]
    return min(apart, math.sqrt(np.maximum.reduceat(of_round, starts).sum()))


def _of_earliest(gram: Floats, separation: int, k: int) -> float:
    """The sum of H over the earliest pattern 0, b, ..., (k - 1) b, where H is the least bound of |G| that falls.

    *Proof.* H(i, e) is the largest |G(i', i' + e')| of all i' >= i, e' >= e. The p-th round of any pattern is (p - 1) b
    or later, and lies (q - p) b or more before the q-th: so |G| of the two is at most H((p - 1) b, (q - p) b).
    """
    rounds = len(gram)
    start = np.arange(rounds)[:, None]
    padded = np.pad(gram, ((0, 0), (0, rounds)))
    falling = padded[start, start + np.arange(rounds)]
    for axis in (0, 1):
        falling = np.flip(np.maximum.accumulate(np.flip(falling, axis), axis), axis)
    earliest = falling[: k * separation : separation, : k * separation : separation]
    of_pairs = sum(float(earliest[: k - gap, gap].sum()) for gap in range(1, k))
    return float(earliest[:, 0].sum()) + 2 * of_pairs


def _by_rows(gram: Floats, separation: int, k: int) -> float:
    """max over patterns of sum_{i in p} v_i, where v_i is the largest sum_{j in p'} |G_ij| of a pattern p' with i.

    *Proof.* Every i of p has sum_{j in p} |G_ij| <= v_i. (Algorithm 4 of the paper, where p' need not hold i.)
    """
    rounds = np.arange(len(gram))
    apart = np.abs(rounds[:, None] - rounds) >= separation
    limit = k if k < most_participations(len(gram), separation) else None
    others = None if limit is None else limit - 1
    of_row = np.diag(gram) + _best_pattern(gram * apart, separation, others)
    return float(_best_pattern(of_row[:, None], separation, limit)[0])


def _best_pattern(weights: Floats, separation: int, most: int | None) -> Floats:
    """For each column of f64[T, n] >= 0, the largest sum over a pattern of rounds: f64[n].

    By dynamic programming from the last round to the first, once for each participation or, without `most`, for all.
    """
    rounds, columns = weights.shape
    best = np.zeros((rounds + separation, columns))  # of rounds t, t + 1, ...
    for _ in range(1 if most is None else most):
        after = best if most is None else best.copy()  # of one participation less
        for t in reversed(range(rounds)):
            best[t] = np.maximum(best[t + 1], weights[t] + after[t + separation])
    return best[0]
