"""What `simulate` shows by itself, and the certificate of the rounds that it trains."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

import jax

from fedpriv.certification.certificate import of_all_seeds
from fedpriv.certification.traced_round import TracedRound
from fedpriv.core.complaints import require
from fedpriv.core.waiting import waiting_for
from fedpriv.devices.fitting import Compiler
from fedpriv.engine.history import Evaluation
from fedpriv.engine.metric_words import short_metric
from fedpriv.engine.progress import Progress, is_watched
from fedpriv.models.score import main_metric
from fedpriv.privacy import Certificate
from fedpriv.privacy.epsilon_words import OF_ONE_MODEL, meaning_of_epsilon, short_epsilon
from fedpriv.proof.seen import View
from fedpriv.rounds.algorithm import made_by

SHARE = 0.2
"""Of the time since training began: what it may cost to certify the rounds done, only to show their epsilon.

It is expected to take as long as the time before; that of all rounds, before training, is not counted.
"""


class Certified:
    """Certificates of the rounds that `simulate` trains, each computed once.

    Args:
      traced: the round that is trained.
      rounds: that it is to be trained for.
      delta: probability; None: nothing is certified.
      not_covered: private numbers that may choose the last round.
      federations: of each seed, or of all; the round was traced for the first. A certificate is of the persons of every
        seed, who may hold more in one partition than in another.

    Attributes:
      seconds: that the certificate of all rounds took.

    Raises:
      ValueError: a view without a delta; federations of other persons, of whom the certificate would not be; as
        `TracedRound.certify`.
    """

    def __init__(
        self,
        traced: TracedRound,
        rounds: int,
        delta: float | None,
        view: View,
        not_covered: Sequence[str],
        federations: Any,
    ):
        known = delta is not None or view == "third_party"
        require(known, "view", view, "it is that of a certificate; give its delta, too")
        each = federations if isinstance(federations, list) else [federations]
        first, *others = each
        alike = all(_whose(other) == _whose(first) for other in others)
        remedy = "each seed has other persons; leave it out, and certify each federation"
        require(alike or delta is None, "delta", delta, remedy)
        self.rounds = rounds
        self._is_asked = delta is not None
        of_every = of_all_seeds(traced, each) if self._is_asked else traced

        @cache
        def of(rounds: int, delta: float) -> Certificate:
            return of_every.certify(rounds, delta, view=view).not_covered(not_covered)

        self._of, self._delta = of, delta or 0.0
        began = time.perf_counter()
        with waiting_for("certifying the rounds") if self._is_asked else nullcontext():
            self.of(rounds)  # what cannot be certified is refused before training
        self.seconds = time.perf_counter() - began

    def of(self, rounds: int) -> Certificate | None:
        """That of so many rounds; None where none is asked for."""
        return self._of(rounds, self._delta) if self._is_asked else None


def _whose(federation: Any) -> tuple[Any, ...]:
    """What of a federation decides on a certificate beside the shapes, which are alike, and what persons hold."""
    return federation.persons, federation.normalised, federation.held_out_rows is None


class OwnProgress:
    """Shows a run of `simulate`: round, main metric of the test examples, epsilon so far where it is certified.

    Args:
      wanted: whether to show it; None: where somebody watches.
      certified: of the rounds that are trained.
      done: rounds that an earlier call did.
      seeds: number of models, of one of which the epsilon is.
    """

    def __init__(
        self,
        wanted: bool | None,
        traced: TracedRound,
        certified: Certified,
        done: int,
        seeds: int,
    ):
        self._certified, self._bar = certified, None
        shown = is_watched() if wanted is None else wanted
        if not shown or jax.process_index() > 0:
            return
        rounds = certified.rounds
        whole, heading = certified.of(rounds), None
        self._private = whole is not None and math.isfinite(whole.epsilon)
        if whole is not None:
            of = f" ({OF_ONE_MODEL})" if seeds > 1 else ""
            means = f"eps{of}: {meaning_of_epsilon(whole)}" if self._private else "not private"
            heading = f"{rounds} rounds; {means}"
        self._bar = Progress(made_by(traced.algorithm), rounds, heading)
        self._bar.done = done
        self._epsilon, self._at, self._spent, self._began = "", 0, 0.0, time.perf_counter()
        self._next = certified.seconds  # expected of the next certificate: as the one before

    def timed(self, compiler: Compiler) -> Compiler:
        """The compiler, which says when it is done."""
        return self._bar.timed(compiler) if self._bar else compiler

    def evaluated(self, e: Evaluation) -> None:
        """Shows an evaluation."""
        if self._bar:
            metric = main_metric([*e.metrics])
            said = short_metric(metric, e.metrics[metric])
            self._bar.evaluated(e.round, e.seconds, f"{said}{self._so_far(e.round)}")

    def _so_far(self, round: int) -> str:
        """The epsilon of the rounds done, or the last one that there was time for; "" before the first."""
        if not self._private:
            return ""
        began = time.perf_counter()
        fits = self._spent + self._next <= SHARE * (began - self._began)
        if fits or round == self._certified.rounds:
            certificate = self._certified.of(round)
            assert certificate is not None
            self._epsilon, self._at = f" eps {short_epsilon(certificate.epsilon)}", round
            self._next = time.perf_counter() - began
            self._spent += self._next
        return self._epsilon + f" (round {self._at})" * (0 < self._at != round)

    def close(self) -> None:
        """Ends what is shown."""
        if self._bar:
            self._bar.close()
