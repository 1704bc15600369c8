"""python -m experiments.sweep [CONFIG] --grid F=a,b ... [--field value ...] [--output DIR] [--json]: a grid of runs.

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.base import signals
from experiments.base.command import checked, command
from experiments.base.json_values import flat, plain
from experiments.base.outside_errors import outside
from experiments.config import Run, modules
from experiments.config.modules import Config
from experiments.config.options import config_name, listing, own_options, parse, words
from experiments.search import best_of, sweep
from experiments.search.sweep import Asked, Planned
from experiments.search.training_together import Sweep
from fedpriv.engine import compilation_cache

EPILOG = """\
field: as in --help of the config, nested ones by dots (local.learning_rate=0.05,0.1); a value of several words in
quotes ("submodels=1 1,18 18").

Exit code 2 means that something given was wrong, 1 that training failed, 130 that it was interrupted.
"""


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    folder: Path | None = None
    try:
        if "--list" in args:
            print(listing())
            return 0
        name, module = modules.named(config_name(args))
        options, rest = _options(args)
        if {"-h", "--help"} & set(rest):
            parse(module, name, ["--help"], "sweep")
        folder = options.output or sweep.new_name(name)
        if options.best_of is None:
            compilation_cache.cache_programs()
        planned = sweep.planned(_asked(name, module, rest, options), folder)
        print(f"sweep folder: {folder}", file=sys.stderr)
        with signals.unheard():
            return _train_and_show(planned, folder, options.json)
    except KeyboardInterrupt:
        hint = f"; {_goes_on(folder)}" if folder else ""
        print(f"interrupted{hint}", file=sys.stderr)
        return signals.INTERRUPTED


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


def _asked(name: str, config: Config, rest: list[str], options: argparse.Namespace) -> Asked:
    """The sweep that the options describe.

    Raises:
      ValueError: a text that is no field with values, or a field that is given twice.
    """
    grid = _grid(options.grid)
    given = {
        word.partition("=")[0].lstrip("-").replace("-", "_") for word in rest if word[:2] == "--"
    }
    if twice := [field for field in grid if field in given]:
        raise ValueError(f"--{twice[0].replace('_', '-')}: swept by --grid, too; give one of them")
    rest = rest if options.best_of is None else ["--seeds", "1", *rest]

    def settle(values: Mapping[str, Any]) -> Run:
        typed = [
            word for field, text in values.items() for word in flags(config.config, field, text)
        ]
        return parse(config, name, [*rest, *typed], "sweep")

    return Asked(name, config, grid, settle, options.best_of)


def _grid(texts: Sequence[str]) -> dict[str, list[str]]:
    """Field (with underscores) -> its values, from texts "field=a,b,c"."""
    found: dict[str, list[str]] = {}
    for text in texts:
        field, _, given = text.partition("=")
        field = field.lstrip("-").replace("-", "_")
        values = [value.strip() for value in given.split(",")]
        if not field or not all(values):
            raise ValueError(f"--grid: {text!r} is not field=a,b,c")
        if field in found:
            raise ValueError(f"--grid: {text!r} names a field or a value again; give each once")
        found[field] = values
    return found


def flags(config: Run, field: str, value: str) -> list[str]:
    """A field's value as the launcher takes it."""
    if not isinstance(flat(plain(config)).get(field.replace("-", "_")), bool):
        return words(field, value.split())
    if value.lower() not in ("true", "false"):
        raise ValueError(f"{field}: {value} is not true or false")
    return words(field, value.lower() == "true")


def _train_and_show(planned: Planned, folder: Path, as_json: bool) -> int:
    """Returns the exit code."""
    try:
        with checked():
            trained = sweep.train_points(planned)
        _show(planned, trained, folder, as_json)
    except (OSError, MemoryError, RuntimeError) as error:
        if not (said := outside(error)):
            raise
        print(f"error: {said}; {_goes_on(folder)}", file=sys.stderr)
        return 1
    return 0


def _show(planned: Planned, trained: Sweep, folder: Path, as_json: bool) -> None:
    if planned.choice is not None:
        about = sweep.release(planned, folder)
        print(json.dumps(about, indent=2) if as_json else best_of.shown(about, planned.choice))
        return
    table, rows = sweep.write_tables(planned, trained)
    if not as_json:
        print(f"{table}\nsweep folder: {folder}")
        return
    counts = {"trained": trained.trained, "reused": trained.reused}
    answer = {key: planned.wanted[key] for key in ("config", "grid")} | {"output": str(folder)}
    answer |= {"rows": rows, **counts, "compiled": trained.compilations}
    print(json.dumps(plain(answer | {"compile_seconds": trained.seconds}), indent=2))


if __name__ == "__main__":
    sys.exit(main())
