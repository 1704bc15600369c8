"""Rényi divergences of a pair, with dp-accounting where it knows the draw."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from fedpriv.pairs.algebra import SEEN, All, AnyPair, Best, Moved, Pair, Slack, Times, Told, fold
from fedpriv.pairs.curves import Floats
from fedpriv.pairs.integer_noise import IntegerNoise, drawn_without_replacement, poisson_sampled

_QUIETEST = 1e-6  # a move that is less counts as this one; divergences would be lost in rounding
_ROUNDING = 1e-14  # of log E[(P / Q)^a], as dp-accounting computes it for one draw
_HARMLESS = ("failed to converge after", "Optimal order is the")

Orders = tuple[float, ...]


@lru_cache(maxsize=1)
def usual_orders() -> Orders:
    """dp-accounting's."""
    from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS

    return tuple(map(float, DEFAULT_RDP_ORDERS))


def renyi(pair: AnyPair, orders: Orders) -> Floats | None:
    """Rényi divergences, f64[orders], the larger of both directions; None where none are known.

    Formal guarantees: an upper bound. A secret move at a rate: Mironov, Talwar and Zhang 2019. A unit of a uniform
    subset that is replaced: Wang, Balle and Kasiviswanathan 2019, Theorem 27 (of integers Theorem 9), and no more than
    without sampling, as divergences are jointly quasi-convex; members that vanish are counted as if they stayed: given
    who is drawn, the sum is a mixture, over who else stays, of Gaussians that one member replaced, or left out, moves
    by its distance at most. Of told cases e^((a - 1) D_a) is the mean of theirs. The best of runs: see `_of_the_best`.

    Cases in which all is seen are left out, see `never_hidden`; of `Slack` nothing is known here but of its pair.
    """
    if isinstance(pair, Slack):
        return renyi(pair.of, orders)
    if isinstance(pair, Best):
        each = [renyi(one, orders) for one in pair.of]
        known = [divergences for divergences in each if divergences is not None]
        if len(known) < len(each):
            return None
        # Each run has settings drawn without looking at the data: its divergence is at most the largest of theirs.
        largest: Floats = np.max(known, axis=0)
        return _of_the_best(np.asarray(orders), largest, pair.mean) if pair.mean > 1 else largest

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
    """A bound on the chance that a told case shows all: it is added to what divergences prove of the other cases.

    Of the best of runs: that some run of a geometric number of them has such a case is at most their mean number times
    the chance of one; given that none has, the number is geometric, too, and smaller.
    """
    if isinstance(pair, Slack):
        return never_hidden(pair.of)
    if isinstance(pair, Best):
        return min(1.0, pair.mean * max(map(never_hidden, pair.of)))
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


def of_cases(cases: Sequence[tuple[float, Floats]], orders: Orders) -> Floats:
    """Divergences of (case, output) for a view that is told the case: E over the cases of e^((a - 1) D_a)."""
    less_one = np.asarray(orders) - 1
    terms = [math.log(chance) + less_one * divergences for chance, divergences in cases]
    return np.asarray(np.logaddexp.reduce(terms)) / less_one


@lru_cache(maxsize=512)
def _of_draw(draw: Pair, orders: Orders) -> Floats | None:
    """None: dp-accounting has no amplification by sampling of Laplace noise, nor by blocks, nor of several units."""
    if not isinstance(draw, Moved) or math.isinf(draw.law[-1][0]) or len(draw.law) > 1:
        return None
    far, rate = draw.law[0]
    if isinstance(draw.noise, IntegerNoise):
        return _of_integers(draw.noise.moved(far), rate, draw, orders)
    import dp_accounting as dp

    multiplier = 1 / max(far, _QUIETEST)
    if draw.is_sure:
        of_noise = {"gaussian": dp.GaussianDpEvent, "laplace": dp.LaplaceDpEvent}
        return _divergences(of_noise[draw.noise](multiplier), orders)
    if draw.noise == "laplace":
        return None
    noisy = dp.GaussianDpEvent(multiplier)
    rounding = _ROUNDING / (np.asarray(orders) - 1)
    if not draw.replaced:
        return _divergences(dp.PoissonSampledDpEvent(rate, noisy), orders) + rounding
    if draw.subset is None:
        return None
    size, population = draw.subset.as_integer_ratio()
    drawn = dp.SampledWithoutReplacementDpEvent(population, size, noisy)
    sampled = _divergences(drawn, orders, "REPLACE_ONE") + rounding
    return np.minimum(_divergences(noisy, orders), sampled)


def _of_integers(noise: IntegerNoise, rate: float, draw: Moved, orders: Orders) -> Floats | None:
    """By the exact law of the noise."""
    if draw.is_sure:
        return np.array([noise.divergence(order) for order in orders])
    if draw.replaced and draw.subset is None:
        return None
    of_one = [noise.divergence(max(a, 2)) for a in range(math.ceil(max(orders)) + 1)]
    if not draw.replaced:
        return np.array([poisson_sampled(order, rate, of_one) for order in orders])
    assert draw.subset is not None
    drawn = np.array([drawn_without_replacement(a, draw.subset, of_one) for a in orders])
    return np.minimum(drawn, [noise.divergence(order) for order in orders])


def _divergences(event: Any, orders: Orders, relation: str = "ADD_OR_REMOVE_ONE") -> Floats:
    import dp_accounting as dp
    from dp_accounting.rdp import RdpAccountant

    with quiet():
        accountant = RdpAccountant(orders, dp.NeighboringRelation[relation])
        return np.asarray(accountant.compose(event).rdp)


def _of_the_best(orders: Floats, once: Floats, mean: float) -> Floats:
    """Rényi divergences of the best of K runs, K geometric: Pr[K = k] = (1 - 1 / mean)^(k-1) / mean.

    Formal guarantees: Papernot and Steinke 2022 (arXiv:2110.03620), Theorem 2 with eta = 1 and gamma = 1 / mean.
    """
    least = np.min(choice_cost(orders, once, mean))
    return once + 2 * least + math.log(mean) / (orders - 1)


def choice_cost(orders: Floats, once: Floats, mean: float) -> Floats:
    """What choosing adds twice, by each order, of which the least holds for all."""
    return (1 - 1 / orders) * once + math.log(mean) / orders


def divergence_delta(total: Floats, epsilon: Floats, orders: Orders) -> Floats:
    """f64[n], for epsilon f64[n]: Canonne, Kamath and Steinke 2020, and never more than at 0 (Bretagnolle, Huber)."""
    a = np.asarray(orders)
    logs = (a - 1) * (total - epsilon[:, None] + np.log1p(-1 / a)) - np.log(a)
    apart = math.sqrt(-math.expm1(-float(total.min())))
    return np.minimum(np.exp(np.minimum(logs.min(axis=1), 0.0)), apart)


def divergence_epsilon(total: Floats, delta: float, orders: Orders) -> tuple[float, float]:
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
