"""python -m experiments.run [CONFIG] [--field value ...]: train, show, record; --resume FOLDER goes on.

CONFIG names a file in configs/ (default: quickstart); --list lists them; CONFIG --help explains every field. Exit code
2 means that something given was wrong, 1 that training failed, 130 that it was interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from experiments.base import signals
from experiments.base.command import Parser, command, explained, one_line
from experiments.base.formats import width
from experiments.config import modules
from experiments.config.options import config_name, listing, own_options, parse
from experiments.runs.sinks import Sink
from experiments.runs.unfinished import earlier, going_on
from experiments.tables.terminal import table
from experiments.training import processes
from experiments.training.job import TrainedRun
from experiments.training.prepare import Order
from experiments.training.processes import Processes
from experiments.training.train import run
from fedpriv.engine import compilation_cache
from fedpriv.engine.checkpoint import OtherRunError

DESCRIPTION = """\
A run that was stopped goes on from its last checkpoint (see --checkpoint below) to the end that it would have had, bit
for bit; its settings are those of its folder.

Several processes, on one host or many, train together: start each with the same arguments and its own --process-id, or
all at once by Slurm's srun, which needs none of these options."""


@command
def main(argv: Sequence[str] | None = None, sinks: Sequence[Sink] = ()) -> int:
    """The command; sinks get the lines of metrics.jsonl, too."""
    args = list(sys.argv[1:] if argv is None else argv)
    if "--list" in args:
        print(listing())
        return 0
    options, args = _options(args)
    named = (options.coordinator, options.num_processes, options.process_id)
    joined = Processes() if {"-h", "--help"} & set(args) else processes.join(*named)
    with joined:
        code = _trained(args, options.resume, joined, sinks)
        if joined.others_gone:
            processes.leave(code)
    return code


def _options(args: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The launcher's own options, and the config's."""
    parser = Parser(
        prog="python -m experiments.run CONFIG",
        description=DESCRIPTION,
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
    )
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="of the run to go on with")
    parser.add_argument("--coordinator", metavar="HOST:PORT", help="where process 0 listens")
    parser.add_argument("--num-processes", type=int, metavar="N", help="processes in all")
    parser.add_argument("--process-id", type=int, metavar="I", help="which this is, from 0 to N-1")
    return own_options(parser, args)


def _order(args: list[str], folder: Path | None) -> Order:
    """What the arguments ask for; with a folder, of a run, only what differs need be said."""
    if folder is None:
        name, module = modules.named(config_name(args))
        order = Order(name, module, parse(module, name, args))
    else:
        order = _resumed(args, folder)
    compilation_cache.cache_programs()
    return order


def _resumed(args: list[str], folder: Path) -> Order:
    found, module = earlier(folder)
    name, settings = config_name(args, found.name), found.config
    if name == found.name:
        settings = parse(SimpleNamespace(__doc__=module.__doc__, config=settings), name, args)
    return Order(name, module, going_on(found, name, settings), found)


def _trained(args: list[str], folder: Path | None, joined: Processes, sinks: Sequence[Sink]) -> int:
    """Trains and shows; returns the exit code."""
    try:
        ended = run(lambda: _order(args, folder), joined, sinks)
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
        return _shown(ended, joined)
    if joined.first:
        print(said, file=sys.stderr)
    return code


def _shown(ended: TrainedRun, joined: Processes) -> int:
    """Says how a run has ended; returns the exit code."""
    code = 0 if ended.status == "complete" and not ended.problems else 1
    if ended.status == "interrupted":
        code = signals.INTERRUPTED
    if isinstance(ended.error, OtherRunError):
        code = 2
    if not joined.first:
        return code
    if ended.ended_before:
        print(f"{ended.folder} has ended: {ended.status}", file=sys.stderr)
        return code
    with signals.unheard():
        if ended.summary and ended.summary.rounds:
            print(table(ended.summary, width(sys.stdout)))
        for line in ended.unseen:
            print(line, file=sys.stderr)
        problems = [ended.status, *ended.problems] if code else []
        if problems:
            said = "; ".join(problems)
            print(said if said == "interrupted" else f"error: {said}", file=sys.stderr)
            if not ended.status.startswith("diverged"):
                print(ended.goes_on, file=sys.stderr)
        print(f"run folder: {ended.folder}")
    return code


if __name__ == "__main__":
    sys.exit(main())
