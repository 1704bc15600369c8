"""What a view sees of a unit (`Release`)."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_args

from fedpriv.core.arguments import (
    Count,
    CountOrZero,
    Multiplier,
    Positive,
    Rate,
    check_fields,
    checked,
    require,
)
from fedpriv.pairs.integer_noise import IntegerKind, IntegerNoise
from fedpriv.privacy.sampling import PROVED, Sampling, check_law

View: TypeAlias = Literal["third_party", "server", "server_secagg"]
ClippedUnit: TypeAlias = Literal["client", "record"]
"""What an algorithm clips and perturbs: whole clients, or their records; a person's are several of these."""
Unit: TypeAlias = Literal["client", "record", "person"]
NoiseKind: TypeAlias = Literal["gaussian", "laplace", "discrete_gaussian", "skellam"]
Adder: TypeAlias = Literal["shares", "own", "own_summed", "server", "enclave"]
"""Who adds the noise that a release counts:

- "shares": each of the s members of a cohort adds 1 / s of its variance, so that members who drop out or collude take
  their shares away;
- "own": whoever holds the unit, before sending anything; what others add is not counted;
- "own_summed": each member, as "own"; in the sum the noises of all members count together;
- "server": whoever sums the messages, to the sum;
- "enclave": whoever sums the messages, where the server cannot look.
"""
VIEWS, UNITS = get_args(View), get_args(Unit)
"""The names of all of them."""

NO_NOISE = "no noise is added"
NOTHING_HIDES = "neither a clip and its noise nor anything else hides the unit"
"""Why nothing hides a unit, by default."""

ONE_RUN = "one model, trained once, is released; runs with the same seed share their noise"
BEST_RUN = (
    "one model is released, the best of runs that share no noise; their number follows this distribution and stays "
    "secret, the settings of each run are drawn independently, and the best is chosen by public data or by releases "
    "counted here"
)
SEVERAL_RUNS = (
    "nothing but what these runs release is released; each run has its own seed, so that no two share noise or "
    "cohorts"
)
LATER_RUNS = (
    "of the data, a later run (its settings and its round's arrays) depends only on what this view saw of earlier "
    "runs; its rounds, sampling and multipliers are those counted here, whatever was seen"
)
NO_OTHERS = "no public or test example belongs to the unit"
RANDOM_SEED = (
    "the seed is random and secret; from a seed that can be guessed, such as 0 or 1, the noise can "
    "be computed"
)
REAL_NOISE = "the noise is real-valued; a simulator's seeded float32 noise is not"
NOT_RELEASED = (
    "metrics on private records, cohort sizes (which traffic shows) and times are not released"
)
ALWAYS_ASSUMED = (
    RANDOM_SEED,
    "numbers drawn by threefry2x32 cannot be told from truly random ones",
    ONE_RUN,
    "population, rate, delta, all settings and all numbers in the round were fixed without looking at the data",
    "preprocessing and the initial model do not depend on the private data",
    "checkpoints and the state, which hold what clients keep for themselves, are not released",
    NOT_RELEASED,
    NO_OTHERS,
)
"""What every certificate of a noisy sum assumes."""

SEES = {
    "third_party": "sees every global model",
    "server": "sees every message, knows the cohort",
    "server_secagg": "sees the cohort's sum, knows the cohort",
}
"""By view, what it sees."""


