"""The noise, or the rounds, with which a config reaches an epsilon."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, NamedTuple

from experiments.accounting import budget
from experiments.config import Run, View
from fedpriv.certification.calibration import calibrate_rounds


class Target(NamedTuple):
    """What to solve for.

    Attributes:
      solve: what is filled in.
      epsilon: to reach, at the config's delta.
      honest: fraction of each cohort that adds its share of the noise.
      claimed: whether the paper's claim is to reach it, in place of the certificate.
    """

    solve: Literal["noise", "rounds"]
    epsilon: float
    view: View = "third_party"
    honest: float = 1.0
    claimed: bool = False


def solve(ledger_of: Any, config: Run, target: Target) -> tuple[Run, dict[str, Any]]:
    """The config with the noise or the rounds that the target allows, and what was found.

    The answer is for the first of the config's algorithms that adds noise.

    Raises:
      ValueError: the target cannot be reached, or the config has no such algorithm or field.
    """
    name = _first_private(ledger_of, config, target.solve)
    wanted = {
        "epsilon": target.epsilon,
        "view": target.view,
        "honest": target.honest,
        "claimed": target.claimed,
    }
    if target.solve == "rounds":
        start = ledger_of(config)
        value: float = calibrate_rounds(*start.of(name), delta=start.delta, **wanted)
        config = replace(config, rounds=value)
    else:
        noise = budget.noise_for(ledger_of, config, name, **wanted)
        ((_, value),) = budget.turned(config, name, noise).items()
        config = config.with_noise(name, noise)
    ledger = ledger_of(config)
    claim = ledger.claim(name, config.rounds)
    proved = ledger.certify(name, config.rounds, view=target.view, honest=target.honest)
    reached = claim if target.claimed and claim else proved
    if reached.epsilon > target.epsilon * (1 + 1e-6):
        raise ValueError(
            f"--solve {target.solve}: with {value} it is another algorithm, which costs {reached.epsilon:.4g}, as its "
            "settings depend on the rounds; try --rounds by hand"
        )
    return config, {
        "for": target.solve,
        "value": value,
        "target_epsilon": target.epsilon,
        "by": getattr(reached, "status", "certified"),
        "algorithm": name,
        "honest": target.honest,
        **{key: getattr(reached, key) for key in ("epsilon", "delta", "unit", "view", "relation")},
    }


def _first_private(ledger_of: Any, config: Run, solve: str) -> str:
    ledger = ledger_of(config)
    for name in ledger.entries:
        own = ledger_of(config.with_noise(name, 1.0)) if solve == "noise" else ledger
        if any(release.multiplier > 0 for release in own.trace(name).releases(1)):
            return name
    raise ValueError(
        f"algorithms: none of {', '.join(ledger.entries)} adds noise; name one that does"
    )
