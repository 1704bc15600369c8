"""When an algorithm has trained enough: a metric reached a value, or stopped improving."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from fedpriv.engine.client_metric_names import HELD_OUT, PERSONAL, parsed
from fedpriv.engine.history import Evaluation, PublicEvaluation
from fedpriv.models.score import better_higher, is_fraction, main_metric, meant


class Target(NamedTuple):
    """For stopping: a metric, and the value at which it is good enough."""

    metric: str
    value: float


def target(text: str) -> Target:
    """The `Target` of NAME=VALUE.

    Raises:
      ValueError: it is none.
    """
    name, equals, value = text.partition("=")
    try:
        reached = float(value)
    except ValueError:
        reached = math.nan
    if not (name and equals and math.isfinite(reached)):
        raise ValueError(f"stop_at: {text!r} is not NAME=VALUE, such as accuracy=0.8")
    if is_fraction(name) and not 0 <= reached <= 1:
        raise ValueError(f"stop_at: {text!r}: {name} is in [0, 1], so 80 % is {name}=0.8")
    return Target(name, reached)


def check_metric(field: str, name: str, names: Sequence[str]) -> None:
    """Raises ValueError: the metric that a setting names is none of `names`; says what would give it."""
    if name in names:
        return
    raise ValueError(
        f"{field}: there is no {name!r}; the score gives {', '.join(names)}"
        f"{_missing(name, names) or meant(name, names)}"
    )


def _missing(name: str, names: Sequence[str]) -> str:
    """What a number over clients needs, where others are among `names` or none."""
    wanted = parsed(name)
    if wanted and wanted.by_group and not any(of.by_group for of in map(parsed, names) if of):
        return "; those of groups need an Experiment with groups= or groups_of_test="
    kinds = {of.kind for of in map(parsed, names) if of and not of.by_group}
    if not wanted or wanted.by_group or wanted.kind in kinds:
        return ""
    if not kinds:
        return "; per_client=N (--per-client N) adds those of single clients"
    if wanted.kind.startswith(PERSONAL) and not any(kind.startswith(PERSONAL) for kind in kinds):
        return f"; those of {PERSONAL} models need an Algorithm with personal="
    if wanted.kind in (HELD_OUT, PERSONAL):
        return "; those of held-out records need a federation with held_out="
    return ""


class Stopping(NamedTuple):
    """When to stop; it depends on the evaluations alone, so that a run that goes on stops where it would have.

    Attributes:
      target: to be reached by the mean over the seeds; None: none.
      patience: evaluations without a better mean over the seeds than before, after which to stop; None: no end.
      metric: which patience looks at.
      higher: metrics that are better when higher, beside accuracies.
    """

    target: Target | None
    patience: int | None
    metric: str
    higher: Collection[str] = ()

    @classmethod
    def of(
        cls,
        stop_at: str | None,
        patience: int | None,
        metric: str | None,
        names: Sequence[str],
        higher: Collection[str],
    ) -> Stopping:
        """Of a run's settings, for a score with metrics of these names.

        Raises:
          ValueError: the score has no such metric.
        """
        wanted = target(stop_at) if stop_at is not None else None
        if wanted:
            check_metric("stop_at", wanted.metric, names)
        return cls(wanted, patience, main_metric(names, metric), tuple(higher))

    def beyond(self, of_score: Collection[str]) -> list[str]:
        """Of the metrics that it looks at, those that are none of the score's."""
        stop = [self.target.metric] if self.target else []
        looks = [*stop, *[self.metric][: self.patience is not None]]
        return [name for name in looks if name not in of_score]

    def why(self, evaluations: Sequence[Evaluation | PublicEvaluation]) -> str | None:
        """What ends the run at the last of the evaluations, in words; None: nothing, it goes on."""
        if not evaluations:
            return None
        at = f"stopped at round {evaluations[-1].round}"
        if wanted := self.target:
            sign = 1 if better_higher(wanted.metric, self.higher) else -1
            if sign * _means(evaluations[-1:], wanted.metric)[0] >= sign * wanted.value:
                which = f"or {'higher' if sign > 0 else 'lower'}{self._told(wanted.metric)}"
                return f"{at}: {wanted.metric} reached {wanted.value:g} {which}"
        if self.patience is not None:
            sign = 1 if better_higher(self.metric, self.higher) else -1
            good = sign * _means(evaluations, self.metric)
            since = len(good) - 1 - int(np.argmax(np.where(np.isnan(good), -np.inf, good)))
            if since >= self.patience:
                better = f"no {'higher' if sign > 0 else 'lower'} for {since} evaluation"
                said = f"{at}: {self.metric} {better}{'s' * (since != 1)}"
                return said + self._told(self.metric)
        return None

    def _told(self, metric: str) -> str:
        """Why the lower value of a metric is the better one, where its name does not say so."""
        of_clients = parsed(metric)
        plain = of_clients.metric if of_clients else metric
        if better_higher(metric, self.higher) or plain.endswith("loss"):
            return ""
        return " (lower is better, unless the score's higher lists it)"


def decided(why: str) -> str:
    """The metric that ended a run, of what `Stopping.why` said."""
    return re.split(r" (?:reached|no) ", why.partition(": ")[2])[0]


def _means(evaluations: Sequence[Evaluation | PublicEvaluation], metric: str) -> np.ndarray:
    """f64[evaluations], over the seeds; of equal ones, the first counts as the best."""
    return np.array([np.mean(e.metric(metric), dtype=float) for e in evaluations])
