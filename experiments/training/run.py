"""The command `run`: train, show, record; --resume FOLDER goes on.

CONFIG names a file in configs/ (default: quickstart); --list lists them; CONFIG --help explains every field. Exit code
2 means that something given was wrong, 1 that training failed, 130 that it was interrupted.

Several processes, on one host or many, train together: start each with the same arguments, --coordinator HOST:PORT
(where process 0 listens), --num-processes N and its own --process-id, or all at once by Slurm's srun.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from experiments import config as configuration
from experiments.accounting import budget
from experiments.base import compilation_cache, signals, user_modules
from experiments.base.command import Parser, checked, command, explained, one_line
from experiments.base.files import held
from experiments.base.json_values import plain
from experiments.base.provenance import environment
from experiments.config import Experiment, Run, modules
from experiments.config.options import config_name, listing, own_options, parse
from experiments.runs import unfinished
from experiments.runs.recorder import Recorder, folder_of, new_folder
from experiments.runs.sinks import Sink, check_installed, opened
from experiments.runs.unfinished import Earlier, how_ended
from experiments.training import processes
from experiments.training.processes import Processes
from experiments.training.shared_arrays import Interned
from experiments.training.train import Job, train
from fedpriv import distributed
from fedpriv.devices.layout import split_cpu
from fedpriv.models.kept_model import model_folder
from fedpriv.models.score import main_metric


@command
def main(argv: Sequence[str] | None = None, sinks: Sequence[Sink] = ()) -> int:
    """The command.

    Args:
      argv: the command line, by default the process's.
      sinks: get the lines of metrics.jsonl, too.

    Returns:
      The exit code.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    if "--list" in args:
        print(listing())
        return 0
    options, args = _options(args)
    joined = Processes() if {"-h", "--help"} & set(args) else processes.join(options)
    with joined:
        code = run(args, joined, options.resume, sinks)
        if joined.others_gone:
            processes.leave(code)
    return code


