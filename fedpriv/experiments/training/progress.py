"""What is shown while an algorithm trains: a heading, then a bar, or a line per evaluation where there is no bar."""

from __future__ import annotations

import importlib.util
import logging
import math
import sys
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from fedpriv.core.terminal_text import PROSE, span, terminal_width, wrapped
from fedpriv.core.waiting import LOG
from fedpriv.devices.fitting import Compiler
from fedpriv.engine.history import Evaluation
from fedpriv.engine.metric_words import short_metric
from fedpriv.experiments.base.formats import named, short_name_of
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.base.time_left import OFTEN, SHORT
from fedpriv.experiments.config.public import Public
from fedpriv.models.score import main_metric
from fedpriv.privacy import Certificate, Claim
from fedpriv.privacy.certificate import NOT_COVERED
from fedpriv.privacy.epsilon_words import meaning_of_epsilon, only_not_covered, short_epsilon

NOTHING = Public(())


class Progress:
    """Shows an algorithm's progress, on standard error.

    Args:
      rounds: that it is to train for.
      certified: of so many rounds; unit, view, adjacency and delta stand in the heading alone.
      claim: the paper's of as many.
      solved: the noise that was found for it.
      metric: to show, see `main_metric`.
      others: algorithms that are trained after it.
      public: of what is measured; the names of other metrics say so.
      epsilon_of: what its epsilons are of, where that is not what is released.

    Attributes:
      done: rounds at the evaluation before.
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
        self._name = short_name_of(algorithm, {algorithm: name})
        self._rounds, self._metric = rounds, metric
        self._others, self.done, self._forecast = others, 0, False
        finite = any(x and not math.isinf(x.epsilon) for x in (certified, claim))
        self._private = finite or only_not_covered(certified)
        head = ", ".join(
            [f"{rounds} rounds", *(f"{field} {_said(value)}" for field, value in solved.items())]
        )
        self._public = public
        means = (
            f"eps{self._of}: {meaning_of_epsilon(certified)}" if self._private else "not private"
        )
        if why := [text for text in certified.assumptions if text.startswith(NOT_COVERED)]:
            means += f"; {'; '.join(why)}"
        _say(f"{self._name}: {head}; {means}")
        self._bar = _bar(self._name, rounds)
        self._waits = _Waits(self._show)
        if self._bar is not None:
            LOG.addHandler(self._waits)
            LOG.setLevel(logging.INFO)
        self._began = time.perf_counter()
        self._show("compiling", 0)

    def timed(self, compiler: Compiler) -> Compiler:
        """The compiler, which says when it is done."""

        def compile(fn: Callable[..., Any], args: tuple, donated: Any) -> Any:
            done = compiler(fn, args, donated)
            self._show(f"compiled in {time.perf_counter() - self._began:.1f} s", 0)
            return done

        return compile

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
        each = e.seconds / (e.round - self.done)
        seconds, self.done = each * (self._rounds - e.round), e.round
        whole = seconds + each * self._rounds * self._others
        # A bar says what is left by itself.
        left = f", {span(seconds)} left" if seconds > SHORT and self._bar is None else ""
        names = [*e.metrics, *e.measures, *e.diagnostics]
        metric = main_metric(names, self._metric)
        score = short_metric(metric, e.metric(metric))
        score += " (not private)" * (metric not in self._public)
        self._show(f"{score} {eps}{left}", e.round)
        if whole > OFTEN and self._others and not self._forecast:
            self._note(
                f"the run: {span(whole)} left on this machine if the {self._others} other algorithm(s) take as long"
            )
        self._forecast = True

    def _note(self, text: str) -> None:
        if self._bar is None:
            _say(text)
        else:
            self._bar.write(text, file=sys.stderr)

    def _show(self, text: str, done: int) -> None:
        if self._bar is None:
            at = f" {done}/{self._rounds}" if done else ""
            _say(f"{self._name}{at} {text}")
            return
        self._bar.update(max(done - self._bar.n, 0))
        self._bar.set_postfix_str(text)

    def close(self) -> None:
        if self._bar is not None:
            LOG.removeHandler(self._waits)
            LOG.setLevel(logging.NOTSET)
            self._bar.close()


class _Waits(logging.Handler):
    """Shows, in the place of the bar's metric, what the engine says that it waits for."""

    def __init__(self, show: Callable[[str, int], None]):
        super().__init__(logging.INFO)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show(record.getMessage(), 0)


def _said(found: Any) -> str:
    return f"({named(found)})" if isinstance(found, dict) else f"{found:.4g}"


def _bar(name: str, rounds: int) -> Any:
    """A notebook's, where its widgets are installed, or a terminal's; None elsewhere."""
    if "ipykernel" in sys.modules and importlib.util.find_spec("ipywidgets"):
        from tqdm.notebook import tqdm as notebook_bar

        return notebook_bar(total=rounds, desc=name)
    if not sys.stderr.isatty():
        return None
    from tqdm import tqdm

    shape = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
    columns = min(terminal_width(sys.stderr), PROSE)
    return tqdm(total=rounds, desc=f"{name:<15.20}", ncols=columns, bar_format=shape)


def _say(text: str) -> None:
    say(wrapped(text, terminal_width(sys.stderr)), file=sys.stderr, flush=True)
