"""`experiments.audit`: makes the audits that are asked for, of mechanisms, of training runs, of trained models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiments.accounting import budget
from experiments.attacks.audit.canary import WORST, Kind
from experiments.attacks.audit.many_runs import audit_many_runs
from experiments.attacks.audit.mechanisms import audit_mechanisms
from experiments.attacks.audit.membership import infer
from experiments.attacks.audit.one_run import audit_one_run
from experiments.attacks.audit.repeated_training import Asked
from experiments.attacks.audit.report import Audited
from experiments.attacks.audit.wanted import USUAL, Draws, Part, Runs, Wanted
from experiments.config import modules
from experiments.config.experiment import ledger_of, strategy_of
from experiments.config.fields import Number, NumberOrZero
from experiments.config.modules import Config
from experiments.config.settings import Settings, changed
from experiments.training.prepare import built
from experiments.training.shared_arrays import SharedArrays
from fedpriv.core.arguments import Probability, check_fields, checked, require
from fedpriv.devices.layout import split_cpu


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
    """The parts that are wanted; the data first, so that a missing set is found before minutes are spent."""
    parts: dict[str, Any] = {}
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
