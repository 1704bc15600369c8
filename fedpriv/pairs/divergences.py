"""Rényi divergences of a pair, with dp-accounting where it knows the draw."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from fedpriv.core.complaints import require
from fedpriv.pairs.integer_noise import IntegerNoise, drawn_without_replacement, poisson_sampled
from fedpriv.proof.noise import Floats
from fedpriv.proof.pairs import ROUNDING, SEEN, All, AnyPair, Moved, Pair, Rest, Times, Told, fold
from fedpriv.proof.verify import Witness

_QUIETEST = 1e-6  # a move that is less counts as this one; divergences would be lost in rounding
_ROUNDING = 1e-14  # of log E[(P / Q)^a], as dp-accounting computes it for one draw
_HARMLESS = ("failed to converge after", "Optimal order is the")

DivergenceOrders: TypeAlias = tuple[float, ...]


class Divergent(Rest):
    """What the end of a run shows of pairs, of which divergences are known."""

    @abstractmethod
    def renyi(self, orders: DivergenceOrders) -> Floats | None:
        """As `renyi`."""

    @property
    @abstractmethod
    def never_hidden(self) -> float:
        """As `never_hidden`."""


@dataclass(frozen=True)
class Orders(Witness):
    """Rényi divergences of these orders, of `usual_orders`: of others, dp-accounting's rounding may decide."""

    orders: tuple[float, ...]

    def __post_init__(self) -> None:
        fine = len(self.orders) > 0 and set(self.orders) <= set(usual_orders())
        require(fine, "orders", self.orders, "give some of dp-accounting's default orders")

    def deltas(self, pair: AnyPair, epsilon: Floats) -> Floats:
        """Of what divergences prove, and of cases in which all is seen."""
        total = renyi(pair, self.orders)
        if total is None:
            raise self.unknown()
        return never_hidden(pair) + divergence_delta(total, epsilon, self.orders)


@lru_cache(maxsize=1)
def usual_orders() -> DivergenceOrders:
    """dp-accounting's."""
    from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS

    return tuple(map(float, DEFAULT_RDP_ORDERS))


def renyi(pair: AnyPair, orders: DivergenceOrders) -> Floats | None:
    """Rényi divergences, f64[orders], the larger of both directions; None where none are known.

    Formal guarantees: an upper bound. A secret move at a rate: Mironov, Talwar and Zhang 2019. A unit of a uniform
    subset that is replaced: Wang, Balle and Kasiviswanathan 2019, Theorem 27 (of integers Theorem 9), and no more than
    without sampling, as divergences are jointly quasi-convex; members that vanish are counted as if they stayed: given
    who is drawn, the sum is a mixture, over who else stays, of Gaussians that one member replaced, or left out, moves
    by its distance at most. Of told cases e^((a - 1) D_a) is the mean of theirs.

    Cases in which all is seen are left out, see `never_hidden`.
    """
    if isinstance(pair, Rest):
        return pair.renyi(orders) if isinstance(pair, Divergent) else None

    def mixed(cases: list[tuple[float, Floats | None]]) -> Floats | None:
        shown: list[tuple[float, Floats]] = []
        for chance, divergences in cases:
            if divergences is None:
                return None
            shown.append((chance, divergences))
        return of_cases(shown, orders)

    def composed(each: list[Floats | None]) -> Floats | None:
        total = np.zeros(len(orders))
        for divergences in each:
            if divergences is None:
                return None
            total = total + divergences
        return total

    def leaf(draw: Pair) -> Floats | None:
        return _of_draw(draw, orders)

    def repeated(once: Floats | None, n: int) -> Floats | None:
        return None if once is None else n * once

    return fold(_without_seen(pair), leaf, mixed, repeated, composed)


def never_hidden(pair: AnyPair) -> float:
    """A bound on the chance that a told case shows all: it is added to what divergences prove of the other cases."""
    if isinstance(pair, Rest):
        return pair.never_hidden if isinstance(pair, Divergent) else 1.0
    return min(
        1.0,
        fold(
            pair,
            lambda draw: float(draw == SEEN),
            lambda cases: math.fsum(chance * x for chance, x in cases),
            lambda x, n: n * x,
            math.fsum,
        ),
    )


def _without_seen(pair: Pair) -> Pair:
    """Given that no told case shows all; where nothing else may happen, as it is."""

    def mixed(cases: list[tuple[float, Pair]]) -> Pair:
        kept = [(chance, case) for chance, case in cases if case != SEEN]
        if len(kept) in (0, len(cases)):
            return Told(tuple(cases))
        whole = math.fsum(chance for chance, _ in kept)
        return Told(tuple((chance / whole, case) for chance, case in kept))

    return fold(pair, lambda draw: draw, mixed, Times, lambda each: All(tuple(each)))


