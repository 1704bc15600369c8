"""The joint law of all that a view sees in a tiny round, written out by hand; nothing here is fedpriv's.

A `Way` is one way in which a round may go: who takes part, what of that the view is told, the mean of the numbers that
it sees, and their independent noise. A law is all ways. Two of them are compared by their hockey-stick divergence.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
from scipy import stats


class Way(NamedTuple):
    """One way in which a round may go.

    Attributes:
      chance: of this way.
      told: what of it the view is told.
      mean: of each number that the view sees.
      scale: of the noise of each: a standard deviation, or the scale of Laplace noise; 0 where there is none.
    """

    chance: float
    told: Hashable
    mean: tuple[float, ...]
    scale: tuple[float, ...]


Law = tuple[Way, ...]
Cohorts = list[tuple[float, tuple[int, ...]]]
"""(chance, members) of each."""
Messages = Mapping[int, Sequence[float]]
"""What each client sends in a round: a number for each sum, or for each local step."""


def everyone(*clients: int) -> Cohorts:
    return [(1.0, clients)]


def joining(rate: float, *clients: int) -> Cohorts:
    """Each on its own."""
    subsets = (c for n in range(len(clients) + 1) for c in combinations(clients, n))
    return [(rate ** len(c) * (1 - rate) ** (len(clients) - len(c)), c) for c in subsets]


def one_of(*clients: int) -> Cohorts:
    """A uniform one of them."""
    return [(1 / len(clients), (c,)) for c in clients]


def seen(
    view: str,
    cohorts: Cohorts,
    sends: Messages,
    sigma: float,
    adder: str,
    *,
    shares: float = 2.0,
    honest: float = 1.0,
    lost: bool = False,
    told: bool = False,
) -> Law:
    """What a view sees of one round: each message, or their sum, and from the server on who sends it.

    Args:
      sends: of the clients.
      sigma: of the noise of a sum; of noise of their own (`adder` "own"), of each member.
      adder: "shares", "own", "server" or "enclave".
      shares: into so many the variance is divided.
      honest: the part of the variance of a sum that the view does not know.
      lost: whether only the shares of members are there.
      told: whether a third party knows who takes part, too.
    """
    law = []
    for chance, members in cohorts:
        means = [np.asarray(sends[i], float) for i in members]
        if view == "server":
            of_one = {"own": sigma, "shares": sigma / shares**0.5}.get(adder, 0.0)
            mean = np.concatenate([*means, []])
            scale = np.full(len(mean), of_one)
        else:
            count = len(next(iter(sends.values())))
            mean = np.sum(means, axis=0) if means else np.zeros(count)
            variance = sigma**2 * (len(members) if adder == "own" else 1)
            variance *= len(members) / shares if lost else 1
            if adder == "server" and view != "third_party":
                variance = 0.0
            scale = np.full(count, (variance * honest) ** 0.5)
        shown = members if told or view != "third_party" else ()
        law.append(Way(chance, shown, tuple(mean), tuple(scale)))
    return tuple(law)


def both(*rounds: Law) -> Law:
    """Rounds, or parts of one, that are drawn independently."""
    return tuple(
        Way(
            float(np.prod([way.chance for way in ways])),
            tuple(way.told for way in ways),
            sum((way.mean for way in ways), ()),
            sum((way.scale for way in ways), ()),
        )
        for ways in product(*rounds)
    )


def given(told: Iterable[tuple[float, Hashable, Law]]) -> Law:
    """One of these laws: which one the view is told."""
    return tuple(
        way._replace(chance=chance * way.chance, told=(name, way.told))
        for chance, name, law in told
        for way in law
    )


@cache
def deltas(p: Law, q: Law, epsilons: tuple[float, ...], noise: str = "gaussian") -> np.ndarray:
    """The larger hockey-stick divergence of both directions, f64[epsilons]: exact, or by quadrature on a grid."""
    odds, total = np.exp(np.asarray(epsilons)), np.zeros((2, len(epsilons)))
    for shown in {_shown(way) for way in (*p, *q)}:
        mine, other = (tuple(way for way in law if _shown(way) == shown) for law in (p, q))
        total += _of_one_case(mine, other, odds, noise)
    return total.max(axis=0)


def _shown(way: Way) -> Hashable:
    """What the view is told, and what no noise hides."""
    return way.told, tuple(m if s == 0 else None for m, s in zip(way.mean, way.scale, strict=True))


def _of_one_case(p: Law, q: Law, odds: np.ndarray, noise: str) -> np.ndarray:
    """Both directions, f64[2, odds]; neither law need have a mass of 1."""
    chances = [math.fsum(way.chance for way in law) for law in (p, q)]
    every = {(way.mean, way.scale) for way in (*p, *q)}
    plain = all(len({way.mean for way in law}) == 1 for law in (p, q))
    if len(every) == 1 or not all(chances):
        return np.array([np.maximum(0.0, a - odds * b) for a, b in (chances, chances[::-1])])
    if plain and noise == "gaussian" and len({scale for _, scale in every}) == 1:
        return np.array([_of_normals(p[0], q[0], a, odds * b) for a, b in (chances, chances[::-1])])
    return _on_a_grid(p, q, odds, stats.norm if noise == "gaussian" else stats.laplace)


def _of_normals(p: Way, q: Way, mine: float, other: np.ndarray) -> np.ndarray:
    """Of `mine` times a normal law against `other` times one that is moved (Balle and Wang 2018)."""
    scale = np.array(p.scale)
    far = np.linalg.norm(np.subtract(p.mean, q.mean)[scale > 0] / scale[scale > 0])
    at = np.log(other / mine) / far
    return mine * stats.norm.cdf(far / 2 - at) - other * stats.norm.cdf(-far / 2 - at)


def _on_a_grid(p: Law, q: Law, odds: np.ndarray, kind: stats.rv_continuous) -> np.ndarray:
    """Mixtures in one or two dimensions; steps of both axes have no common measure, so that errors cancel."""
    seen = [i for i, scale in enumerate(p[0].scale) if scale > 0]
    assert len(seen) < 3
    axes = []
    for i, points in zip(seen, (1201, 1039) if len(seen) == 2 else (100_001,), strict=True):
        tails = 6.5 if kind is stats.norm else 24.0
        low = min(way.mean[i] - tails * way.scale[i] for way in (*p, *q))
        high = max(way.mean[i] + tails * way.scale[i] for way in (*p, *q))
        axes.append(np.linspace(low, high, points))

    def density(law: Law) -> np.ndarray:
        each = [
            np.array([kind.pdf(x, way.mean[i], way.scale[i]) for way in law])
            for i, x in zip(seen, axes, strict=True)
        ]
        each[0] = each[0] * np.array([way.chance for way in law])[:, None]
        return each[0].sum(axis=0) if len(each) == 1 else each[0].T @ each[1]

    cell = math.prod(x[1] - x[0] for x in axes)
    return _divergences(density(p) * cell, density(q) * cell, odds)


def _divergences(p: np.ndarray, q: np.ndarray, odds: np.ndarray) -> np.ndarray:
    """Of two vectors of probabilities, both directions, f64[2, odds]."""
    both_ways = (p, q), (q, p)
    return np.array([[np.maximum(a - odd * b, 0.0).sum() for odd in odds] for a, b in both_ways])


def of_integers(
    noise: tuple[int, float], moved: tuple[int, ...], epsilons: Sequence[float]
) -> np.ndarray:
    """As `deltas`, of one or two sums of integers: by enumeration.

    Args:
      noise: of each sum: how many discrete Gaussian shares, and the parameter of one.
      moved: how far a unit moves each.
    """
    shares, variance = noise
    most = math.ceil(8.5 * math.sqrt(variance))
    share = np.exp(-(np.arange(-most, most + 1.0) ** 2) / (2 * variance))
    law = np.ones(1)
    for _ in range(shares):
        law = np.convolve(law, share / share.sum())
    p, q = np.ones(()), np.ones(())
    for far in moved:
        p = np.multiply.outer(p, np.pad(law, (0, far)))
        q = np.multiply.outer(q, np.pad(law, (far, 0)))
    return _divergences(p, q, np.exp(np.asarray(epsilons))).max(axis=0)
