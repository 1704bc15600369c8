"""What of an audit may be chosen, beside the config's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias, get_args

from experiments.attacks.audit.canary import WORST, Kind
from experiments.attacks.audit.repeated_training import MOST_RUNS
from experiments.config.fields import Number, NumberOrZero
from fedpriv.core.arguments import Probability, Range, require

Part: TypeAlias = Literal["mechanism", "many_runs", "one_run", "membership"]
PARTS: tuple[Part, ...] = get_args(Part)
USUAL: tuple[Part, ...] = ("mechanism", "one_run", "membership")
Draws: TypeAlias = Annotated[
    int, Range("a whole number from 100 (fewer say nothing) to 2^24", 100, 2**24, whole=True)
]
Runs: TypeAlias = Annotated[
    int, Range("a whole number from 100 (fewer say nothing) to 2^20", 100, MOST_RUNS, whole=True)
]


@dataclass(frozen=True)
class Wanted:
    """Which audits, and how large.

    Raises:
      ValueError: no parts.
    """

    parts: tuple[Part, ...] = USUAL
    """Which audits: `mechanism` needs no data, `one_run` and `membership` train every algorithm once for each seed,
    `many_runs` trains it --runs times."""
    runs: Runs = 1000
    """Trainings of each algorithm for `many_runs`, half of them with a canary."""
    canary: tuple[Kind, ...] = (WORST,)
    """Of `many_runs`, each kind with trainings of its own: the `worst_case` of the mechanism; a client (a record) that
    trains on its own data (`natural`), or with every label moved to the next class (`mislabelled`)."""
    deltas: tuple[Probability, ...] = ()
    """At which the trainings' epsilons are bounded and certified; by default that of the config."""
    draws: Draws = 100_000
    """Of each neighbour for `mechanism`."""
    canaries: Number | None = None
    """In each run of `one_run`; by default half the clients, 500 at most; of records 500, at most 10 of a client."""
    audit_seed: NumberOrZero = 0
    """Of the draws and of `many_runs`, whose trainings with another one are independent."""

    def __post_init__(self) -> None:
        require(len(self.parts) > 0, "parts", [], f"name some of {', '.join(PARTS)}")
        require(len(self.canary) > 0, "canary", [], f"name some of {', '.join(get_args(Kind))}")
        repeated = len(set(self.canary)) < len(self.canary)
        require(not repeated, "canary", list(self.canary), "name each kind once")
