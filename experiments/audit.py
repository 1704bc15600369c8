"""python -m experiments.audit [CONFIG] [options] [--field value ...]: what an adversary learns, beside what is said.

Three audits: of the mechanism, by draws of what a view sees on two neighbours in their worst direction; of real
training runs, by canaries that take the places of clients or records; of the trained models, by membership inference
from the loss. CONFIG and its fields are those of experiments.run; a folder given as --output gets audit.json and
audit.png.

Exit code 1: a certificate is refuted, which is a bug, or training failed; 2: something given was wrong; 130:
interrupted.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.attacks.audit.audit import PARTS, Draws, Part, audited
from experiments.attacks.audit.picture import picture
from experiments.attacks.audit.report import as_json, text
from experiments.base.command import command, one_line
from experiments.base.files import write_text
from experiments.base.provenance import prng, versions
from experiments.config import modules
from experiments.config.fields import Number, NumberOrZero
from experiments.config.options import config_name, listing, parse, split_options
from experiments.runs.recorder import new_folder
from fedpriv.engine import compilation_cache
from fedpriv.engine.history import DivergedError


@dataclass(frozen=True)
class Options:
    """Of the command, beside the config's."""

    json: bool = False
    """Print one JSON object."""
    parts: tuple[Part, ...] = PARTS
    """Which audits; the first needs no data, the others train every algorithm once each."""
    draws: Draws = 100_000
    """Of each neighbour."""
    canaries: Number | None = None
    """In each run; by default half the clients, 500 at most; of records 500, at most 10 of a client."""
    audit_seed: NumberOrZero = 0
    """Of the draws."""


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    if "--list" in args:
        print(listing())
        return 0
    name, module = modules.named(config_name(args))
    options, rest = split_options(Options, args)
    details = (__doc__ or "").partition("\n\n")[2]
    settings = parse(module, name, rest, "audit", Options, details)
    compilation_cache.cache_programs()
    folder = new_folder(settings, name) if settings.output else None
    asked = (options.parts, options.draws, options.canaries, options.audit_seed)
    try:
        report = audited(module, settings, *asked)
    except DivergedError as error:
        print(f"error: diverged: {one_line(error)}", file=sys.stderr)
        return 1
    about = {"settings": settings, "options": dataclasses.asdict(options)}
    found = as_json(name, report, about | {"versions": versions(), "prng": prng()})
    if folder:
        write_text(folder / "audit.json", json.dumps(found, indent=2) + "\n")
        picture(found, folder / "audit.png")
    print(json.dumps(found, indent=2) if options.json else text(report))
    return int(report.refuted)


if __name__ == "__main__":
    sys.exit(main())
