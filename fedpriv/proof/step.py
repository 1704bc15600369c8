"""A private step: all that a noisy sum of a round consists of, told once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from fedpriv.core.provenance import constructed
from fedpriv.proof.bound import Mechanism
from fedpriv.proof.call import NoisySum
from fedpriv.proof.seen import Adder


@dataclass(frozen=True)
class Step(NoisySum):
    """A noisy sum of the messages of a cohort. What else a sum may have, a step of another class says: the door for it.

    A call of the cohort makes it. It is what marks in a traced round carry, and what views see is made of.

    Attributes:
      mechanism: clips each contribution and perturbs the sum.
      sampling: draws the clients.
      adder: who adds the noise; see `fedpriv.proof.seen.Adder`.
    """

    mechanism: Any
    sampling: Any
    adder: Adder

    @property
    def is_noisy(self) -> bool:
        """Whether it adds noise in any round: labels then have to be bounded. What is not known does."""
        used = self.mechanism
        if type(used) is not Mechanism or isinstance(used.certified_multiplier, jax.core.Tracer):
            return True
        return bool(used.certified_multiplier > 0)

    @property
    def is_proved(self) -> bool:
        """Whether its mechanism is nobody's word."""
        known = type(self.mechanism) is Mechanism
        return known and (not self.is_noisy or constructed(self.mechanism))

    @property
    def passes_on(self) -> bool:
        """Whether messages are private already, which is checked: then their sum needs no noise."""
        return False
