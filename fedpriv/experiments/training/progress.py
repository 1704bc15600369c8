"""What a command shows while an algorithm trains: what its epsilons mean, then metric and epsilon so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fedpriv.core.terminal_text import span
from fedpriv.engine.history import Evaluation
from fedpriv.engine.metric_words import short_metric
from fedpriv.engine.progress import Progress
from fedpriv.experiments.base.formats import named, short_name_of
from fedpriv.experiments.base.time_left import OFTEN
from fedpriv.experiments.config.public import Public
from fedpriv.models.score import main_metric
from fedpriv.privacy import Certificate, Claim
from fedpriv.privacy.certificate import NOT_COVERED
from fedpriv.privacy.epsilon_words import meaning_of_epsilon, only_not_covered, short_epsilon

NOTHING = Public(())


class RecordedProgress(Progress):
    """Shows the progress of one algorithm of a run, on standard error.

    Args:
      rounds: that it is to train for.
      certified: of so many rounds; unit, view, adjacency and delta stand in the heading alone.
      claim: the paper's of as many.
      solved: the noise that was found for it.
      metric: to show, see `main_metric`.
      others: algorithms that are trained after it.
      public: of what is measured; the names of other metrics say so.
      epsilon_of: what its epsilons are of, where that is not what is released.
    """

    def __init__(
        self,
        algorithm: str,
        rounds: int,
        certified: Certificate,
        claim: Claim | None,
        solved: Mapping[str, Any],
        metric: str | None = None,
        others: int = 0,
        name: str = "",
        public: Public = NOTHING,
        epsilon_of: str = "",
    ):
        self._of = f" {epsilon_of}" if epsilon_of else ""
        self._metric, self._public = metric, public
        self._others, self._forecast = others, False
        finite = any(x and not math.isinf(x.epsilon) for x in (certified, claim))
        self._private = finite or only_not_covered(certified)
        head = ", ".join(
            [f"{rounds} rounds", *(f"{field} {_said(value)}" for field, value in solved.items())]
        )
        means = (
            f"eps{self._of}: {meaning_of_epsilon(certified)}" if self._private else "not private"
        )
        if why := [text for text in certified.assumptions if text.startswith(NOT_COVERED)]:
            means += f"; {'; '.join(why)}"
        super().__init__(short_name_of(algorithm, {algorithm: name}), rounds, f"{head}; {means}")

    def update(
        self,
        e: Evaluation,
        so_far: Certificate,
        groups: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Shows an evaluation, with the epsilons so far: the largest, and those of public groups."""
        eps = f"eps {short_epsilon(so_far.epsilon)}{self._of}" if self._private else "not private"
        if groups and self._private:
            said = (f"{name} {short_epsilon(epsilon)}" for name, epsilon in groups.items())
            eps += f" ({', '.join(said)})"
        names = [*e.metrics, *e.measures, *e.diagnostics]
        metric = main_metric(names, self._metric)
        score = short_metric(metric, e.metric(metric))
        score += " (not private)" * (metric not in self._public)
        each = self.evaluated(e.round, e.seconds, f"{score} {eps}")
        whole = each * (self._rounds - e.round + self._rounds * self._others)
        if whole > OFTEN and self._others and not self._forecast:
            self.note(
                f"the run: {span(whole)} left on this machine if the {self._others} other algorithm(s) take as long"
            )
        self._forecast = True


def _said(found: Any) -> str:
    return f"({named(found)})" if isinstance(found, dict) else f"{found:.4g}"
