"""`experiments.audit`: makes the audits that are asked for, of mechanisms, of training runs, of trained models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

from fedpriv.core.arguments import Probability, Range, check_fields, checked
from fedpriv.core.complaints import require
from fedpriv.devices.layout import split_cpu
from fedpriv.experiments.accounting import budget
from fedpriv.experiments.attacks.audit.canary import WORST, Kind
from fedpriv.experiments.attacks.audit.many_runs import audit_many_runs
from fedpriv.experiments.attacks.audit.mechanisms import audit_mechanisms
from fedpriv.experiments.attacks.audit.membership import infer
from fedpriv.experiments.attacks.audit.one_run import audit_one_run
from fedpriv.experiments.attacks.audit.repeated_training import MOST_RUNS, Asked
from fedpriv.experiments.attacks.audit.report import Audited
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.fields import Number, NumberOrZero
from fedpriv.experiments.config.made import ledger_of, strategy_of
from fedpriv.experiments.config.modules import Config
from fedpriv.experiments.config.settings import Settings, changed
from fedpriv.experiments.training.prepare import built
from fedpriv.experiments.training.shared_arrays import SharedArrays

Part: TypeAlias = Literal["mechanism", "many_runs", "one_run", "membership"]
PARTS: tuple[Part, ...] = get_args(Part)
USUAL: tuple[Part, ...] = ("mechanism", "one_run", "membership")
Draws: TypeAlias = Annotated[
    int, Range("a whole number from 100 (fewer say nothing) to 2^24", 100, 2**24, integer=True)
]
Runs: TypeAlias = Annotated[
    int, Range("a whole number from 100 (fewer say nothing) to 2^20", 100, MOST_RUNS, integer=True)
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


def audit(
    config: str | Path | Config = "quickstart",
    *,
    parts: Sequence[Part] = USUAL,
    runs: Runs = 1000,
    canary: Sequence[Kind] = (WORST,),
    deltas: Sequence[Probability] = (),
    draws: Draws = 100_000,
    canaries: Number | None = None,
    seed: NumberOrZero = 0,
    **settings: Any,
) -> Audited:
    """Claimed, certified and audited epsilons side by side.

    Args:
      config, settings: as for `train`.
      parts: "mechanism", by draws in its worst direction, which needs no data; "many_runs", by whole trainings with and
        without a canary; "one_run", by many canaries in one; "membership", from the loss.
      runs: of each algorithm for "many_runs", 100 at least.
      canary: of "many_runs", each with runs of its own: "worst_case"; a unit with its own data ("natural"), or with
        wrong labels ("mislabelled").
      deltas: at which trainings are audited, by default the config's.
      draws: of each neighbour, 100 at least.
      canaries: in each run; by default half the clients, 500 at most.
      seed: of the draws and of many runs.

    Raises:
      ValueError: something that was given is wrong.
      DivergedError: a training diverged.
    """
    split_cpu()
    name, module = modules.named(config)
    require("output" not in settings, "output", settings.get("output"), "an audit writes nothing")
    parts = checked("parts", parts, Sequence[Part])
    deltas = checked("deltas", deltas, Sequence[Probability])
    seed = checked("seed", seed, NumberOrZero)
    canary = checked("canary", canary, Sequence[Kind])
    wanted = Wanted(tuple(parts), runs, tuple(canary), tuple(deltas), draws, canaries, seed)
    check_fields(wanted)
    return audited(name, module, changed(module.settings, settings), wanted)


def audited(
    name: str, module: Config, settings: Settings, wanted: Wanted, folder: Path | None = None
) -> Audited:
    """The parts of an audit that are wanted; data first, so that a missing set is found before minutes are spent."""
    parts: dict[str, Any] = {}
    remedy = "an audit is of training alone; leave it out"
    require(settings.statistics is None, "statistics", settings.statistics, remedy)
    training = {"many_runs", "one_run", "membership"} & set(wanted.parts)
    if training:  # of many runs each has a device of its own, whatever a round is divided over
        split_cpu(None if "many_runs" in wanted.parts else settings.layout.devices)
    noise = budget.solved(module, settings)
    if training:
        strategy = strategy_of(settings.layout)
        experiment = built(module, settings, noise, SharedArrays())
        ledger = experiment.ledger
    else:
        ledger = budget.made(partial(ledger_of, module), settings, noise)
    for algorithm in ledger.entries:
        kinds = ledger.trace(algorithm).kinds
        if any(kind.group for kind in kinds):
            raise ValueError(
                f"groups.names: {algorithm} has units in groups, and these audits are of units that are all alike; "
                "leave groups.names out, or audit the releases of one group with fp.attacks"
            )
        if len(kinds) > 1:
            raise ValueError(
                f"persons: {algorithm} has persons who hold different records, and these audits are of units that are "
                "all alike; bound what a person holds, or audit the releases of one kind with fp.attacks"
            )
    deltas = wanted.deltas or (ledger.delta,)
    if "mechanism" in wanted.parts:
        drawn = (settings.rounds, wanted.draws, wanted.audit_seed)
        parts["mechanisms"] = audit_mechanisms(ledger, *drawn)
    if "many_runs" in wanted.parts:
        asked = Asked(name, wanted.runs, deltas, wanted.audit_seed, folder)
        given = (experiment, settings, strategy, asked)
        parts["many_runs"] = audit_many_runs(*given, wanted.canary)
    if "one_run" in wanted.parts:
        parts["one_run"] = audit_one_run(experiment, settings, strategy, wanted.canaries, deltas)
    if "membership" in wanted.parts:
        parts["inferred"] = infer(experiment, settings, strategy)
    return Audited(ledger.delta, **parts)
