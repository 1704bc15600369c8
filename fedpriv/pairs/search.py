"""The smallest epsilon that can be shown of a pair at a delta, and what shows it. Nothing here has to be trusted."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedpriv.pairs.divergences import Orders, divergence_epsilon, never_hidden, renyi, usual_orders
from fedpriv.pairs.end_of_run import Best, Slack, choice_cost
from fedpriv.pairs.grids import all_grids, epsilon_of, forget, on_grids, whole_curve
from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.pairs.separations import epsilon_of_mixture, exact_or_rounded, separations
from fedpriv.pairs.told_counts import Counted, CountedRounds, by_counts
from fedpriv.proof.pairs import NOTHING, AnyPair, Pair, Rest, leaves_of
from fedpriv.proof.verify import Exact, Witness, deltas

_LEAST = 1e-6  # nats; a smaller epsilon grows by steps of this one

SET_ASIDE = 1e-3
"""Of delta, for what is seen of integers beside their law: numbers off it, and rounds of hardly any share."""


class Found(NamedTuple):
    """An epsilon, nats, and what shows it; no witness of infinity."""

    epsilon: float
    witness: Witness | None


def epsilon(pair: AnyPair, delta: float) -> Found:
    """The least of all that is known: exact, on grids, by divergences."""
    found = [way(pair, delta) for way in (by_losses, by_divergences)]
    return min(
        (one for one in found if one is not None), key=lambda one: one.epsilon, default=_NONE
    )


_NONE = Found(math.inf, None)


@lru_cache(maxsize=256)  # views often see the same
def by_losses(pair: AnyPair, delta: float) -> Found | None:
    """By the exact law where it is known, else by privacy losses on grids; None where there are none."""
    if isinstance(pair, Slack):
        inside = by_losses(pair.of, _left(pair, delta))
        return None if inside is None else _shown(pair, delta, inside, 2 * pair.apart)
    if isinstance(pair, Rest) or not _is_real(pair):
        return None
    if pair == NOTHING:
        return Found(0.0, Exact())
    law = separations(pair)
    if law is not None:
        return _shown(pair, delta, Found(epsilon_of_mixture(*law, delta), exact_or_rounded(pair)))
    grids = all_grids(pair, delta)
    best = min(grids, key=lambda grid: grid.epsilon, default=None)
    if best is None or math.isinf(best.epsilon):
        return _NONE
    return Found(best.epsilon, best.witness)


@lru_cache(maxsize=256)
def by_divergences(pair: AnyPair, delta: float) -> Found | None:
    """By Rényi divergences; None where none are known."""
    if isinstance(pair, Slack):
        inside = by_divergences(pair.of, _left(pair, delta) + never_hidden(pair.of))
        return None if inside is None else _shown(pair, delta, inside, 2 * pair.apart)
    total = renyi(pair, usual_orders())
    if total is None:
        return None
    left = delta - never_hidden(pair)
    if left <= 0:
        return _NONE
    value, order = divergence_epsilon(total, left, usual_orders())
    orders = (order,) if not isinstance(pair, Best) else (order, *_least_cost(pair))
    found = _shown(pair, delta, Found(value, Orders(orders)))
    if isinstance(pair, Rest) or _is_real(pair):
        return found
    law = by_counts(pair, usual_orders())
    if law is not None:
        counted = _shown(pair, delta, Found(_of_counts(law, delta), Counted()))
        return min(found, counted, key=lambda one: one.epsilon)
    return found


def _least_cost(pair: Best) -> tuple[float, ...]:
    """The order by which the cost of choosing is least, see `choice_cost`."""
    orders = usual_orders()
    each = [renyi(one, orders) for one in pair.of]
    costs = choice_cost(
        np.asarray(orders), np.max([d for d in each if d is not None], axis=0), pair.mean
    )
    return (orders[int(np.argmin(costs))],)


def _left(pair: Slack, delta: float) -> float:
    """Of delta, for what is within the slack."""
    return (1 - SET_ASIDE) * delta * math.exp(-pair.apart)


def _shown(pair: AnyPair, delta: float, found: Found, more: float = 0.0) -> Found:
    """The first epsilon from there on at which the witness shows delta; infinity if it is far."""
    if math.isinf(found.epsilon):
        return _NONE
    assert found.witness is not None
    step = 1e-12
    value = found.epsilon + more
    while step < 1e-3:
        if deltas(pair, np.array([value]), found.witness)[0] <= delta:
            return Found(value, found.witness)
        value, step = value * (1 + step) + step * _LEAST, 4 * step
    return _NONE


def _is_real(pair: Pair) -> bool:
    """Whether all noise is real."""
    noises = (getattr(draw, "noise", None) for draw in leaves_of(pair))
    return not any(isinstance(noise, IntegerNoise) for noise in noises)


def _of_counts(law: CountedRounds, delta: float) -> float:
    from scipy.optimize import brentq

    def excess(value: float) -> float:
        return float(law.delta(np.array([value]))[0]) - delta

    if law.missing >= delta:
        return math.inf
    if excess(0.0) <= 0:
        return 0.0
    top, _ = divergence_epsilon(law.numbers.max() * law.once, delta - law.missing, law.orders)
    if not math.isfinite(top) or excess(top) > 0:
        return math.inf
    return float(brentq(excess, 0.0, top, xtol=1e-10)) + 1e-9


class Curve(NamedTuple):
    """What shows a pair's delta at every epsilon, and the epsilon where it has fallen to nearly its least."""

    witness: Witness
    end: float


def curves_of(pair: AnyPair, delta: float, least: float) -> list[Curve]:
    """Of all that is known of the pair; none where there is too little noise.

    Args:
        delta: at which it is to be good.
        least: above what is never hidden: there a curve ends.
    """
    if isinstance(pair, Slack):
        twice = 2 * pair.apart
        inside = curves_of(pair.of, _left(pair, delta), least)
        return [each._replace(end=each.end + twice) for each in inside]
    found = []
    if not isinstance(pair, Rest) and _is_real(pair):
        law = separations(pair)
        if law is not None:
            found.append(
                Curve(exact_or_rounded(pair), epsilon_of_mixture(*law, law.missing + least))
            )
        elif grids := on_grids(pair, delta):
            last = grids[-1]
            ends = [epsilon_of(one, one.infinity + least) for one in last.composed]
            forget(last.composed)
            found.append(Curve(whole_curve(last, max(ends)), max(ends)))
    total = renyi(pair, usual_orders())
    if total is not None:
        end, _ = divergence_epsilon(total, least, usual_orders())
        found.append(Curve(Orders(usual_orders()), end))
    return found