def _options(args: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The launcher's own options, and the config's."""
    parser = Parser(
        prog="python -m experiments.run CONFIG",
        description="A run that was stopped goes on from its last checkpoint (see --checkpoint below) to the end that "
        "it would have had, bit for bit; its settings are those of its folder.\n\nSeveral processes: give each the "
        "same arguments and its own --process-id. Slurm's srun needs none of these options.",
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
    )
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="of the run to go on with")
    parser.add_argument("--coordinator", metavar="HOST:PORT", help="where process 0 listens")
    parser.add_argument("--num-processes", type=int, metavar="N", help="processes in all")
    parser.add_argument("--process-id", type=int, metavar="I", help="which this is, from 0 to N-1")
    return own_options(parser, args)


def resume_or_start(folder: Path, args: Sequence[str]) -> int:
    """Trains what `args` ask for into `folder`, from the start or from where it was stopped; what has ended is left.

    Args:
      folder: of the run.
      args: of the command, without --output and --resume.

    Returns:
      The exit code: 1 also where an earlier call saw the run diverge.
    """
    begun = (folder / "config.json").exists()
    return main([*args, "--resume" if begun else "--output", str(folder)])


def run(
    args: list[str], joined: Processes, folder: Path | None = None, sinks: Sequence[Sink] = ()
) -> int:
    """What `args` ask for; returns the exit code.

    Args:
      folder: of a run to go on with.
      sinks: get the lines of metrics.jsonl, too.
    """
    try:
        with joined.agreed():
            found, config = unfinished.earlier(folder, args) if folder else (None, None)
        if found and (status := how_ended(found.folder)):
            if joined.first:
                print(f"{folder} has ended: {status}", file=sys.stderr)
            return 0 if status == "complete" else 1
        with ExitStack() as until_end:
            job = prepared(args, joined, found, config, sinks, until_end)
            kept = until_end.pop_all()
    except BrokenPipeError:  # whoever read the help has what he wanted
        raise
    except ConnectionError as error:
        joined.others_gone = True
        said, code = one_line(error), 1
    except Exception as error:
        if joined.count > 1 and not isinstance(error, ValueError | OSError):
            raise  # of this process alone, perhaps, for which the others would wait
        said, code = explained(error)
    except KeyboardInterrupt:
        said, code = "interrupted", 130
    else:
        with kept, checked(), signals.unheard():
            return train(job)
    if joined.first:
        print(said if code == 130 else f"error: {said}", file=sys.stderr)
    return code


def prepared(
    args: list[str],
    joined: Processes,
    found: Earlier | None,
    config: Run | None,
    sinks: Sequence[Sink],
    until_end: ExitStack,
) -> Job:
    """Everything that can go wrong because of what was given does so here, in all processes.

    Args:
      found, config: a run that goes on, and its settings; None: `args` name them.
      until_end: keeps others from the folder.

    Raises:
      ValueError: it did.
    """
    warning, finished = None, {}
    with joined.agreed():
        name = found.name if found else config_name(args)
        module = modules.load(name)
        config = config or parse(module, name, args)
        if joined.first:
            check_installed(config.record)
        split_cpu(config.layout.devices)
        compilation_cache.enable()
        strategy = configuration.strategy(config.layout)
        noise = _recorded_noise(found, config) if found else _solved(module, config, joined)
        experiment = built(module, config, noise, Interned())
        planned = budget.planned_rounds(experiment.ledger, config)
        here = environment(strategy) | {"code": user_modules.digests(module)}
        about = {"id": uuid.uuid4().hex, "environment": here, "resumed": []}
        about |= {"noise": noise, "higher": list(experiment.higher)}
        if found:
            finished = found.finished(planned, config.keep_model, experiment.stopping(config))
            about, warning = unfinished.resumed(found, here, finished)
    if joined.count > 1:
        same = replace(config, output=None, data_dir=None)
        going_on = [str(found is not None), *finished]
        distributed.check_equal(settings=plain(same), rounds=planned, noise=noise, resumed=going_on)
    recorder = None
    with joined.agreed():
        if joined.first:
            recorder = _recorder(name, config, found, about, sinks, until_end)
            user_modules.keep(module, recorder.folder / _code(found, here))
            if found:
                recorder.go_on(found.lines, finished)
            if warning:
                print(f"warning: {warning}", file=sys.stderr)
    where = recorder.folder if recorder else folder_of(config, name)
    return Job(name, config, where, strategy, experiment, planned, joined, recorder, finished)


def _code(found: Earlier | None, here: Mapping[str, Any]) -> str:
    """The folder for a copy of the user's code; that of what ran before is kept."""
    if found is None or found.about["environment"]["code"] == here["code"]:
        return user_modules.KEPT
    return f"{user_modules.KEPT}/resumed-{len(found.about['resumed']) + 1}"


def _recorder(
    name: str,
    config: Run,
    found: Earlier | None,
    about: dict[str, Any],
    sinks: Sequence[Sink],
    until_end: ExitStack,
) -> Recorder:
    """Of a new folder, or of the one that goes on."""
    folder = found.folder if found else new_folder(config, name)
    until_end.enter_context(held(folder))
    own = found.config if found else config  # what it was begun with
    identity = {"config": name, "settings": plain(own), **about}
    further = opened(config.record, folder, identity, until_end)
    return Recorder(folder, name, own, about, [*further, *sinks])


def _solved(module: ModuleType, config: Run, joined: Processes) -> dict[str, float]:
    if config.target_epsilon and joined.first:
        print(f"solving the noise for epsilon {config.target_epsilon:g}", file=sys.stderr)
    return budget.solved(module, config)


def _recorded_noise(found: Earlier, config: Run) -> dict[str, float]:
    """What was solved when the run was begun.

    Raises:
      ValueError: it is not there.
    """
    noise = found.about.get("noise")
    if config.target_epsilon is not None and noise is None:
        raise ValueError(
            f"{found.folder}: config.json does not say the noise for target_epsilon {config.target_epsilon:g}; restore "
            "it, or begin again"
        )
    return noise or {}


def built(
    module: ModuleType, config: Run, noise: Mapping[str, float], interned: Interned
) -> Experiment:
    """The config's experiment, checked, each algorithm with the noise that was solved for it."""
    experiment = budget.made(lambda own: interned.experiment(module.build(own)), config, noise)
    check(experiment, config)
    budget.check_reached(experiment.ledger, config, noise)
    return experiment


def check(experiment: Experiment, config: Run) -> None:
    """Finds what the last algorithm is refused for before the first one trains; traces rounds, compiles nothing.

    Raises:
      ValueError: it is refused, or the score gives no numbers, or not a metric that is wanted.
    """
    for name in experiment.entries:
        model_folder("", name, 0)
        experiment.ledger.looked(name)
    main_metric(experiment.metrics, config.metric)
    experiment.stopping(config)