@dataclass(frozen=True)
class Release:
    """What one view sees of one unit in `rounds` rounds, as a Gaussian or Laplace mechanism.

    Each round draws once by `participation`, and once by `sampling` for each of its `local_steps`, all independently.
    If K releases share *one* draw that the view knows, give that draw as `participation`, with
    `sampling=Everyone(...)`. If the view does not know it, they are one release of multiplier (sum_k
    multiplier_k^-2)^-1/2. Two releases are composed as if their cohorts were drawn independently.

    Attributes:
        view: who sees it; one of `VIEWS`.
        unit: the privacy unit, "client" (all data of one client), "record" (one example) or "person" (all of one
            person's clients or records, as a public assignment says).
        multiplier: 1 / whitened sensitivity of zeroing out one unit when it takes part, 1 / sup ||Sigma^-1/2 A u|| (see
            `whitened_multiplier`); for Laplace noise its scale b over the l1 sensitivity; 0 if nothing hides the unit,
            infinity if the view does not see it. It is that of a unit drawn once: one drawn n times counts n
            times.
        sampling: how the units of a round, or the records of a local step, are drawn.
        rounds: number of rounds.
        local_steps: number of releases in a round, such as a client's K local steps, each with its own draw by
            `sampling`.
        participation: how a round's clients are drawn, once for all its local steps; the view is taken to know who
            takes part. A client drawn several times takes part once. None: there is only `sampling`. Where members that
            vanish take noise along, it needs a single release of `Everyone`.
        noise: "gaussian" or "laplace".
        adder: who adds the noise that is counted: "shares", "own", "own_summed", "server" or "enclave"; see `Adder`.
        schedule: if the number of a round decides who takes part: which rounds are a client's, in words. Then `rounds`
            counts a client's rounds, or is 1 if noise is correlated over the whole run.
        reason: why `multiplier` is 0, in words.
        integers: of integer noise, what its law is and how far a unit moves the sum; None of real noise.
        by_record: of a person: whether `sampling` draws its records, and not its clients.
        mechanism: the `fp.Mechanism` that bounds a contribution and perturbs the sum, for audits.

    Raises:
        ValueError: for an unknown view, unit, noise or adder, a negative multiplier, a negative number of steps, or
            noise that a server adds and that is to hide something from it, or that of a sum from who sees messages.
    """

    view: View
    unit: Unit
    multiplier: Multiplier
    sampling: Sampling
    rounds: CountOrZero
    noise: NoiseKind = "gaussian"
    adder: Adder = "shares"
    local_steps: Count = 1
    participation: Sampling | None = None
    reason: str = ""
    schedule: str = ""
    integers: IntegerNoise | None = None
    by_record: bool = False
    mechanism: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)
        remedy = "give Everyone, FixedSize, Poisson, Allocation or WithReplacement"
        require(isinstance(self.sampling, Sampling), "sampling", self.sampling, remedy)
        drawn = self.participation
        known = drawn is None or isinstance(drawn, Sampling)
        require(known, "participation", drawn, f"{remedy}, or None")
        for each in (self.sampling, drawn):
            if each is not None and type(each) not in PROVED:
                check_law(each)
        single = self.sampling.takes_all and self.local_steps == 1
        lost = drawn is not None and drawn.loses_noise
        require(
            single or not lost,
            "participation",
            drawn,
            "members that vanish set the noise of a single release; give it as `sampling`, or with Everyone and one "
            "local step",
        )
        all_shares = self.lossy is None
        remedy = "Laplace noise that has lost shares is no longer Laplace; give Gaussian noise"
        require(self.noise != "laplace" or all_shares, "noise", self.noise, remedy)
        seen = self.adder == "server" and self.view != "third_party" and self.multiplier > 0
        remedy = (
            'a server sees the sum before it adds the noise; give "enclave", or a multiplier of 0'
        )
        require(not seen, "adder", self.adder, remedy)
        of_sum = self.adder in ("enclave", "own_summed")
        seen = of_sum and self.view == "server" and self.multiplier > 0
        remedy = "it sees every message, not only the sum with this noise; "
        remedy += 'give "server_secagg", or noise of a message'
        require(not seen, "view", self.view, remedy)
        of_integers = self.noise in get_args(IntegerKind) and 0 < self.multiplier < math.inf
        kind = self.integers and self.integers.kind
        remedy = "give it for a discrete Gaussian or Skellam noise, of that kind, and for no other"
        require(kind == (self.noise if of_integers else None), "integers", self.integers, remedy)
        if self.integers is not None:
            said = self.integers.multiplier
            alike = math.isclose(self.multiplier, said, rel_tol=1e-6)
            require(alike, "multiplier", self.multiplier, f"give that of `integers`, {said:.7g}")
        few = self.rounds * self.local_steps <= 2**53
        require(few, "local_steps", self.local_steps, "give at most 2^53 steps in all rounds")

    @property
    def steps(self) -> int:
        """What `rounds` was called."""
        warnings.warn(
            "Release.steps: now Release.rounds; it goes with 1.0", FutureWarning, stacklevel=2
        )
        return self.rounds

    @property
    def event(self) -> str:
        """The rounds in words."""
        times = (
            f"{self.rounds} x" if self.local_steps == 1 else f"{self.rounds} x {self.local_steps} x"
        )
        text = f"{times} {self.noise} noise of multiplier {self.multiplier:.4g} on {self.sampling}"
        if self.participation is not None:
            text = f"{text} of a client in {self.participation}"
        return f"{text} ({self.schedule})" if self.schedule else text

    @property
    def of_records(self) -> bool:
        """Whether records are drawn, so that no view knows which, and not clients."""
        return self.unit == "record" or (self.unit == "person" and self.by_record)

    @property
    def lossy(self) -> Sampling | None:
        """The draw whose members that vanish take shares of the noise along, if there is one."""
        both = self.sampling, self.participation
        return next((drawn for drawn in both if drawn is not None and drawn.loses_noise), None)

    @property
    def counts_others(self) -> bool:
        """Whether noise of others than the unit's holder is counted, which they may leave out or tell."""
        return self.adder in ("shares", "own_summed")

    @property
    def goes_with_its_unit(self) -> bool:
        """Whether noise is gone with a unit that is removed: that which its holder adds."""
        return self.adder in ("own", "own_summed")

    def moved(self, times: Positive) -> Release:
        """The release of a unit that moves the sum so many times as far, its noise being positive and finite."""
        times = checked("times", times, Positive)
        integers = self.integers and self.integers.moved(times)
        multiplier = integers.multiplier if integers else self.multiplier / times
        return replace(self, multiplier=multiplier, integers=integers)

    def with_honest(self, fraction: Rate) -> Release:
        """The release when only `fraction` of the noise's shares are added and stay unknown to the view.

        For Gaussian noise the multiplier is sqrt(fraction) times the full one. Shares of Laplace noise are not Laplace,
        so nothing is certified.
        """
        fraction = checked("fraction", fraction, Rate)
        unchanged = fraction == 1 or not self.counts_others
        if unchanged or self.multiplier == 0 or math.isinf(self.multiplier):
            return self
        if self.noise == "laplace":
            reason = "Laplace noise with missing shares is no longer Laplace"
            return replace(self, multiplier=0.0, reason=reason)
        if self.integers is not None:
            left = self.integers.with_part(fraction)
            reason = "no member's whole share of the noise is left"
            if left is None:
                return replace(self, multiplier=0.0, integers=None, reason=reason)
            return replace(self, multiplier=left.multiplier, integers=left)
        return replace(self, multiplier=self.multiplier * math.sqrt(fraction))
