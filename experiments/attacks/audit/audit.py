"""`experiments.audit`: makes the audits that are asked for, of mechanisms, of training runs, of trained models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

from experiments.accounting import budget
from experiments.attacks.audit.mechanisms import audit_mechanisms
from experiments.attacks.audit.report import Audited
from experiments.attacks.audit.training import audit_runs, infer
from experiments.config import modules
from experiments.config.experiment import ledger_of, strategy_of
from experiments.config.fields import Number, NumberOrZero
from experiments.config.modules import Config
from experiments.config.settings import Settings, changed
from experiments.training.prepare import built
from experiments.training.shared_arrays import SharedArrays
from fedpriv.core.arguments import Range, checked, require
from fedpriv.devices.layout import split_cpu

Part: TypeAlias = Literal["mechanism", "run", "membership"]
Draws: TypeAlias = Annotated[
    int, Range("a whole number from 100 (fewer say nothing) to 2^24", 100, 2**24, whole=True)
]
PARTS: tuple[Part, ...] = get_args(Part)


def audit(
    config: str | Path | Config = "quickstart",
    *,
    parts: Sequence[Part] = PARTS,
    draws: Draws = 100_000,
    canaries: Number | None = None,
    seed: NumberOrZero = 0,
    **settings: Any,
) -> Audited:
    """Claimed, certified and audited epsilons side by side.

    Args:
      config, settings: as for `train`.
      parts: "mechanism", by draws in its worst direction; "run", by canaries; "membership", from the loss. The first
        needs no data, the others train every algorithm once each.
      draws: of each neighbour, 100 at least.
      canaries: in each run; by default half the clients, 500 at most.
      seed: of the draws.

    Raises:
      ValueError: something that was given is wrong.
      DivergedError: a training diverged.
    """
    split_cpu()
    _, module = modules.named(config)
    require("output" not in settings, "output", settings.get("output"), "an audit writes nothing")
    parts = checked("parts", parts, Sequence[Part])
    draws = checked("draws", draws, Draws)
    canaries = checked("canaries", canaries, Number | None)
    seed = checked("seed", seed, NumberOrZero)
    return audited(module, changed(module.settings, settings), parts, draws, canaries, seed)


def audited(
    module: Config,
    settings: Settings,
    wanted: Sequence[str],
    draws: int,
    canaries: int | None,
    seed: int,
) -> Audited:
    """The parts that are wanted; the data first, so that a missing set is found before minutes are spent."""
    require(len(wanted) > 0, "parts", [], f"name some of {', '.join(PARTS)}")
    parts: dict[str, Any] = {}
    training = {"run", "membership"} & set(wanted)
    noise = budget.solved(module, settings)
    if training:
        split_cpu(settings.layout.devices)
        strategy = strategy_of(settings.layout)
        experiment = built(module, settings, noise, SharedArrays())
        ledger = experiment.ledger
    else:
        ledger = budget.made(partial(ledger_of, module), settings, noise)
    if "mechanism" in wanted:
        parts["mechanisms"] = audit_mechanisms(ledger, settings.rounds, draws, seed)
    if training:
        if "run" in wanted:
            parts["runs"] = audit_runs(experiment, settings, strategy, canaries)
        if "membership" in wanted:
            parts["inferred"] = infer(experiment, settings, strategy)
    return Audited(ledger.delta, **parts)
