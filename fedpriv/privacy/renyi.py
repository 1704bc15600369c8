"""Composition by Rényi divergences (RDP), with dp-accounting."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fedpriv.privacy.curves import Floats
from fedpriv.privacy.integer_sums import (
    IntegerNoise,
    drawn_without_replacement,
    poisson_sampled,
)
from fedpriv.privacy.relations import multiplier_for
from fedpriv.privacy.release import Release
from fedpriv.privacy.sampling import DrawCase, Sampling

_GROUPS = 16  # of numbers of shares that are left
_LOUDEST = 1e6  # beyond, divergences are lost in rounding
_HARMLESS = ("failed to converge after", "Optimal order is the")


def rdp_epsilon(
    releases: Sequence[Release],
    relation: str,
    delta: float,
    best_of: float = 1.0,
    others: Sequence[Sequence[Release]] = (),
    seldom: float = 0.0,
) -> float | None:
    """Epsilon by Rényi divergences; None where dp-accounting has none for this noise and sampling.

    Formal guarantees: an upper bound, by the conversion of Canonne, Kamath and Steinke 2020 over
    dp-accounting's default orders. Add-or-remove: Mironov, Talwar and Zhang 2019; by the
    sampling's cases, see `Sampling.cases`. Replace-one: Wang, Balle and
    Kasiviswanathan 2019, Theorem 27 (of integer noise Theorem 9), and no more than without sampling, as divergences are
    jointly quasi-convex; members that vanish are counted as if they stayed: given who is drawn, the sum is
    a mixture, over who else stays, of Gaussians that one member replaced, or left out, moves by
    2 C at most. Zero-out: exact, see `_shown`.

    Args:
        releases: positive, finite multipliers, at least one step.
        relation: "add_or_remove", "replace_one" or "zero_out".
        delta: probability, in (0, 1).
        best_of: mean number of such runs of which the best is released, see `_of_the_best`.
        others: what runs of other settings release. Each run has settings drawn without looking at the data, so that
            at every order its divergence is at most the largest of theirs.
        seldom: the chance, in a round, of the fewest shares of integer noise, which are left out of the divergences and
            have to be taken from delta.
    """
    total = rdp_total(releases, relation, best_of, others, seldom)
    return None if total is None else rdp_to_epsilon(total, delta)


def rdp_total(
    releases: Sequence[Release],
    relation: str,
    best_of: float = 1.0,
    others: Sequence[Sequence[Release]] = (),
    seldom: float = 0.0,
) -> Floats | None:
    """Rényi divergences at dp-accounting's default orders, for `rdp_epsilon`."""
    from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS

    each = [releases, *others]
    if not all(_has_divergence(release, relation) for one in each for release in one):
        return None
    sums = [
        np.asarray(sum(r.rounds * _of_a_round(r, relation, seldom) for r in one)) for one in each
    ]
    total: Floats = np.max(sums, axis=0)
    if best_of > 1:
        total = _of_the_best(np.asarray(DEFAULT_RDP_ORDERS), total, best_of)
    return total


def rdp_to_epsilon(total: Floats, delta: float) -> float:
    """From Rényi divergences, by the conversion of Canonne, Kamath and Steinke 2020."""
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    with quiet():
        return float(rdp.compute_epsilon(rdp.DEFAULT_RDP_ORDERS, total, delta)[0])


def rdp_delta(total: Floats, epsilon: Floats) -> Floats:
    """f64[n], for epsilon f64[n], by the same conversion, and never more than at 0 (Bretagnolle and Huber 1979)."""
    from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS

    orders = np.asarray(DEFAULT_RDP_ORDERS)
    logs = (orders - 1) * (total - epsilon[:, None] + np.log1p(-1 / orders)) - np.log(orders)
    apart = math.sqrt(-math.expm1(-float(total.min())))
    return np.minimum(np.exp(np.minimum(logs.min(axis=1), 0.0)), apart)


