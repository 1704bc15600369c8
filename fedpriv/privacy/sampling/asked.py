"""What features ask of a draw, beside what it says of itself."""

from __future__ import annotations

import math

from fedpriv.privacy.sampling.dropping import Dropping
from fedpriv.privacy.sampling.grouped import Grouped
from fedpriv.proof.cases import Why
from fedpriv.proof.draws import ONE, Sampling
from fedpriv.proof.samplings import Everyone, FixedSize


def joining(drawn: Sampling) -> float:
    """Inclusion probability as an audit plays it: of whom it is secret, after a cut."""
    cases = drawn.cases(drawn.neighbour, ONE)
    return math.fsum(case.chance * case.rate for case in cases)  # type: ignore[union-attr]


def is_alone(drawn: Sampling) -> bool:
    """Whether nobody's place in a draw depends on another's, so that one's weight is no other's.

    Else a unit may stand where a heavier one would, and moves the sum by the weights of both.
    """
    cases = drawn.cases("removed", ONE)
    return not drawn.secret or not (isinstance(cases, Why) or any(c.far > 1 for c in cases))


def known_by_noise(drawn: Sampling) -> bool:
    """Whether a sum in which each adds noise of its own tells who takes part: how many they are varies.

    Not where another unit takes the place of one, so that there are as many noises either way.
    """
    if isinstance(drawn, Grouped):
        return all(known_by_noise(own.of_a_round) for _, own in drawn.parts)
    return not (drawn.full and (drawn.everyone or drawn.neighbour == "replaced"))


def complete(drawn: Sampling) -> Sampling:
    """The same draws, of whom nobody vanishes."""
    if not isinstance(drawn, Dropping):
        return drawn
    if drawn.size == drawn.population:
        return Everyone(drawn.population)
    return FixedSize(drawn.population, drawn.size)
