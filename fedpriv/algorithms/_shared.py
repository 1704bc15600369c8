"""What the algorithms have in common."""

from __future__ import annotations

from collections.abc import Callable

from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.privacy import Claim, fed_smp_claim
from fedpriv.rounds.samplers import Sampler


def claimed_by_fed_smp(
    mechanism: Mechanism, sampler: Sampler
) -> Callable[[int, float], Claim | None]:
    """`Algorithm.claim`: the epsilon of Fed-SMP's Section 6.2."""
    return lambda rounds, delta: fed_smp_claim(
        mechanism.certified_multiplier, sampler.accounting, rounds, delta
    )