def _of_the_best(orders: Floats, once: Floats, mean: float) -> Floats:
    """Rényi divergences of the best of K runs, K geometric: Pr[K = k] = (1 - 1 / mean)^(k-1) / mean.

    Formal guarantees: Papernot and Steinke 2022 (arXiv:2110.03620), Theorem 2 with eta = 1 and gamma = 1 / mean.
    """
    least = np.min((1 - 1 / orders) * once + math.log(mean) / orders)
    return once + 2 * least + math.log(mean) / (orders - 1)


def _has_divergence(release: Release, relation: str) -> bool:
    """dp-accounting has no amplification by sampling of Laplace noise, nor by Poisson for a unit that is replaced.

    Nor has it any by random allocation, or of a person of whom several units may be drawn.
    A unit that is seen, however seldom, has none at all. Where noise is lost with members that vanish, cases of hardly
    any noise would decide at all but the smallest orders: left to the other accountant.
    """
    drawn = release.sampling
    if release.integers is None and release.lossy is not None:
        return False
    hidden = relation != "zero_out" and not drawn.takes_all
    if hidden and (drawn.block_rounds is not None or any(case.times for case in drawn.cases())):
        return False
    if hidden and relation == "replace_one" and not drawn.is_without_replacement:
        return False
    if relation == "add_or_remove" and any(math.isinf(case.distance) for case in drawn.cases()):
        return False
    return release.noise != "laplace" or not hidden


def _of_a_round(release: Release, relation: str, seldom: float) -> Floats:
    farther, lossy = release.multiplier / multiplier_for(release, relation), release.lossy
    if release.integers is None:
        multiplier = min(multiplier_for(release, relation), _LOUDEST)  # less noise is sound
        once = _round(release.sampling, OfReal(release.noise, multiplier), relation)
    elif lossy is None:
        noise = OfIntegers(release.integers.moved(farther))
        once = _round(release.sampling, noise, relation)
    else:  # a participation is known
        told = "zero_out" if lossy is release.participation else relation
        return _of_lost_shares(lossy, release.integers.moved(farther), told, seldom)
    if release.participation is None:
        return release.local_steps * once
    rate = release.participation.rate
    return _shown([(1 - rate, np.zeros_like(once)), (rate, release.local_steps * once)])


class OfReal(NamedTuple):
    """Rényi divergences of a release of real noise, at dp-accounting's default orders, by dp-accounting."""

    noise: str
    multiplier: float

    def certain(self, times: float = 1.0) -> Floats:
        """Of a unit that takes part, and moves the sum so many times as far."""
        return _divergences(self._event(times) if times else None)

    def poisson(self, rate: float, times: float) -> Floats:
        """Of one that is drawn at that rate."""
        import dp_accounting as dp

        return _divergences(dp.PoissonSampledDpEvent(rate, self._event(times)))

    def without_replacement(self, drawn: Sampling) -> Floats:
        """Of one that is replaced, in a cohort of one size."""
        import dp_accounting as dp

        sampled = dp.SampledWithoutReplacementDpEvent(
            drawn.population, drawn.most, self._event(1.0)
        )
        return _divergences(sampled, "REPLACE_ONE")

    def _event(self, times: float) -> Any:
        import dp_accounting as dp

        make: Any = {"gaussian": dp.GaussianDpEvent, "laplace": dp.LaplaceDpEvent}[self.noise]
        return make(self.multiplier / times)


class OfIntegers(NamedTuple):
    """As `OfReal`, of integer noise, by its exact law."""

    noise: IntegerNoise

    def certain(self, times: float = 1.0) -> Floats:
        """As `OfReal`."""
        moved = self.noise.moved(times)
        return np.array([moved.divergence(order) if times else 0.0 for order in _orders()])

    def poisson(self, rate: float, times: float) -> Floats:
        """As `OfReal`."""
        return OfIntegers(self.noise.moved(times)).sampled(poisson_sampled, rate)

    def without_replacement(self, drawn: Sampling) -> Floats:
        """As `OfReal`."""
        return self.sampled(drawn_without_replacement, drawn.most / drawn.population)

    def sampled(
        self, amplified: Callable[[float, float, Sequence[float]], float], rate: float
    ) -> Floats:
        """Of a unit that is drawn at that rate, by one of the two bounds of `integer_sums`."""
        orders = range(math.ceil(_orders()[-1]) + 1)
        of_one = [self.noise.divergence(max(order, 2)) for order in orders]
        return np.array([amplified(order, rate, of_one) for order in _orders()])


