"""The command `sweep`: a grid of runs.

Every point of the grid (the product of all --grid) is a run folder under DIR, as experiments.run leaves it. Points
whose programs are the same up to numbers are compiled once; what has the same program, numbers and data is trained
once.

--best-of MEAN tries random points in place of all: a number of trials that is geometric with this mean, each at a point
of its own and with a secret key of its own, one seed. Of the one that is best on the test set, which must be public, at
the last round, the model and its certificate are left in DIR/release; the certificate covers the choice (Papernot and
Steinke 2022). All else stays secret: DIR/secret with the trials and their keys, how many there were, the time it took
and what is printed while it trains. Beginning again because of what was seen is another release.

The same command with the same DIR goes on where it was stopped. At the end: a table with a line per point and
algorithm, in DIR/table.md, table.csv and table.tex, too. No epsilon in it covers choosing a point by that table.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import jax

from experiments import config as configuration
from experiments.accounting import budget
from experiments.base import compilation_cache, signals, user_modules
from experiments.base.command import checked, command, one_line
from experiments.base.files import write_text
from experiments.base.json_values import plain
from experiments.base.outside_errors import outside
from experiments.config import Experiment, modules
from experiments.config.options import config_name, listing, own_options, parse
from experiments.search import best_of, sweep_table
from experiments.search.sweep_grid import Point, axes, begin, begun, described, ended, points
from experiments.search.training_together import Prepared, Sweep
from experiments.tables import comparison
from experiments.training.run import built
from experiments.training.shared_arrays import Interned
from fedpriv.data.streaming import StreamedFederation
from fedpriv.devices.distributed import slurm_step
from fedpriv.devices.layout import split_cpu

EPILOG = """\
field: as in --help of the config, nested ones by dots (local.learning_rate=0.05,0.1); a value of several words in
quotes ("submodels=1 1,18 18").

