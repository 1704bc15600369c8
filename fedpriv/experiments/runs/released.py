"""release.json: the model that a choice under a certificate (`sweep --best-of`) has kept, read as a run's summary."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpriv.core.json_values import typed
from fedpriv.experiments.base.files import opened
from fedpriv.experiments.base.spread import Spread
from fedpriv.experiments.runs.contents import Begun, Report, Summary
from fedpriv.privacy import Certificate

RELEASE = "release.json"


@dataclass(frozen=True)
class Release:
    """release.json; where every trial diverged, it has a certificate alone.

    Attributes:
      certified: of the choice among the trials.
      best_of: trials on average; 0 where an older version did not record it.
      values: the settings in which the trials differ.
      value: of the metric on the public test records, after the last round.
    """

    certified: Certificate
    config: str = ""
    algorithm: str = ""
    rounds: int = 0
    best_of: float = 0.0
    settings: dict[str, Any] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    solved: dict[str, Any] = field(default_factory=dict)
    metric: str = ""
    value: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def choice(self) -> str:
        """What the certificate is of, in words."""
        number = f", {self.best_of:g} on average" if self.best_of else ""
        return f"the choice of the best of a secret number of trials{number}"


def read_release(folder: Path) -> tuple[Begun, Summary]:
    """As a run with one seed, which is secret: nothing but its last score is known, or may be.

    Raises:
      ValueError: the file is damaged, or every trial diverged.
    """
    path, remedy = folder / RELEASE, "restore it, or leave this folder out"
    with opened(path, remedy) as file:
        text = file.read()
    try:
        found = typed(Release, json.loads(text))
    except (ValueError, RecursionError, OverflowError) as error:
        raise ValueError(f"{path} is damaged ({error}); {remedy}") from None
    if not found.algorithm:
        raise ValueError(f"{folder} holds no model, as every trial diverged; leave it out")
    name = found.algorithm
    final = {found.metric: Spread(found.value, None, (found.value,))}
    solved = {name: found.solved} if found.solved else {}
    report = Report(found.rounds, None, {found.certified.view: found.certified}, of_all_kinds=True)
    summary = Summary(
        config=found.config,
        settings=found.settings,
        algorithm_settings={name: dict(found.solved)},
        status="complete",
        rounds={name: found.rounds},
        rounds_planned={name: found.rounds},
        metric=found.metric,
        best={name: {}},
        final={name: final},
        of_score=(found.metric,),
        uplink_mb_per_client={},
        downlink_mb_per_client={},
        privacy={name: report},
        privacy_notes=found.notes,
        rounds_per_second={},
        compile_seconds={},
        versions={},
        device={},
        git_revision=None,
        solved=solved,
        secret_seed=True,
        choice=found.choice,
    )
    return Begun(found.config, found.settings, secret_seed=True, solved=solved), summary
