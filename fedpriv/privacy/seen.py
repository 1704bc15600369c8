"""What a view sees of a unit, as one value (`Seen`), and the words that go with it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from fedpriv.core.arguments import checked
from fedpriv.pairs.algebra import NOTHING, Noise
from fedpriv.pairs.integer_noise import IntegerNoise
from fedpriv.privacy.drawn import Pairs
from fedpriv.privacy.sampling import ADJACENCIES, Neighbour, Sampling, Why

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


class Plays(NamedTuple):
    """What an audit draws.

    Attributes:
        used: the `fp.Mechanism` that bounds a contribution and perturbs the sum; None where there is none.
        noise: that is seen.
        far: how far it is moved by a unit that is drawn once and zeroed, in its deviations; integers: 1.
        pairs: as `Seen.pairs`, of draws as they happen, where those count a case that costs more. Of integer noise the
            moves alone: those of real noise of its multiplier.
        drawn: how the units of a round, or the records of a local step, are drawn.
        steps: how often in a round.
        lost: whether shares of the noise are lost with members who vanish.
        of_records: whether records are drawn, and not clients.
    """

    used: Any
    noise: Noise
    far: float
    pairs: Pairs
    drawn: Sampling
    steps: int = 1
    lost: bool = False
    of_records: bool = False

    @property
    def multiplier(self) -> float:
        """Of a unit that is zeroed."""
        if isinstance(self.noise, IntegerNoise):
            return self.noise.multiplier
        return 1 / self.far if self.far else math.inf

    @property
    def kind(self) -> str:
        """Of noise."""
        return self.noise.kind if isinstance(self.noise, IntegerNoise) else self.noise

    @property
    def farthest(self) -> int:
        """How often one draw can hold a unit."""
        return self.drawn.repeats


@dataclass(frozen=True)
class Seen:
    """What one view sees of one unit: in rounds that are alike, or in a whole run.

    Two of them are composed as if their cohorts were drawn independently: what shares one draw that is secret is one.

    Attributes:
        view: who sees it; one of `VIEWS`.
        unit: the privacy unit, "client" (all data of one client), "record" (one example) or "person" (all of one
            person's clients or records, as a public assignment says).
        pairs: of each kind of neighbour, the pair that dominates theirs, or a line that says why there is none.
        event: the rounds, in words.
        words: of each kind of neighbour that has a pair, what has to hold.
        reason: why nothing hides the unit; empty where something does.
        attained: whether some neighbours are as far apart as the pair.
        plays: what audits draw.
    """

    view: View
    unit: Unit
    pairs: Pairs
    event: str
    words: Mapping[Neighbour, tuple[str, ...]] = field(compare=False, repr=False)
    reason: str = ""
    attained: bool = False
    plays: Plays | None = field(default=None, compare=False, repr=False)

    @property
    def hidden(self) -> bool:
        """Whether anything hides the unit."""
        return not self.reason

    @property
    def drawable(self) -> bool:
        """Whether audits can draw it."""
        return self.hidden and self.plays is not None and self.plays.used is not None

    def among(self, neighbour: Neighbour) -> Seen:
        """The same, of such neighbours alone.

        Raises:
            ValueError: an unknown kind of neighbours.
        """
        neighbour = checked("neighbour", neighbour, Neighbour)
        why = Why(f"it is asked for neighbours of which one is {neighbour}")
        pairs = Pairs(*[why] * 4)._replace(**{neighbour: self.pairs.of(neighbour)})
        return replace(self, pairs=pairs)

    @property
    def shows(self) -> bool:
        """Whether anything about the unit is released."""
        known = [pair for pair in self.pairs if not isinstance(pair, Why)]
        return not self.hidden or not known or any(pair != NOTHING for pair in known)


def common_neighbour(seen: Sequence[Seen]) -> Neighbour:
    """The first kind of neighbours for which all of these have a pair.

    Raises:
        ValueError: there is none; says why, of each kind.
    """
    pairs = {n: [each.pairs.of(n) for each in seen] for n in ADJACENCIES}
    why = {n: dict.fromkeys(w for w in each if isinstance(w, Why)) for n, each in pairs.items()}
    found = next((n for n, reasons in why.items() if not reasons), None)
    said = "; ".join(f"{n}: {' and '.join(reasons)}" for n, reasons in why.items())
    if found is None:
        events = " + ".join(dict.fromkeys(each.event for each in seen))
        raise ValueError(f"sampling: {events}; nothing is proved of all of it: {said}")
    return found
