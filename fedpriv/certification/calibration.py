"""Calibration: the noise, or the number of rounds, that a target epsilon allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from fedpriv.certification.certificate import trace_round
from fedpriv.certification.monotone_search import Range, UnreachableError, search
from fedpriv.certification.together import Run, Together
from fedpriv.certification.traced_round import TracedRound
from fedpriv.core.arguments import Budget, Count, MeanRuns, Probability, Rate, checked
from fedpriv.core.complaints import require, shown
from fedpriv.core.user_code import names_user_code
from fedpriv.core.user_functions import asked, gives
from fedpriv.privacy import Certificate
from fedpriv.privacy.certificate import Claim
from fedpriv.proof.seen import View
from fedpriv.rounds.algorithm import Algorithm, require_algorithm

NOISE = Range(dearest=1e-3, cheapest=1e9, begin=(math.exp(-0.5), math.e), factor=math.exp(2))
"""Noise multipliers that are tried."""
_MOST_ROUNDS = 2**24  # tried where none is given
_FINEST = 1e-9


@names_user_code
def calibrate_noise(
    make: Callable[[float], Algorithm],
    params: Any,
    federation: Any,
    *,
    epsilon: Budget,
    rounds: Count,
    delta: Probability,
    view: View = "third_party",
    honest: Rate = 1.0,
    best_of: MeanRuns = 1.0,
    claimed: bool = False,
    tolerance: Probability = 1e-4,
) -> float:
    """Smallest noise multiplier with which `rounds` rounds cost at most `epsilon`.

    Args:
        make: noise multiplier -> algorithm, such as `lambda sigma: dp_fed_avg(..., noise_multiplier=sigma)`.
        params, federation, view, honest, best_of: as in `certify`.
        epsilon: target, above 0, in nats.
        rounds: number of rounds T.
        delta: probability, in (0, 1).
        claimed: use the paper's formula instead of a certificate (view and honest are then ignored, best_of is
            refused).
        tolerance: relative tolerance of the answer, which errs on the safe side.

    Raises:
        ValueError: `make` is not a function; no multiplier up to 1e9 reaches the target, as of an algorithm without a
            mechanism, or every one from 1e-3 on meets it; as `certify`.
        LeakError: as `certify`.
    """
    require(callable(make), "make", make, "give a function, noise -> algorithm")
    rounds = checked("rounds", rounds, Count)
    price = _priced(params, federation, delta, view, honest, best_of, claimed)

    def certificate_at(noise: float) -> Certificate | Claim:
        algorithm = asked("make", make, "(noise_multiplier)", noise)
        gives(isinstance(algorithm, Algorithm), "make", make, algorithm, "return an algorithm")
        return price(algorithm, rounds)

    return least_noise(certificate_at, epsilon, tolerance)


@names_user_code
def calibrate_together(
    make: Callable[[float], Sequence[Run]],
    params: Any,
    federation: Any,
    *,
    epsilon: Budget,
    delta: Probability,
    view: View = "third_party",
    honest: Rate = 1.0,
    tolerance: Probability = 1e-4,
) -> float:
    """Smallest noise multiplier with which several runs together cost at most `epsilon`, as by `certify_together`.

    Statistics whose noise is fixed, and then training: `lambda sigma: [(statistics, 1), (training(sigma), 50)]`.

    Args:
        make: noise multiplier -> runs, as `certify_together` takes them; in some or all of them it is the noise.
        params, federation, view, honest: as in `certify_together`.
        epsilon: target for all runs together, above 0, in nats.
        delta: probability, for all runs together, in (0, 1).
        tolerance: as in `calibrate_noise`.

    Raises:
        ValueError: as `calibrate_noise` and `certify_together`.
        LeakError: as `certify`.
    """
    require(callable(make), "make", make, "give a function, noise -> runs")
    together = Together(params, federation, delta, view, honest)

    def certificate_at(noise: float) -> Certificate:
        return together.certify(asked("make", make, "(noise_multiplier)", noise))

    return least_noise(certificate_at, epsilon, tolerance)


def least_noise(
    certificate_at: Callable[[float], Certificate | Claim], epsilon: Budget, tolerance: Probability
) -> float:
    """The smallest noise multiplier with which what it is of costs at most `epsilon`.

    Raises:
        UnreachableError: no noise has this epsilon.
        WrapsError: sums of integers wrap with this noise.
    """
    epsilon = checked("epsilon", epsilon, Budget)
    tolerance = checked("tolerance", tolerance, Probability)
    require(tolerance >= _FINEST, "tolerance", tolerance, f"give {_FINEST:g} or more")

    def refusal(most: float) -> str:
        why = _unreachable(certificate_at(NOISE.begin[0]), certificate_at(most), most)
        return f"epsilon: {shown(epsilon)}; {why}"

    def cost(noise: float) -> float:
        return certificate_at(noise).epsilon

    found = search(cost, epsilon, NOISE, refusal, tolerance=tolerance)
    if found == NOISE.dearest:
        remedy = f"is met by any noise multiplier from {found:g} on; lower it, or let `make` use its argument"
        raise UnreachableError(f"epsilon: {shown(epsilon)}; {remedy}")
    return found


def _unreachable(
    with_little: Certificate | Claim, with_most: Certificate | Claim, most: float
) -> str:
    """Why even the most noise does not do, and what would."""
    cost = with_most.epsilon
    if math.isinf(cost):
        return f"no noise multiplier reaches it: {why_infinite(with_most)}"
    if cost == with_little.epsilon:
        return f"{cost:.4g} is spent whatever the noise multiplier; let `make` use its argument"
    return (
        f"cannot be reached even with a noise multiplier of {most:g}, which costs {cost:.4g}; raise epsilon, or lower "
        "what is spent beside this noise"
    )


def why_infinite(number: Certificate | Claim) -> str:
    """Why nothing is guaranteed, and what would help."""
    if isinstance(number, Claim):
        return "the claim is infinite; give the algorithm noise"
    why, composed = number.why_infinite(), number.compositions
    if composed and all(each.hidden for each in composed):  # but too little
        return why
    return (
        f"nothing hides a {number.unit} from {number.view} ({why}); give the algorithm a mechanism with noise, such as "
        "fp.gaussian(clip_norm, noise_multiplier), or another view"
    )


@names_user_code
def calibrate_rounds(
    algorithm: Algorithm,
    params: Any,
    federation: Any,
    *,
    epsilon: Budget,
    delta: Probability,
    view: View = "third_party",
    honest: Rate = 1.0,
    best_of: MeanRuns = 1.0,
    claimed: bool = False,
    at_most: Count | None = None,
) -> int:
    """Largest number of rounds, up to `at_most`, that costs at most `epsilon`.

    Args:
        algorithm: one whose epsilon does not fall with the number of rounds.
        params, federation, view, honest, best_of: as in `certify`.
        epsilon: target, above 0, in nats.
        delta: probability, in (0, 1).
        claimed: as in `calibrate_noise`.
        at_most: the most rounds wanted, where the search ends.

    Raises:
        ValueError: a single round costs more than the target; no number of rounds reaches the target and `at_most` is
            left out; as `certify`.
        LeakError: as `certify`.
    """
    epsilon = checked("epsilon", epsilon, Budget)
    at_most = checked("at_most", at_most, Count | None)
    most, of_noise = _MOST_ROUNDS if at_most is None else at_most, None
    if at_most is None and not claimed:
        require_algorithm(algorithm)
        of_noise = trace_round(algorithm, params, federation).most_rounds
        most = of_noise or most

    price = _priced(params, federation, delta, view, honest, best_of, claimed)

    def cost(rounds: float) -> float:
        return price(algorithm, int(rounds)).epsilon

    def refusal(least: float) -> str:
        first = price(algorithm, int(least))
        why = f"a single round costs {first.epsilon:.4g}; raise epsilon or the noise"
        if math.isinf(first.epsilon):
            why = f"no number of rounds reaches it: {why_infinite(first)}"
        return f"epsilon: {shown(epsilon)}; {why}"

    done = int(search(cost, epsilon, Range(most, 1, begin=(1, 1), factor=2, whole=True), refusal))
    remedy = f"{done} rounds do not reach it; there is nothing to find"
    if of_noise is not None:
        remedy = f"{done} rounds, the most that its noise is made for, do not reach it; make the noise for more"
    require(at_most is not None or done < most, "epsilon", epsilon, remedy)
    return done


def _priced(
    params: Any,
    federation: Any,
    delta: Probability,
    view: View,
    honest: Rate,
    best_of: MeanRuns,
    claimed: bool,
) -> Callable[[Algorithm, int], Certificate | Claim]:
    """(algorithm, rounds) -> what they cost."""
    delta = checked("delta", delta, Probability)
    view = checked("view", view, View)
    honest = checked("honest", honest, Rate)
    best_of = checked("best_of", best_of, MeanRuns)
    claimed = checked("claimed", claimed, bool)
    remedy = "a claim is of one run; leave one of best_of and claimed out"
    require(best_of == 1 or not claimed, "best_of", best_of, remedy)
    options: Any = {"view": view, "honest": honest, "best_of": best_of}
    last: list[TracedRound] = []

    def price(algorithm: Algorithm, rounds: int) -> Certificate | Claim:
        require_algorithm(algorithm)
        if not claimed:
            if not last or last[0].algorithm is not algorithm:
                last[:] = [trace_round(algorithm, params, federation)]
            return last[0].certify(rounds, delta, **options)
        claim: Claim | None = asked("claim", algorithm.claim, "(rounds, delta)", rounds, delta)
        if claim is None:
            raise ValueError("claimed: this algorithm has no claim; calibrate the certificate")
        return claim

    return price
