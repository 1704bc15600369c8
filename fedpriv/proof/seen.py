"""What a view sees of a unit, as one value (`Seen`), and the words that go with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from fedpriv.proof.cases import ADJACENCIES, Neighbour, Pairs, Why
from fedpriv.proof.pairs import NOTHING

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
NO_OTHERS = "no public or test example belongs to the unit"
RANDOM_SEED = (
    "the seed is random and secret; from a seed that can be guessed, such as 0 or 1, the noise can "
    "be computed"
)
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
        rows: of the table of views, that this is made of.
    """

    view: View
    unit: Unit
    pairs: Pairs
    event: str
    words: Mapping[Neighbour, tuple[str, ...]] = field(compare=False, repr=False)
    reason: str = ""
    attained: bool = False
    rows: tuple[Any, ...] = field(default=(), compare=False, repr=False)

    @property
    def hidden(self) -> bool:
        """Whether anything hides the unit."""
        return not self.reason

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
