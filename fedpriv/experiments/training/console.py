"""What the command `run` says of a training, and its exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from fedpriv.core.terminal_text import terminal_width
from fedpriv.engine.checkpoint import OtherRunError
from fedpriv.engine.history import DivergedError
from fedpriv.experiments.base import signals
from fedpriv.experiments.base.command import explained, one_line
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.runs.sinks import Sink
from fedpriv.experiments.tables.terminal import table
from fedpriv.experiments.training.prepare import Request
from fedpriv.experiments.training.processes import Processes
from fedpriv.experiments.training.train import prepare_and_train
from fedpriv.experiments.training.trained_run import TrainedRun


def train_and_print(
    request: Callable[[], Request], joined: Processes, sinks: Sequence[Sink] = ()
) -> int:
    """`prepare_and_train`, its table, and what went wrong in one line; returns the exit code."""
    try:
        run = prepare_and_train(request, joined, sinks)
    except BrokenPipeError:  # whoever read the help has what he wanted
        raise
    except ConnectionError as error:
        joined.others_gone = True
        said, code = f"error: {one_line(error)}", 1
    except Exception as error:
        if joined.count > 1 and not isinstance(error, ValueError | OSError):
            raise  # of this process alone, perhaps, for which the others would wait
        explanation, code = explained(error)
        said = f"error: {explanation}"
    except KeyboardInterrupt:
        said, code = "interrupted", signals.INTERRUPTED
    else:
        return _print(run, joined)
    if joined.first:
        say(said, file=sys.stderr)
    return code


def _print(run: TrainedRun, joined: Processes) -> int:
    """How a run has ended; returns the exit code."""
    code = 0 if run.status == "complete" and not run.problems else 1
    if run.status == "interrupted":
        code = signals.INTERRUPTED
    if isinstance(run.error, OtherRunError):
        code = 2
    if not joined.first:
        return code
    if run.ended_before:
        say(f"{run.folder} has ended: {run.status}", file=sys.stderr)
        if run.summary and run.summary.rounds:
            say(table(run.summary, terminal_width(sys.stdout)))
        return code
    with signals.unheard():
        if run.summary and run.summary.rounds:
            say(table(run.summary, terminal_width(sys.stdout)))
        for line in run.unseen:
            say(line, file=sys.stderr)
        problems = [run.status, *run.problems] if code else []
        if problems:
            said = "; ".join(problems)
            say(said if said == "interrupted" else f"error: {said}", file=sys.stderr)
            if not isinstance(run.error, DivergedError | OtherRunError):
                say(run.goes_on, file=sys.stderr)
        say(f"run folder: {run.folder}")
    return code
