"""Do the facts that somebody's own sampling says of itself go together?"""

from __future__ import annotations

import math
from collections.abc import Hashable
from functools import lru_cache
from typing import Any

from fedpriv.core.complaints import require
from fedpriv.privacy.sampling.across_groups import AcrossGroups
from fedpriv.privacy.sampling.allocation import Allocation
from fedpriv.privacy.sampling.by_persons import ByPersons
from fedpriv.privacy.sampling.dropping import Dropping
from fedpriv.privacy.sampling.kinds_of_units import Who
from fedpriv.privacy.sampling.with_replacement import WithReplacement
from fedpriv.proof.cases import ADJACENCIES, Case, Why
from fedpriv.proof.draws import ONE, Sampling, told_law
from fedpriv.proof.samplings import Everyone, FixedSize, Poisson

PROVED = (
    AcrossGroups,
    Allocation,
    ByPersons,
    Dropping,
    Everyone,
    FixedSize,
    Poisson,
    WithReplacement,
)
"""Samplings that need no check, as they are fedpriv's own."""

_ROUNDING = 1e-9  # of probabilities


def check_draw(name: str, drawn: Any) -> None:
    """Raises ValueError: it is no sampling, or facts of one of somebody's own contradict its cases."""
    remedy = "give Everyone, FixedSize, Poisson, Allocation or WithReplacement"
    require(isinstance(drawn, Sampling), name, drawn, remedy)
    if type(drawn) not in PROVED:
        named = isinstance(drawn, Hashable) and type(drawn).__hash__ is not None
        require(named, name, drawn, "make it a frozen dataclass, so that it is known by its value")
        check_sampling(drawn)


@lru_cache(maxsize=64)
def check_sampling(sampling: Sampling) -> None:
    """Raises ValueError: facts of a sampling of somebody's own contradict its cases."""

    def check(good: Any, field: str, value: Any, remedy: str) -> None:
        require(bool(good), f"{type(sampling).__name__}.{field}", value, remedy)

    for name in ("population", "most"):
        value = getattr(sampling, name, None)
        check(isinstance(value, int) and value >= 1, name, value, "give a whole number from 1 on")
    every = {each: sampling.cases(each, Who()) for each in ADJACENCIES}
    for neighbour, cases in every.items():
        if isinstance(cases, Why):
            continue
        words = sampling.words(neighbour)
        texts = isinstance(words, tuple) and all(isinstance(text, str) for text in words)
        check(texts, "words", words, "give a tuple of texts")
        several = isinstance(cases, tuple) and all(isinstance(case, Case) for case in cases)
        check(several, "cases", cases, "give a tuple of fp.privacy.Case, or an fp.privacy.Why")
        chances = [case.chance for case in cases]
        sure = abs(math.fsum(chances) - 1) < _ROUNDING
        check(sure, "cases", chances, f"give chances that add up to 1 for {neighbour}")
    often = max(n for n, _ in told_law(sampling, ONE))
    check(
        often <= sampling.repeats,
        "repeats",
        sampling.repeats,
        f"give {often:g}, as the cases of `zeroed`",
    )
    told_law(sampling, ONE)
    told: Any = every["zeroed"]
    plain = all(case.far == getattr(case, "left", 1) == 1 for case in told)
    check(
        plain,
        "cases",
        told,
        "who is told moves the sum by its number alone; leave `far` and `left` out of `zeroed`",
    )
    two = sampling.cases("zeroed", Who(units=2))
    mean = math.fsum(case.chance * n * p for case in told for n, p in case.law)
    if not isinstance(two, Why):
        of_two = math.fsum(case.chance * n * p for case in two for n, p in case.law)
        twice = math.isclose(of_two, 2 * mean, rel_tol=1e-6)
        check(twice, "cases", of_two, "give those of `who.units`, or a Why where there are several")
    over = sampling.inclusion - sampling.most / sampling.population
    likely = over <= _ROUNDING and (sampling.vanish > 0 or over >= -_ROUNDING)
    remedy = "draws that are uniform have a rate of most / population"
    check(likely or not sampling.uniform, "cases", sampling.inclusion, remedy)
