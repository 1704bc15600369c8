"""A third party sees every global model, not who took part: sampling amplifies privacy."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from fedpriv.privacy._checks import require
from fedpriv.privacy.gaussian import Floats, replace_delta
from fedpriv.privacy.release import NOISE, Certificate, Release
from fedpriv.privacy.sampling import Everyone, FixedSize, Poisson, Sampling

# Margin, as a probability, for the rounding of the Fourier transforms that compose privacy losses.
# Against the closed form, 1000 rounds on 300,000 cells are never below the truth (see the tests).
_ROUNDING = 1e-13
_CELLS, _COMPOSED_CELLS = 5e4, 1e6  # aimed at for the losses of one round, and of all rounds
_FINEST, _COARSEST = 1e-4, 64.0  # nats; dp-accounting's own default, and where e^width is safe
# dp-accounting fails where rarer cuts underflow; `_ROUNDING` covers leaving them out.
_NEVER = 1e-250
# dp-accounting fails where sigma^-2 underflows; counting less noise than there is stays sound.
_LOUDEST = 1e6
_HARMLESS = ("failed to converge after", "Optimal order is the")


def certificate(releases: Sequence[Release], delta: float) -> Certificate:
    """Certificate against a third party; positive, finite multipliers; not all of them `Everyone`.

    Formal guarantees: the smaller of two upper bounds. Poisson cohorts, add-or-remove: the tight
    pair of Zhu, Dong and Wang 2022 as a privacy loss distribution, with a capacity by
    the truncated pair of dp-accounting (arXiv 2508.15089); RDP of Mironov, Talwar and Zhang 2019.
    Fixed-size cohorts, replace-one: `gaussian.replace_delta` as a privacy loss distribution; RDP of
    Wang, Balle and Kasiviswanathan 2019 (Theorem 27).

    Raises:
        ValueError: if Poisson and fixed-size cohorts are mixed: they are bounded under different
            relations.
    """
    relation = _relation(releases)
    by_pld, by_rdp = (
        _pld_epsilon(releases, relation, delta),
        _rdp_epsilon(releases, relation, delta),
    )
    tight = by_pld <= by_rdp
    return Certificate(
        epsilon=min(by_pld, by_rdp),
        delta=delta,
        view="third_party",
        unit=releases[0].unit,
        relation=relation,
        accountant="PLD" if tight else "RDP",
        bound=(
            "upper: privacy losses are discretised pessimistically (connect the dots)"
            if tight
            else "upper: Rényi orders 1.1 to 1024, conversion of Canonne, Kamath and Steinke"
        ),
        assumptions=_assumptions(releases),
    )


def _relation(releases: Sequence[Release]) -> str:
    kinds = {type(release.sampling) for release in releases}
    mixed = {Poisson, FixedSize} <= kinds
    names = sorted(kind.__name__ for kind in kinds)
    require(not mixed, "sampling", names, "draw all cohorts of a run in one way, or certify apart")
    return "replace_one" if FixedSize in kinds else "add_or_remove"


def _multiplier(release: Release, relation: str) -> float:
    """The release's multiplier relative to what `relation` can move.

    This is the one place where relations are converted. A `Release` is relative to zeroing out a
    unit (norm C); a unit that is replaced moves by up to 2 C. Everything below takes noise over the
    *actual* distance. dp-accounting 0.6 does so for its RDP accountant under REPLACE_ONE, but its
    PLD accountant doubles the distance by itself: that one is not used.
    """
    multiplier = release.multiplier / 2 if relation == "replace_one" else release.multiplier
    return min(multiplier, _LOUDEST)


# Privacy loss distributions


def _pld_epsilon(releases: Sequence[Release], relation: str, delta: float) -> float:
    interval = _interval(releases, relation)
    if delta <= _ROUNDING or interval > _COARSEST:
        return math.inf
    composed = _composed_pld(releases, relation, interval)
    return float(composed.get_epsilon_for_delta(delta - _ROUNDING))


def _composed_pld(releases: Sequence[Release], relation: str, interval: float) -> Any:
    """Privacy loss distribution of all rounds of all releases."""
    composed = None
    for release in releases:
        once = _round_pld(release.sampling, _multiplier(release, relation), relation, interval)
        rounds = once.self_compose(release.steps)
        composed = rounds if composed is None else composed.compose(rounds)
    return composed


def _interval(releases: Sequence[Release], relation: str) -> float:
    """Width of a cell in nats: 1e-4, or as many powers of two above as keep the arrays small.

    Wide cells are used where losses are huge (little noise); they cost tightness, never soundness.
    Powers of two let calls with different numbers of rounds share the cached distribution of a
    round.
    """
    once = spread = 0.0
    for release in releases:
        multiplier = _multiplier(release, relation)
        spread += release.steps * release.sampling.rate / multiplier**2
        if _is_cut(release.sampling):
            multiplier /= 2  # a client that is cut makes room for another: it moves the sum twice
        once = max(once, 1 / (2 * multiplier**2) + 10 / multiplier)
    composed = spread / 2 + 10 * math.sqrt(spread)
    width = max(once / _CELLS, composed / _COMPOSED_CELLS) / _FINEST
    return float(_FINEST * 2.0 ** max(0, math.ceil(math.log2(width))))


def _is_cut(sampling: Sampling) -> bool:
    return isinstance(sampling, Poisson) and sampling.is_cut


def _chance_of_cut(sampling: Poisson) -> float:
    from scipy.stats import binom

    return float(binom.sf(sampling.capacity, sampling.population, sampling.rate))


@lru_cache(maxsize=32)
def _round_pld(sampling: Sampling, multiplier: float, relation: str, interval: float) -> Any:
    """Privacy loss distribution of one round; `multiplier` is relative to `relation`'s distance."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    if relation == "replace_one":
        return _pld_of_replaced(multiplier, sampling.rate, interval)
    options = {"value_discretization_interval": interval}
    if isinstance(sampling, Poisson) and _is_cut(sampling) and _chance_of_cut(sampling) > _NEVER:
        return pld.from_truncated_subsampled_gaussian_mechanism(
            sampling.population, sampling.rate, sampling.capacity, multiplier, **options
        )
    return pld.from_gaussian_mechanism(multiplier, sampling_prob=sampling.rate, **options)