Exit code 2 means that something given was wrong, 1 that training failed, 130 that it was interrupted.
"""


class Planned(NamedTuple):
    """A sweep before it trains.

    Attributes:
      every: its points.
      wanted: what sweep.json says.
      ready: the points that are not done yet.
      choice: among these points, with --best-of.
    """

    every: list[Point]
    wanted: dict[str, Any]
    ready: list[Prepared]
    choice: best_of.Choice | None = None


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    folder: Path | None = None
    try:
        if "--list" in args:
            print(listing())
            return 0
        name = config_name(args)
        module = modules.load(name)
        options, rest = _options(args)
        if {"-h", "--help"} & set(rest):
            parse(module, name, ["--help"], "sweep")
        folder = (
            options.output
            or Path("runs") / f"sweep-{Path(name).stem}-{time.strftime('%Y%m%d-%H%M%S')}"
        )
        inside = folder if options.best_of is None else best_of.inside(folder)
        planned = _planned(name, module, rest, axes(options.grid), inside, options.best_of)
    except KeyboardInterrupt:
        return _interrupted(folder)
    print(f"sweep folder: {folder}", file=sys.stderr)
    sweep = Sweep(name, inside)
    try:
        with signals.unheard():
            with checked():
                _train(sweep, planned.ready, folder)
            (_report if planned.choice is None else _release)(folder, planned, sweep, options.json)
    except KeyboardInterrupt:
        return _interrupted(folder)
    except (OSError, MemoryError, RuntimeError) as error:
        if not (said := outside(error)):
            raise
        print(f"error: {said}; {_goes_on(folder)}", file=sys.stderr)
        return 1
    return 0


def _interrupted(folder: Path | None) -> int:
    hint = f"; {_goes_on(folder)}" if folder else ""
    print(f"interrupted{hint}", file=sys.stderr)
    return 130


def _goes_on(folder: Path) -> str:
    return f"the same command with --output {folder} goes on"


def _options(args: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """This command's own options, and the config's."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.sweep [CONFIG]",
        description=(__doc__ or "").partition("\n\n")[2],
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--grid", nargs="+", action="extend", default=[], metavar="FIELD=A,B,C", help="what to vary"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="folder of the sweep (default: runs/sweep-CONFIG-DATE-TIME)",
    )
    parser.add_argument(
        "--best-of",
        type=float,
        metavar="MEAN",
        help="release the best of a secret number of trials alone, which is geometric with this mean",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return own_options(parser, args)


def _planned(
    name: str,
    module: ModuleType,
    rest: list[str],
    grid: dict[str, list[str]],
    folder: Path,
    mean: float | None = None,
) -> Planned:
    """Everything that can go wrong because of what was given does so here, before anything trains."""
    if slurm_step():
        raise ValueError("sweep: runs in one process; start it without srun")
    if jax.config.jax_disable_jit:  # type: ignore[attr-defined]
        raise ValueError("JAX_DISABLE_JIT: a sweep compiles its points together; unset it")
    if mean is not None:
        best_of.require_options(mean, grid)
        compilation_cache.disable()  # it would show later which points were tried
        rest = ["--seeds", "1", *rest]
    every = whole = points(module, name, rest, grid)
    default = module.config
    if any((p.config.checkpoint, p.config.record) != (default.checkpoint, ()) for p in every):
        raise ValueError(
            "checkpoint, record: a sweep goes on with the point it was stopped at, from its start, and records in "
            "its folders; leave these out"
        )
    if mean is not None:
        best_of.require_settings(every)
        every = best_of.trials(folder, every, grid, mean)
    again = begun(folder, described(name, module, grid, every, mean), module)
    left = [p for p in every if not (again and ended(folder / p.name))]
    if again:
        print(f"{len(every) - len(left)} of {len(every)} points are done", file=sys.stderr)
    ready, choice = _prepared(module, left if mean is None else whole), None
    if mean is not None:
        choice = best_of.choice(ready, mean)
        at = {prepared.point.title: prepared for prepared in ready}
        ready = [at[point.title]._replace(point=point) for point in left]
    wanted = described(name, module, grid, every, mean)
    if ready:  # else all is done, and `build` has imported nothing
        begin(folder, wanted, mode=0o777 if mean is None else 0o700)
        user_modules.keep(module, folder / user_modules.KEPT)
    return Planned(every, wanted, ready, choice)


def _prepared(module: ModuleType, left: Sequence[Point]) -> list[Prepared]:
    devices = [p.config.layout.devices for p in left]
    split_cpu(None if None in devices else max(devices, default=None))
    compilation_cache.enable()
    interned, known = Interned(), list[budget.Solved]()
    ready = []
    for point in left:
        try:
            strategy = configuration.strategy(point.config.layout)
            noise = budget.solved(module, point.config, known)
            experiment = built(module, point.config, noise, interned)
            _require_in_memory(experiment)
            planned = budget.planned_rounds(experiment.ledger, point.config)
        except (ValueError, OSError) as error:
            at = ValueError(f"{one_line(error)} (at {point.title})")
            raise at.with_traceback(error.__traceback__) from None
        ready.append(Prepared(point, strategy, experiment, planned, noise))
    return ready


def _require_in_memory(experiment: Experiment) -> None:
    for name, entry in experiment.entries.items():
        if any(isinstance(federation, StreamedFederation) for federation in entry.federations):
            raise ValueError(
                f"federation: {name} trains on a StreamedFederation, which a sweep cannot compile for; give a "
                "Federation in memory, or run the points one by one with experiments.run"
            )


def _train(sweep: Sweep, ready: list[Prepared], folder: Path) -> None:
    """A point's experiment is let go of once it is trained."""
    total = len(ready)
    try:
        for prepared in ready:
            sweep.announce(prepared)
        while ready:
            prepared = ready.pop(0)
            print(f"[{total - len(ready)}/{total}] {prepared.point.title}", file=sys.stderr)
            status = sweep.train(prepared)
            if status == "interrupted":
                raise KeyboardInterrupt
            if status != "complete":
                print(status, file=sys.stderr)
    except Exception as error:
        if not outside(error):
            print(f"error: failed at {prepared.point.title}; {_goes_on(folder)}", file=sys.stderr)
        raise


def _report(folder: Path, planned: Planned, sweep: Sweep, as_json: bool) -> None:
    """The table, on the disk and on the screen."""
    found = sweep_table.summaries(folder, planned.every)
    rows = sweep_table.records(found)
    comparison.write_csv(folder / "table.csv", rows)
    if any(summary.rounds for _, summary in found):
        write_text(folder / "table.tex", sweep_table.paper(found))
    cost = (
        f"compiled programs: {sweep.compilations} for {sweep.trained} trainings ({sweep.seconds:.1f} s with tracing)"
        f"; trainings whose result is another point's: {sweep.reused} (both since the command was last started)"
    )
    table = f"{sweep_table.markdown(found)}\n- {cost}\n"
    (folder / "table.md").write_text(table)
    if not as_json:
        print(f"{table}\nsweep folder: {folder}")
        return
    counts = {"trained": sweep.trained, "reused": sweep.reused, "compiled": sweep.compilations}
    answer = {key: planned.wanted[key] for key in ("config", "grid")} | {"output": str(folder)}
    answer |= {"rows": rows, **counts, "compile_seconds": sweep.seconds}
    print(json.dumps(plain(answer), indent=2))


def _release(folder: Path, planned: Planned, sweep: Sweep, as_json: bool) -> None:
    """The best trial's model and certificate, and nothing of the others."""
    assert planned.choice is not None
    found = sweep_table.summaries(best_of.inside(folder), planned.every)
    about = best_of.released(folder, planned.wanted["config"], planned.choice, found)
    said = json.dumps(about, indent=2) if as_json else best_of.shown(about, planned.choice)
    print(said)
