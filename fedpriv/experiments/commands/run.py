"""fedpriv run [CONFIG] [--field value ...]: train, show, record; --resume FOLDER goes on.

CONFIG names a file in configs/ (default: quickstart); --list lists them; CONFIG --help explains every field. Exit code
2 means that something given was wrong, 1 that training failed, 130 that it was interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import tyro

from fedpriv.engine import compilation_cache
from fedpriv.experiments.base.command import command
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.options import HELP, config_name, listing, parse, split_options
from fedpriv.experiments.runs.sinks import Sink
from fedpriv.experiments.runs.unfinished import earlier, going_on
from fedpriv.experiments.training import processes
from fedpriv.experiments.training.console import train_and_print
from fedpriv.experiments.training.prepare import Request
from fedpriv.experiments.training.processes import Processes


@dataclass(frozen=True)
class Options:
    """Options of the command `run`, beside the config's."""

    resume: Path | None = None
    """Folder of the run to continue."""
    secret_seed: bool = False
    """Draw the seed of all random numbers from the system's entropy; 0, 1, .. then name the repetitions, and draw
    their partitions, alone. It is kept in the run folder, in the file secret_seed, which nobody but its owner can
    read; --resume goes on with it."""
    coordinator: Annotated[str | None, tyro.conf.arg(metavar="HOST:PORT")] = None
    """Where process 0 listens."""
    num_processes: int | None = None
    """Processes in all."""
    process_id: int | None = None
    """Number of this process, from 0 to the number of processes - 1."""


DESCRIPTION = """\
--resume FOLDER continues a stopped run from its last checkpoint (see --checkpoint below) to the end that it would
have had, bit for bit. The settings come from the folder.

Several processes, on one host or many, can train together. Start each with the same arguments and its own
--process-id, or all at once with Slurm's srun, which needs none of these options."""


@command
def main(argv: Sequence[str] | None = None, sinks: Sequence[Sink] = ()) -> int:
    """The command `run`; sinks get the lines of metrics.jsonl, too."""
    args = list(sys.argv[1:] if argv is None else argv)
    if "--list" in args:
        say(listing())
        return 0
    options, args = split_options(Options, args)
    named = (options.coordinator, options.num_processes, options.process_id)
    joined = Processes() if set(HELP) & set(args) else processes.join(*named)
    with joined:
        code = train_and_print(lambda: _request(args, options), joined, sinks)
        if joined.others_gone:
            processes.leave(code)
    return code


def _request(args: list[str], options: Options) -> Request:
    """What the arguments ask for; of a run that goes on, only what differs need be said."""
    before, secret = None, options.secret_seed
    if options.resume is None:
        name, module = modules.named(config_name(args))
        config = module
    else:
        given = config_name(args, "")
        own = modules.load(given) if given.endswith(".py") else None  # which may lie elsewhere now
        before, module = earlier(options.resume, own)
        moved = own and Path(given).name == Path(before.name).name
        name = before.name if moved else given or before.name
        config = SimpleNamespace(__doc__=module.__doc__, settings=before.settings)
    settings = parse(config, name, args, "run", Options, DESCRIPTION)
    if before:
        settings = going_on(before, name, settings, secret)
    compilation_cache.cache_programs()
    return Request(name, module, settings, before, secret)
