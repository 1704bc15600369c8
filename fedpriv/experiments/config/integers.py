"""Messages as integers, as secure aggregation adds them up: options of configs whose sums can have integer noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import fedpriv as fp
from fedpriv.core.arguments import checked
from fedpriv.core.complaints import require
from fedpriv.experiments.config.settings import Settings
from fedpriv.mechanisms.integers import SumBits
from fedpriv.mechanisms.mechanisms import Mechanism
from fedpriv.pairs.integer_noise import IntegerKind
from fedpriv.rounds.scheduled_samplers import AnySampler

_Bits: TypeAlias = SumBits | None


@dataclass(frozen=True)
class InIntegers(Settings):
    """Settings of experiments whose messages can travel as integers."""

    bits: int | None = None
    """Messages of private algorithms travel as integers of so many bits, with integer noise, and are added up modulo
    2^bits; by default as floats, with Gaussian noise."""
    integer_noise: IntegerKind | None = None
    """With bits: by default discrete_gaussian where all cohorts have one size, and elsewhere skellam."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checked("bits", self.bits, _Bits)
        unused = self.integer_noise is not None and self.bits is None
        require(not unused, "integer_noise", self.integer_noise, "has no effect without bits")

    def mechanism(
        self, sampler: AnySampler, clip_norm: float, noise_multiplier: float
    ) -> Mechanism:
        """Of the sum of a cohort's messages, with `bits`."""
        one_size = sampler.accounting.of_a_round.full
        noise = self.integer_noise or ("discrete_gaussian" if one_size else "skellam")
        make = fp.discrete_gaussian if noise == "discrete_gaussian" else fp.skellam
        bits = checked("bits", self.bits, SumBits)
        return make(clip_norm, noise_multiplier, bits=bits)
