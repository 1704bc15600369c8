"""The noise, or the rounds, with which a config reaches an epsilon."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, TypeAlias

from fedpriv.certification.calibration import calibrate_rounds
from fedpriv.core.complaints import require
from fedpriv.experiments.accounting.found import noise_for, turned
from fedpriv.experiments.config.settings import Settings

Sought: TypeAlias = Literal["noise", "rounds"]


def solve(
    ledger_of: Any,
    settings: Settings,
    sought: Sought,
    claimed: bool = False,
    honest: float = 1.0,
    best_of: float = 1.0,
) -> tuple[Settings, dict[str, Any]]:
    """The settings with the noise or the rounds that their `target_epsilon` allows, and how they were solved for.

    The answer is for the first of the algorithms that adds noise.

    Args:
      claimed: whether the paper's claim is to reach the target, in place of the certificate of the settings' `view`.
      honest: fraction of each cohort that adds its share of the noise.
      best_of: mean number of runs of which the best is released, which together are to reach the target.

    Raises:
      ValueError: the target cannot be reached, or the settings have no target, no such algorithm or no such field.
    """
    target, view = settings.target_epsilon, settings.view
    remedy = "target_epsilon alone finds the noise that statistics leave; leave solve out"
    require(settings.statistics is None, "solve", sought, remedy)
    if target is None:
        raise ValueError(f"solve: {sought} needs a target; give target_epsilon")
    name = _first_private(ledger_of, settings, sought)
    options: dict[str, Any] = {"view": view, "honest": honest, "best_of": best_of}
    wanted = {"epsilon": target, "claimed": claimed, **options}
    if sought == "rounds":
        start = ledger_of(settings)
        rounds = calibrate_rounds(*start.of(name), delta=start.delta, **wanted)
        settings = replace(settings, rounds=rounds)
        value: float = rounds
    else:
        noise = noise_for(ledger_of, settings, name, **wanted)
        ((_, value),) = turned(settings, name, noise).items()
        settings = settings.with_noise(name, noise)
    settings = replace(settings, target_epsilon=None)
    ledger = ledger_of(settings)
    trained = settings.rounds_of(name)
    claim = ledger.claim(name, trained)
    proved = ledger.certify(name, trained, **options)
    reached = claim if claimed and claim else proved
    if reached.epsilon > target * (1 + 1e-6):
        raise ValueError(
            f"solve: {sought} {value} changes the algorithm, whose settings depend on the rounds, and it costs "
            f"{reached.epsilon:.4g}; try rounds by hand"
        )
    return settings, {
        "for": sought,
        "value": value,
        "target_epsilon": target,
        "by": getattr(reached, "status", "certified"),
        "algorithm": name,
        "honest": honest,
        "best_of": best_of,
        **{key: getattr(reached, key) for key in ("epsilon", "delta", "unit", "view", "relation")},
    }


def _first_private(ledger_of: Any, settings: Settings, solve: str) -> str:
    ledger = ledger_of(settings)
    for name in ledger.entries:
        own = ledger_of(settings.with_noise(name, 1.0)) if solve == "noise" else ledger
        traced = own.trace(name)
        if any(each.hidden for kind in traced.kinds for each in traced.seen(1, kind)):
            return name
    raise ValueError(
        f"algorithms: none of {', '.join(ledger.entries)} adds noise; name one that does"
    )