def of_cases(cases: Sequence[tuple[float, Floats]], orders: DivergenceOrders) -> Floats:
    """Divergences of (case, output) for a view that is told the case: E over the cases of e^((a - 1) D_a)."""
    less_one = np.asarray(orders) - 1
    terms = [math.log(chance) + less_one * divergences for chance, divergences in cases]
    return np.asarray(np.logaddexp.reduce(terms)) / less_one


@lru_cache(maxsize=512)
def _of_draw(draw: Pair, orders: DivergenceOrders) -> Floats | None:
    """None: dp-accounting has no amplification by sampling of Laplace noise, nor by blocks, nor of several units."""
    if not isinstance(draw, Moved) or math.isinf(draw.law[-1][0]) or len(draw.law) > 1:
        return None
    far, rate = draw.law[0]
    if isinstance(draw.noise, IntegerNoise):
        return _of_integers(draw.noise.moved(far), rate, draw, orders)
    import dp_accounting as dp

    multiplier = 1 / max(far, _QUIETEST)
    if draw.is_sure and draw.noise == "laplace":
        return _divergences(dp.LaplaceDpEvent(multiplier), orders)
    if draw.noise != "gaussian":
        return None
    if draw.is_sure:
        return _divergences(dp.GaussianDpEvent(multiplier), orders)
    noisy = dp.GaussianDpEvent(multiplier)
    rounding = _ROUNDING / (np.asarray(orders) - 1)
    if not draw.replaced:
        return _divergences(dp.PoissonSampledDpEvent(rate, noisy), orders) + rounding
    if draw.subset is None:
        return None
    check_subset(draw)
    size, population = draw.subset.as_integer_ratio()
    drawn = dp.SampledWithoutReplacementDpEvent(population, size, noisy)
    sampled = _divergences(drawn, orders, "REPLACE_ONE") + rounding
    return np.minimum(_divergences(noisy, orders), sampled)


def _of_integers(
    noise: IntegerNoise, rate: float, draw: Moved, orders: DivergenceOrders
) -> Floats | None:
    """By the exact law of the noise."""
    if draw.is_sure:
        return np.array([noise.divergence(order) for order in orders])
    if draw.replaced and draw.subset is None:
        return None
    of_one = [noise.divergence(max(a, 2)) for a in range(math.ceil(max(orders)) + 1)]
    if not draw.replaced:
        return np.array([poisson_sampled(order, rate, of_one) for order in orders])
    assert draw.subset is not None
    check_subset(draw)
    drawn = np.array([drawn_without_replacement(a, draw.subset, of_one) for a in orders])
    return np.minimum(drawn, [noise.divergence(order) for order in orders])


def check_subset(draw: Moved) -> None:
    """Raises ValueError: the subset is rarer than its members, or the unit is none that is replaced."""
    least = math.fsum(p for _, p in draw.law) * (1 - ROUNDING)
    fine = draw.subset is None or (draw.replaced and least <= draw.subset <= 1)
    remedy = (
        "give the rate of being drawn, no less than that of the law, of a unit that is replaced"
    )
    require(fine, "subset", draw.subset, remedy)


def _divergences(
    event: Any, orders: DivergenceOrders, relation: str = "ADD_OR_REMOVE_ONE"
) -> Floats:
    import dp_accounting as dp
    from dp_accounting.rdp import RdpAccountant

    with quiet():
        accountant = RdpAccountant(orders, dp.NeighboringRelation[relation])
        return np.asarray(accountant.compose(event).rdp)


def divergence_delta(total: Floats, epsilon: Floats, orders: DivergenceOrders) -> Floats:
    """f64[n], for epsilon f64[n]: Canonne, Kamath and Steinke 2020, and never more than at 0 (Bretagnolle, Huber)."""
    a = np.asarray(orders)
    logs = (a - 1) * (total - epsilon[:, None] + np.log1p(-1 / a)) - np.log(a)
    apart = math.sqrt(-math.expm1(-float(total.min())))
    return np.minimum(np.exp(np.minimum(logs.min(axis=1), 0.0)), apart)


def divergence_epsilon(
    total: Floats, delta: float, orders: DivergenceOrders
) -> tuple[float, float]:
    """(epsilon, the order that gives it), by the same conversion."""
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    with quiet():
        epsilon, order = rdp.compute_epsilon(orders, total, delta)
    return float(epsilon), float(order)


@contextmanager
def quiet() -> Iterator[None]:
    """Drops dp-accounting's remarks that a Rényi order was left out, or the best is the last."""

    def keep(record: logging.LogRecord) -> bool:
        return not any(text in str(record.msg) for text in _HARMLESS)

    logger = logging.getLogger("absl")
    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)
