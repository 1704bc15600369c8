"""What a noisy sum of a round may have beside its mechanism: codecs, weights, integers, and gradients of records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import jax

from fedpriv.compression.codecs import ALREADY_CODED, UNCODED, Codec, Wire
from fedpriv.core.arguments import NonNegative, Positive, checked
from fedpriv.core.complaints import require
from fedpriv.core.provenance import constructed
from fedpriv.core.trees import dimension, shapes
from fedpriv.mechanisms.correlated import adder_of, is_correlated
from fedpriv.mechanisms.integers import IntegerSum, integer_sum
from fedpriv.mechanisms.mechanisms import ALREADY_PRIVATE, Mechanism
from fedpriv.mechanisms.per_example import MedianClipping, RecordGradients
from fedpriv.mechanisms.schedules import Dynamic, plain
from fedpriv.proof.marks import Released
from fedpriv.proof.seen import Adder
from fedpriv.proof.step import Step
from fedpriv.rounds.record_samplers import PublicGroups, PublicSizes
from fedpriv.rounds.weighting import EQUALLY, ByPublicSizes, Weighting

SumAdder: TypeAlias = Literal["shares", "own"]
"""What a call of `Cohort.sum` may ask for."""


@dataclass(frozen=True)
class PrivateStep(Step):
    """A noisy sum of the messages of a cohort, or of the gradients of a client's records.

    A call of the cohort, or of a shard, makes it.

    Attributes:
      mechanism, sampling, adder: as of `Step`; `sampling` draws the clients, an `AnySampler`, or the records, a
        `RecordSampler`.
      codec: codes the messages; they are clipped after decoding.
      weighting: how much each clipped message counts.
      gradients: of single records, a `Gradients`; None: messages of clients are summed.
      cohort: draws the clients whose records' means are summed, an `AnySampler`; None: no cohort sums them.
    """

    codec: Codec = UNCODED
    weighting: Weighting = EQUALLY
    gradients: Any = None
    cohort: Any = None

    def __post_init__(self) -> None:
        public = isinstance(self.weighting, ByPublicSizes)
        carry_noise = self.adder == "own" or self.passes_on
        if carry_noise and self.weighting != EQUALLY and not public:
            raise ValueError(
                "weighting: messages already carry their noise, and a weight would show through it; leave it out, or "
                "give fp.ByPublicSizes where clients' sizes are public"
            )
        if self._integers is not None:
            self._check_integers()
        if public and not self.passes_on:
            raise ValueError(
                "weighting: public sizes cannot weight messages that are not yet private; give fp.ByExamples(cap)"
            )

    @property
    def _integers(self) -> Any:
        return getattr(self.mechanism, "integers", None)

    def _check_integers(self) -> None:
        """Raises ValueError: messages, or draws, that do not go with sums of integers."""
        used: Any = self.mechanism
        checked("clip_norm", used.clip_norm, Positive)  # the scale is found before compilation
        checked("noise_multiplier", used.noise_multiplier, NonNegative)
        remedy = "its integers come with another noise; give fp.skellam or fp.discrete_gaussian"
        require(used.noise == self._integers.noise, "mechanism: noise", used.noise, remedy)
        if self.gradients is not None:
            return self._check_integers_of_records()
        require(self.codec is UNCODED, "codec", self.codec, ALREADY_CODED)
        remedy = "it divides by what clients weigh, and integers by one number; give 'fixed'"
        require(self.weighting.adder != "server", "weighting: estimator", "clipped", remedy)
        remedy = "an integer mechanism has members add shares; leave it out, or give fp.gaussian"
        require(self.adder == "shares", "adder", self.adder, remedy)
        drawn = self.sampling.accounting
        alike = drawn.counts_equally and drawn.of_a_round.repeats == 1
        remedy = (
            "sums of integers count members equally, and once; give fp.fixed_size or fp.poisson"
        )
        require(alike, "sampler", drawn, remedy)
        full = drawn.full and not self.sampling.has_memory
        summed = used.integers.noise == "skellam" or full
        remedy = (
            "how many discrete Gaussians are summed varies, and with it their law; give fp.skellam, or cohorts of one "
            "size"
        )
        require(summed, "mechanism", used.integers.noise, remedy)

    def _check_integers_of_records(self) -> None:
        """Raises ValueError: shares of members that do not add up in one sum, which alone they hide."""
        used: Any = self.mechanism
        remedy = (
            "integer noise hides records in the sum of a cohort alone; take cohort.private_mean (in fp.dp_sgd "
            "together=True), or give fp.gaussian"
        )
        require(self.cohort is not None, "mechanism", used.noise, remedy)
        remedy = "sums of integers are divided by one number; give fp.fixed_size or fp.poisson"
        require(self.sampling.public_sizes is None, "records", self.sampling, remedy)
        drawn = self.cohort.accounting
        alike = drawn.full and drawn.counts_equally and drawn.turns is None
        alike = alike and drawn.of_a_round.repeats == 1 and drawn.of_a_round.vanish == 0
        remedy = (
            "integer shares of records' noise add up only in cohorts of one size of which nobody vanishes; give "
            "fp.fixed_size or fp.everyone"
        )
        require(alike, "sampler", drawn, remedy)

    def integer_sum(self, d: int) -> IntegerSum | None:
        """How messages of d values, or gradients of records, travel as integers; None: they are floats.

        Of records, each member adds noise of the mechanism's multiplier, as with real noise.
        """
        used: Any = self.mechanism
        if self._integers is None:
            return None
        sigma = used.noise_multiplier
        if self.gradients is None:
            most = self.sampling.accounting.most
            return integer_sum(used.integers, used.clip_norm, sigma, most, d)
        members, records = self.cohort.accounting.most, self.sampling.most
        sigma *= math.sqrt(members)
        return integer_sum(used.integers, used.clip_norm, sigma, members, d, records)

    @property
    def fits_noise(self) -> bool:
        """Whether a message has room for noise: the server neither decodes another nor divides by its weight."""
        return _fits_noise(self.codec, self.weighting)

    @property
    def passes_on(self) -> bool:
        """As `Step`."""
        return self.mechanism is ALREADY_PRIVATE

    @property
    def is_noisy(self) -> bool:
        """Whether its mechanism adds noise in any round."""
        used: Any = self.mechanism
        known = type(used) in (Mechanism, Dynamic, MedianClipping)
        if not known or (type(used) is Mechanism and is_correlated(used)):
            return True
        multipliers = [multiplier for _, multiplier in used.multipliers(1)]
        return any(isinstance(m, jax.core.Tracer) or m > 0 for m in multipliers)

    @property
    def is_proved(self) -> bool:
        """Whether nothing in it is somebody's word: not its mechanism, gradients or codec."""
        used: Any = self.mechanism
        start = used.start if type(used) is Dynamic else used
        if type(start) is MedianClipping or (
            type(start) is Mechanism
            and start.certified_multiplier == 0
            and not is_correlated(start)
        ):
            return True
        scheduled = type(used) is not Dynamic or constructed(used)
        known = type(start) is Mechanism and constructed(start) and scheduled
        by_record = self.gradients is None or type(self.gradients) is RecordGradients
        return known and by_record and (self.codec.lossy or constructed(self.codec))

    def wire(self, d: int) -> Wire:
        """What a client sends of d values, with its weight if the server has to know it.

        Raises:
          ValueError: the codec computes it from something of the round.
        """
        integers = self.integer_sum(d)
        if integers is not None:
            return Wire(integers.length, integers.bits)
        size = _size(self.codec, d)
        weight = 0 if self.fits_noise else self.weighting.bits
        return size._replace(overhead=size.overhead + weight)