def _pld_of_replaced(multiplier: float, rate: float, interval: float) -> Any:
    """`replace_delta` as a pessimistic distribution (Doroshenko et al. 2022, Algorithm 1)."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    # Ten standard deviations: the mass beyond, below 1e-22, is counted as an infinite loss.
    last = math.ceil((1 / (2 * multiplier**2) + 10 / multiplier) / interval)
    deltas = replace_delta(np.arange(-last, last + 1) * interval, multiplier, rate)
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, -last, last, deltas)
    return pld.PrivacyLossDistribution(pmf)  # the curve covers both directions


# Rényi differential privacy


def _rdp_epsilon(releases: Sequence[Release], relation: str, delta: float) -> float:
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    if any(_is_cut(release.sampling) for release in releases):
        return math.inf  # no Rényi bound for a cohort that is cut down
    total = sum(
        r.steps * _round_rdp(r.sampling, _multiplier(r, relation), relation) for r in releases
    )
    with quiet():
        return float(rdp.compute_epsilon(rdp.DEFAULT_RDP_ORDERS, total, delta)[0])


@lru_cache(maxsize=32)
def _round_rdp(sampling: Sampling, multiplier: float, relation: str) -> Floats:
    """Rényi divergences of one round at dp-accounting's default orders."""
    import dp_accounting as dp
    from dp_accounting.rdp import RdpAccountant

    event = dp.GaussianDpEvent(multiplier)
    if isinstance(sampling, FixedSize):
        event = dp.SampledWithoutReplacementDpEvent(sampling.population, sampling.size, event)
    elif isinstance(sampling, Poisson):
        event = dp.PoissonSampledDpEvent(sampling.rate, event)
    neighbours = dp.NeighboringRelation[relation.upper() + "_ONE" * (relation == "add_or_remove")]
    with quiet():
        return np.asarray(RdpAccountant(neighboring_relation=neighbours).compose(event).rdp)


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


def _assumptions(releases: Sequence[Release]) -> tuple[str, ...]:
    samplings = [release.sampling for release in releases]
    texts = ["cohorts (their sizes, too) and noise are drawn afresh in every round and stay secret"]
    if any(isinstance(sampling, FixedSize) for sampling in samplings):
        texts.append("cohorts are uniform without replacement, and sums are divided by their size")
        texts.append("replacing a unit moves a sum by at most twice its clipped norm")
    if any(isinstance(sampling, Poisson) for sampling in samplings):
        texts.append("units join independently, and sums are divided by a number fixed beforehand")
    for sampling in samplings:
        if isinstance(sampling, Poisson) and sampling.is_cut:
            texts.append(f"cohorts above {sampling.capacity} are cut down uniformly at random")
            texts.append(f"the larger of two neighbouring populations has {sampling.population}")
    if any(isinstance(sampling, Everyone) for sampling in samplings):
        texts.append("a release without sampling involves every unit in every round")
    return tuple(dict.fromkeys([*texts, *NOISE]))
