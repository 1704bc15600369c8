"""What a view sees of a unit (`Release`)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_args

from fedpriv.core.arguments import (
    Count,
    CountOrZero,
    Multiplier,
    Rate,
    check_fields,
    checked,
    require,
)
from fedpriv.privacy.sampling import Everyone, Sampling, loses_noise

View: TypeAlias = Literal["third_party", "server", "server_secagg"]
Unit: TypeAlias = Literal["client", "record"]
NoiseKind: TypeAlias = Literal["gaussian", "laplace"]
VIEWS, UNITS = get_args(View), get_args(Unit)
"""The names of all of them."""

NO_NOISE = "no noise is added"
"""Why nothing hides a unit, by default."""

ONE_RUN = "one model is released, trained once: runs with the same seed share their noise"
BEST_RUN = (
    "one model is released, the best of runs that share no noise; their number is drawn by this law and stays secret, "
    "the settings of each are drawn independently, and the best is chosen by what is public, or by what is counted here"
)
SEVERAL_RUNS = (
    "what these runs release, and nothing else, is released; each has a seed of its own, so that no two share noise or "
    "cohorts"
)
LATER_RUNS = (
    "a later run, with its settings and the arrays of its round, may depend on what this view saw of the earlier ones "
    "and on nothing else of the data; its rounds, sampling and multipliers are those counted here, whatever was seen"
)
NO_OTHERS = "public and test examples are not the unit's"
ALWAYS_ASSUMED = (
    "the noise is drawn from the real numbers; a simulator's seeded float32 noise is not",
    "the seed is random and secret; one such as 0 or 1 can be guessed, and the noise computed from it",
    ONE_RUN,
    "population, rate, delta, all settings and the numbers in the round were fixed without looking at the data",
    "preprocessing and the initial model do not depend on the private data",
    "checkpoints and the state are not released; they hold what clients keep for themselves",
    "metrics on private records, cohort sizes (traffic tells them), times and the capacity (array shapes show the "
    "largest client) are not released",
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
    """What one view sees of one unit in `steps` rounds, as a Gaussian or Laplace mechanism.

    Each round draws once by `participation`, and once by `sampling` for each of its `local_steps`, all independent. K
    releases of *one* draw that the view knows have that draw as `participation` and `sampling=Everyone(...)`; of one
    that it does not know, they are one release of multiplier (sum_k multiplier_k^-2)^-1/2. Two releases are composed
    as if their cohorts were drawn independently.

    Attributes:
        view: who looks; one of `VIEWS`.
        unit: what is protected, "client" (all data of one client) or "record" (one example).
        multiplier: 1 / whitened sensitivity of zeroing out one unit when it takes part, 1 / sup ||Sigma^-1/2 A u|| (see
            `whitened_multiplier`); for Laplace noise its scale b over the l1 sensitivity; 0 where nothing hides the
            unit, infinity where it is not seen. Of a unit that is drawn once: what is drawn n times counts n times.
        sampling: how the units of a round, or the records of a local step, are drawn.
        steps: number of rounds.
        local_steps: releases in a round, such as a client's K local steps, each with a draw of its own by `sampling`.
        participation: how a round's clients are drawn, once for all its local steps; the view is taken to know who
            takes part. Who is drawn several times takes part once. None: `sampling` says it all. One whose noise is
            lost with members that vanish goes with one release of `Everyone`.
        noise: "gaussian" or "laplace".
        noise_is_split: whether each of the s members of a cohort adds 1 / s of the noise's variance, so that those who
            drop out or collude take theirs away.
        own_noise: whether each member of a cohort adds noise of its own, as much whoever else takes part, so that the
            noise of a member that is removed is gone with it.
        server_adds_noise: whether whoever sums adds the noise, to the sum, instead of those who hold the units.
        schedule: where the sampler decides by the round who takes part: which rounds are a client's, in words. Then
            `steps` counts those of a client, or is 1 where noise is correlated over the whole run.
        reason: where `multiplier` is 0: why, in words.
        mechanism: the `fp.Mechanism` that bounds a contribution and perturbs the sum, for audits.

    Raises:
        ValueError: for an unknown view, unit or noise, a negative multiplier, or a negative number of steps.
    """

    view: View
    unit: Unit
    multiplier: Multiplier
    sampling: Sampling
    steps: CountOrZero
    noise: NoiseKind = "gaussian"
    noise_is_split: bool = True
    local_steps: Count = 1
    participation: Sampling | None = None
    reason: str = ""
    server_adds_noise: bool = False
    own_noise: bool = False
    schedule: str = ""
    mechanism: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)
        remedy = "give Everyone, FixedSize, Poisson, Allocation or WithReplacement"
        require(isinstance(self.sampling, Sampling), "sampling", self.sampling, remedy)
        drawn = self.participation
        known = drawn is None or isinstance(drawn, Sampling)
        require(known, "participation", drawn, f"{remedy}, or None")
        alone = isinstance(self.sampling, Everyone) and self.local_steps == 1
        require(
            alone or not loses_noise(drawn),
            "participation",
            drawn,
            "it says how much noise one release has; give it as `sampling`, or beside Everyone and one local step",
        )
        whole = not (loses_noise(self.sampling) or loses_noise(drawn))
        remedy = "Laplace noise that has lost shares is no longer Laplace; give Gaussian noise"
        require(self.noise == "gaussian" or whole, "noise", self.noise, remedy)
        few = self.steps * self.local_steps <= 2**53
        require(few, "local_steps", self.local_steps, "give at most 2^53 steps in all rounds")

    @property
    def event(self) -> str:
        """The rounds in words."""
        times = (
            f"{self.steps} x" if self.local_steps == 1 else f"{self.steps} x {self.local_steps} x"
        )
        text = f"{times} {self.noise} noise of multiplier {self.multiplier:.4g} on {self.sampling}"
        if self.participation is not None:
            text = f"{text} of a client in {self.participation}"
        return f"{text} ({self.schedule})" if self.schedule else text

    def with_honest(self, fraction: Rate) -> Release:
        """The release when only `fraction` of the noise's shares are added and stay unknown to the view.

        The multiplier is sqrt(fraction) of the full one for Gaussian noise. Shares of Laplace noise are not Laplace, so
        that nothing is certified then.
        """
        fraction = checked("fraction", fraction, Rate)
        unchanged = fraction == 1 or not self.noise_is_split
        if unchanged or self.multiplier == 0 or math.isinf(self.multiplier):
            return self
        if self.noise == "laplace":
            reason = "what is left of Laplace noise when shares of it are missing is not Laplace"
            return replace(self, multiplier=0.0, reason=reason)
        return replace(self, multiplier=self.multiplier * math.sqrt(fraction))