@lru_cache(maxsize=256)
def _round(sampling: Sampling, noise: OfReal | OfIntegers, relation: str) -> Floats:
    """Rényi divergences of one round at dp-accounting's default orders, by noise as the relation moves a unit."""
    if relation == "zero_out":
        cases = zip(*sampling.times_drawn(), strict=True)
        return _shown([(chance, noise.certain(float(n))) for n, chance in cases])
    if relation == "replace_one":
        undivided = noise.certain()
        if not sampling.is_without_replacement:
            return undivided
        return np.minimum(undivided, noise.without_replacement(sampling))

    def of_case(case: DrawCase) -> Floats:
        if case.rate in (0, 1):
            return noise.certain(case.distance if case.rate else 0.0)
        return noise.poisson(case.rate, case.distance)

    return _shown([(case.chance, of_case(case)) for case in sampling.cases()])


@lru_cache(maxsize=64)
def _of_lost_shares(
    sampling: Sampling, noise: IntegerNoise, relation: str, seldom: float
) -> Floats:
    """Rényi divergences of one round of integer noise, given that not so few shares are left as seldom are.

    The view is told how many are left. Neighbouring numbers are taken together, at the fewest of them.
    """
    cases = sorted((c for c in sampling.cases() if c.rate > 0), key=lambda c: -c.distance)
    while cases and cases[0].chance <= seldom:
        seldom -= cases.pop(0).chance
    shown = [(case.chance, np.zeros(len(_orders()))) for case in sampling.cases() if case.rate == 0]
    for numbers in np.array_split(np.arange(len(cases)), min(len(cases), _GROUPS)):
        group = [cases[i] for i in numbers]
        chance, rate = sum(case.chance for case in group), max(case.rate for case in group)
        left = noise.with_part(group[0].distance ** -2)
        if left is None:
            return np.full(len(_orders()), math.inf)
        certain = OfIntegers(left).certain()
        if relation == "zero_out":
            shown += [(chance * (1 - rate), np.zeros_like(certain)), (chance * rate, certain)]
        elif rate == 1:
            shown.append((chance, certain))
        else:
            sampled = OfIntegers(left).sampled(drawn_without_replacement, rate)
            shown.append((chance, sampled))
    total = sum(chance for chance, _ in shown)
    return _shown([(chance / total, divergences) for chance, divergences in shown])


def _divergences(event: Any, relation: str = "ADD_OR_REMOVE_ONE") -> Floats:
    """None: nothing happens."""
    import dp_accounting as dp
    from dp_accounting.rdp import RdpAccountant
    from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS

    if event is None:
        return np.zeros(len(DEFAULT_RDP_ORDERS))
    with quiet():
        accountant = RdpAccountant(neighboring_relation=dp.NeighboringRelation[relation])
        return np.asarray(accountant.compose(event).rdp)


def _shown(cases: Sequence[tuple[float, Floats]]) -> Floats:
    """Divergences of (case, output) for a view that is told which case it is, from (its probability, divergences).

    E over the cases of e^((a - 1) D_a): their law is the same for both neighbours.
    """
    from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS

    less_one = np.asarray(DEFAULT_RDP_ORDERS) - 1
    terms = [math.log(c) + less_one * divergences for c, divergences in cases if c > 0]
    return np.asarray(np.logaddexp.reduce(terms)) / less_one


@lru_cache(maxsize=1)
def _orders() -> Floats:
    from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS

    return np.asarray(DEFAULT_RDP_ORDERS, float)


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
