"""Composition by Rényi divergences (RDP), with dp-accounting."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from fedpriv.privacy.curves import Floats
from fedpriv.privacy.relations import multiplier_for
from fedpriv.privacy.release import Release
from fedpriv.privacy.sampling import Everyone, FixedSize, Sampling
from fedpriv.privacy.truncation import chance_of_cuts, despite_cuts

_HARMLESS = ("failed to converge after", "Optimal order is the")


def rdp_epsilon(
    releases: Sequence[Release],
    relation: str,
    delta: float,
    best_of: float = 1.0,
    others: Sequence[Sequence[Release]] = (),
) -> float | None:
    """Epsilon by Rényi divergences; None where dp-accounting has none for this noise and sampling.

    Formal guarantees: an upper bound, by the conversion of Canonne, Kamath and Steinke 2020 over
    dp-accounting's default orders. Add-or-remove: Mironov, Talwar and Zhang 2019; cohorts that are
    cut to a capacity by the distance to the run without cuts. Replace-one: Wang, Balle and
    Kasiviswanathan 2019, Theorem 27. Zero-out: exact, see `_shown`.

    Args:
        releases: positive, finite multipliers, at least one step.
        relation: "add_or_remove", "replace_one" or "zero_out".
        delta: probability, in (0, 1).
        best_of: mean number of such runs of which the best is released, see `_of_the_best`.
        others: what runs of other settings release. Each run has settings drawn without looking at the data, so that
            at every order its divergence is at most the largest of theirs.
    """
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    each = [releases, *others]
    if not all(_has_divergence(release, relation) for one in each for release in one):
        return None
    sums = [np.asarray(sum(r.steps * _of_a_round(r, relation) for r in one)) for one in each]
    total = np.max(sums, axis=0)
    if best_of > 1:
        total = _of_the_best(np.asarray(rdp.DEFAULT_RDP_ORDERS), total, best_of)

    def epsilon_of(delta: float) -> float:
        with quiet():
            return float(rdp.compute_epsilon(rdp.DEFAULT_RDP_ORDERS, total, delta)[0])

    cut = best_of * max(map(chance_of_cuts, each)) if relation == "add_or_remove" else 0.0
    return despite_cuts(epsilon_of, cut, delta)


def _of_the_best(orders: Floats, once: Floats, mean: float) -> Floats:
    """Rényi divergences of the best of K runs, K geometric: Pr[K = k] = (1 - 1 / mean)^(k-1) / mean.

    Formal guarantees: Papernot and Steinke 2022 (arXiv:2110.03620), Theorem 2 with eta = 1 and gamma = 1 / mean.
    """
    least = np.min((1 - 1 / orders) * once + math.log(mean) / orders)
    return once + 2 * least + math.log(mean) / (orders - 1)


def _has_divergence(release: Release, relation: str) -> bool:
    """dp-accounting has no amplification by sampling for the Laplace mechanism's divergences."""
    hidden = relation != "zero_out" and not isinstance(release.sampling, Everyone)
    return release.noise == "gaussian" or not hidden


def _of_a_round(release: Release, relation: str) -> Floats:
    multiplier = multiplier_for(release, relation)
    once = _round(release.sampling, release.noise, multiplier, relation)
    if release.participation is None:
        return release.local_steps * once
    return _shown(release.participation.rate, release.local_steps * once)


@lru_cache(maxsize=32)
def _round(sampling: Sampling, noise: str, multiplier: float, relation: str) -> Floats:
    """Rényi divergences of one round at dp-accounting's default orders."""
    import dp_accounting as dp

    event: Any = {"gaussian": dp.GaussianDpEvent, "laplace": dp.LaplaceDpEvent}[noise](multiplier)
    if relation == "zero_out":
        return _shown(sampling.rate, _divergences(event, "ADD_OR_REMOVE_ONE"))
    if relation == "replace_one":
        if isinstance(sampling, FixedSize):
            event = dp.SampledWithoutReplacementDpEvent(sampling.population, sampling.size, event)
        return _divergences(event, "REPLACE_ONE")
    if not isinstance(sampling, Everyone):
        event = dp.PoissonSampledDpEvent(sampling.rate, event)
    return _divergences(event, "ADD_OR_REMOVE_ONE")


def _divergences(event: Any, relation: str) -> Floats:
    import dp_accounting as dp
    from dp_accounting.rdp import RdpAccountant

    with quiet():
        accountant = RdpAccountant(neighboring_relation=dp.NeighboringRelation[relation])
        return np.asarray(accountant.compose(event).rdp)


def _shown(rate: float, divergences: Floats) -> Floats:
    """Divergences of (drawn or not, output) for a view that is told whether the unit, drawn at `rate`, takes part.

    E over the draw of e^((a - 1) D_a): 1 - rate + rate e^((a - 1) D_a), since nothing differs without the unit.
    """
    from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS

    if rate == 1:
        return divergences
    less_one = np.asarray(DEFAULT_RDP_ORDERS) - 1
    return np.logaddexp(math.log1p(-rate), math.log(rate) + less_one * divergences) / less_one


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