def features_of(step: Step) -> PrivateStep:
    """The step with all that it may have: the defaults of a plain one."""
    if isinstance(step, PrivateStep):
        return step
    return PrivateStep(step.mechanism, step.sampling, step.adder)


def told(release: Released) -> tuple[Any, ...]:
    """What a certificate of a release rests on, in plain values."""
    step, d = features_of(release.step), dimension(release.like)
    coded = step.codec.lossy, _size(step.codec, d), constructed(step.codec)
    drawn = step.sampling
    drawn_by: tuple[Any, ...] = (repr(drawn),)
    if not isinstance(drawn, PublicSizes | PublicGroups):
        drawn_by = repr(drawn.accounting), drawn.slots, constructed(drawn)
    of_records = type(step.gradients) is RecordGradients
    rests = plain(step.mechanism), drawn_by, step.adder, coded, repr(step.weighting), of_records
    return type(release).__name__, shapes(release.like), rests, release.times


def adder_of_sum(used: Mechanism, codec: Codec, weighting: Weighting, asked: SumAdder) -> Adder:
    """Who adds the noise of the cohort's sum.

    Args:
      used: the mechanism of the round.
      asked: as `Cohort.sum`.

    Raises:
      ValueError: members are asked for noise that one alone cannot add.
    """
    if is_correlated(used):
        remedy = "leave it out, as one client's noise cannot take back that of earlier rounds"
        require(asked != "own", "adder", asked, remedy)
        return adder_of(used)
    return "server" if asked == "shares" and not _fits_noise(codec, weighting) else asked


def _fits_noise(codec: Codec, weighting: Weighting) -> bool:
    return not codec.lossy and weighting.adder != "server"


def _size(codec: Codec, d: int) -> Wire:
    """Of a coded message of d values, in numbers.

    Raises:
      ValueError: the codec computes it from something of the round.
    """
    try:
        with jax.ensure_compile_time_eval():  # also where it gives arrays
            return Wire(*map(int, codec.wire(d)))
    except jax.errors.ConcretizationTypeError:
        raise ValueError(
            "codec: the size of its messages, `wire`, is computed in the round; give numbers"
        ) from None
