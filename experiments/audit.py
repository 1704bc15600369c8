"""python -m experiments.audit [CONFIG] [options] [--field value ...]: what an adversary learns, beside what is said.

Three audits: of the mechanism, by draws of what a view sees on two neighbours in their worst direction; of real
training runs, by canaries that take the places of clients or records; of the trained models, by membership inference
from the loss. CONFIG and its fields are those of experiments.run; a folder given as --output gets audit.json and
audit.png.

Exit code 1: a certificate is refuted, which is a bug, or training failed; 2: something given was wrong; 130:
interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from experiments.attacks.audit.audit import PARTS, audited
from experiments.attacks.audit.picture import picture
from experiments.attacks.audit.report import as_json, text
from experiments.base.command import command, one_line
from experiments.base.files import write_text
from experiments.base.provenance import prng, versions
from experiments.config import modules
from experiments.config.fields import Number, NumberOrZero, check_each
from experiments.config.options import config_name, listing, own_options, parse
from experiments.runs.recorder import new_folder
from fedpriv.core.arguments import require
from fedpriv.engine import compilation_cache
from fedpriv.engine.history import DivergedError


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    if "--list" in args:
        print(listing())
        return 0
    name, module = modules.named(config_name(args))
    options, rest = _options(name, args)
    config = parse(module, name, rest, "audit")
    compilation_cache.cache_programs()
    folder = new_folder(config, name) if config.output else None
    asked = (options.parts, options.draws, options.canaries, options.audit_seed)
    try:
        report = audited(module, config, *asked)
    except DivergedError as error:
        print(f"error: diverged: {one_line(error)}", file=sys.stderr)
        return 1
    settings = {"settings": config, "options": vars(options)}
    settings |= {"versions": versions(), "prng": prng()}
    found = as_json(name, report, settings)
    if folder:
        write_text(folder / "audit.json", json.dumps(found, indent=2) + "\n")
        picture(found, folder / "audit.png")
    print(json.dumps(found, indent=2) if options.json else text(report))
    return int(report.refuted)


def _options(name: str, args: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """This command's own options, and the config's."""
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments.audit {name}",
        description="Claimed, certified and audited epsilons side by side.",
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=PARTS,
        default=PARTS,
        help="which audits (default: all); the first needs no data, the others train every algorithm once each",
    )
    parser.add_argument(
        "--draws", type=int, default=100_000, metavar="N", help="of each neighbour (default 1e5)"
    )
    parser.add_argument(
        "--canaries",
        type=int,
        metavar="K",
        help="in each run (default: half the clients, 500 at most; of records 500, at most 10 of a client)",
    )
    parser.add_argument("--audit-seed", type=int, default=0, metavar="S", help="of the draws")
    options, rest = own_options(parser, args)
    check_each(Number, **{"--draws": options.draws})
    require(
        options.draws >= 100, "--draws", options.draws, "too few to say anything; give 100 or more"
    )
    check_each(Number, **{"--canaries": options.canaries})
    check_each(NumberOrZero, **{"--audit-seed": options.audit_seed})
    return options, rest


if __name__ == "__main__":
    sys.exit(main())
