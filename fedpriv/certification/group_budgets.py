"""Budgets of groups: the rate, weight or clip scale with which each group meets its own epsilon, under one noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from fedpriv.certification.calibration import why_infinite
from fedpriv.certification.certificate import trace_round
from fedpriv.certification.monotone_search import Range, search
from fedpriv.core.arguments import Budget, Count, Probability, Rate, checked
from fedpriv.core.callers import warn_where_called
from fedpriv.core.complaints import require
from fedpriv.core.user_code import names_user_code
from fedpriv.core.user_functions import asked, gives
from fedpriv.privacy import Certificate
from fedpriv.proof.seen import View
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.group_names import OtherGroupsError, named

_SHARE = Range(dearest=1.0, cheapest=1e-9, begin=(1.0, 1.0), factor=8.0)
"""Numbers of a group that are tried."""
_FINEST = 1e-6
_MOST_SWEEPS = 20


@names_user_code
def calibrate_groups(
    make: Callable[[dict[Any, float]], Algorithm],
    params: Any,
    federation: Any,
    *,
    epsilon: Mapping[Any, Budget],
    rounds: Count,
    delta: Probability,
    view: View = "third_party",
    honest: Rate = 1.0,
    tolerance: Probability = 1e-3,
) -> dict[Any, float]:
    """Largest number in (0, 1] for each group with which `rounds` rounds cost it at most its own epsilon.

    `make` says what the numbers are: rates, `lambda q: ...fp.grouped(groups, {g: fp.poisson(members[g], q[g]) for g in
    q})`, or weights or clip scales, `lambda w: ...fp.grouped(groups, sampler, weights=w)`. The noise is the same for
    all: choose it so that a rate of 1, or a weight of 1, costs at least the largest budget.

    The certificate of what is found, `certify(...).of_groups`, gives each group at most its epsilon; and no less than
    (1 - `tolerance`) of it, but where numbers are rounded, such as to sizes of cohorts.

    Args:
        make: {group: number} -> algorithm; epsilons rise with the numbers.
        params, federation, view, honest: as in `certify`.
        epsilon: group -> its budget, above 0, in nats. Who is allowed how much is public, and not hidden. `make` is
            given the groups as they are named here, and so are the numbers that come back.
        rounds: number of rounds T.
        delta: probability, in (0, 1), of all groups.
        tolerance: relative, of epsilons.

    Raises:
        ValueError: budgets for other groups than there are; one that no number meets, or that 1 does not spend; numbers
            that depend on one another so much that none are found; as `certify`.
        LeakError: as `certify`.

    Warns:
        UserWarning: with the numbers found, fewer than one member of a cohort is expected.
    """
    require(callable(make), "make", make, "give a function, {group: number} -> algorithm")
    require(isinstance(epsilon, Mapping), "epsilon", epsilon, "give group -> its epsilon")
    budgets = {str(g): checked(f"epsilon[{g!r}]", e, Budget) for g, e in epsilon.items()}
    once = len(budgets) == len(epsilon) > 0
    require(once, "epsilon", epsilon, "give group -> its epsilon, each once")
    rounds = checked("rounds", rounds, Count)
    delta = checked("delta", delta, Probability)
    view = checked("view", view, View)
    honest = checked("honest", honest, Rate)
    tolerance = checked("tolerance", tolerance, Probability)
    require(tolerance >= _FINEST, "tolerance", tolerance, f"give {_FINEST:g} or more")

    @cache
    def certificates(numbers: tuple[float, ...]) -> Mapping[str, Certificate]:
        given = dict(zip(epsilon, numbers, strict=True))
        try:
            algorithm = asked("make", make, "({group: number})", given)
        except KeyError as error:
            unknown = {str(name) for name in error.args} & set(budgets)
            if not unknown:
                raise
            raise ValueError(
                f"epsilon: {sorted(unknown)}; `make` knows no such group; give budgets of its groups alone"
            ) from None
        except OtherGroupsError as error:  # of the names in `epsilon`, where `make` hands them on
            if set(error.given) == set(budgets):
                named("epsilon", budgets, error.members, "an epsilon")
            raise
        except ValueError as error:
            blamed = _blamed(make, given, error)
            if len(blamed) == 1:
                raise ValueError(
                    f"epsilon[{blamed[0]!r}]: with this group `make` fails, {error}; give budgets of its groups alone"
                ) from None
            raise
        gives(isinstance(algorithm, Algorithm), "make", make, algorithm, "return an algorithm")
        traced = trace_round(algorithm, params, federation)
        found = traced.certify(rounds, delta, view=view, honest=honest).of_groups
        remedy = "return an algorithm whose sampler is fp.grouped(...), or whose records are fp.PublicGroups(...)"
        gives(bool(found), "make", make, algorithm, remedy)
        named("epsilon", budgets, found, "an epsilon")
        return found

    numbers = dict.fromkeys(budgets, 1.0)

    def cost(group: str, number: float) -> Certificate:
        return certificates(tuple((numbers | {group: number}).values()))[group]

    for _ in range(
        _MOST_SWEEPS
    ):  # one and a look, where a group's epsilon is its own number's alone
        before = dict(numbers)
        for group, budget in budgets.items():
            spent = cost(group, numbers[group]).epsilon
            if not (1 - tolerance) * budget <= spent <= budget:
                numbers[group] = _largest(group, budget, partial(cost, group), tolerance)
        if numbers == before:
            _warn_of_nobody(make, dict(zip(epsilon, numbers.values(), strict=True)))
            return dict(zip(epsilon, numbers.values(), strict=True))
    raise ValueError(
        f"make: the numbers of groups depend on one another, and {_MOST_SWEEPS} sweeps over them do not settle; raise "
        "`tolerance`"
    )


def _blamed(
    make: Callable[[dict[Any, float]], Algorithm], given: dict[Any, float], error: ValueError
) -> list[Any]:
    """The groups without one of which `make` does not fail as it did."""

    def fails_alike(numbers: dict[Any, float]) -> bool:
        try:
            make(numbers)
        except OtherGroupsError:
            return False
        except Exception as other:  # of the user's own
            return str(other) == str(error)
        return False

    without = {group: {g: n for g, n in given.items() if g != group} for group in given}
    return [group for group, numbers in without.items() if not fails_alike(numbers)]


def _warn_of_nobody(
    make: Callable[[dict[Any, float]], Algorithm], numbers: dict[Any, float]
) -> None:
    expected = make(numbers).sampler.expected_size
    if expected >= 1:
        return
    shown = ", ".join(f"{group}: {number:.2g}" for group, number in numbers.items())
    warn_where_called(
        f"make: with {shown}, {expected:.2g} members are expected in a round, so that nearly all are empty; these "
        "budgets need more noise, or fewer rounds",
        __name__,
    )


def _largest(
    group: str, budget: float, cost: Callable[[float], Certificate], tolerance: float
) -> float:
    """The largest number with which a group costs at most its budget, while those of others stay."""
    what, whole = f"epsilon[{group!r}]", cost(_SHARE.dearest)
    require(math.isfinite(whole.epsilon), what, budget, why_infinite(whole))
    remedy = (
        f"even 1, the largest number, costs the group {whole.epsilon:.4g}; lower its budget to that, or the noise, or "
        "let `make` use its numbers"
    )
    require(whole.epsilon >= (1 - tolerance) * budget, what, budget, remedy)
    if whole.epsilon <= budget:
        return _SHARE.dearest

    def refusal(least: float) -> str:
        spent = cost(least).epsilon
        return f"{what}: {budget}; even the number {least:.3g} costs {spent:.4g}; raise it, or the noise"

    half = tolerance / 2  # aims at the middle of what is allowed
    return search(lambda n: cost(n).epsilon, budget, _SHARE, refusal, tolerance=half, below=half)
