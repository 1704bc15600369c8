"""fedpriv audit [CONFIG] [options] [--field value ...]: what an adversary learns, beside what is said.

Four audits: of the mechanism, by draws of what a view sees on two neighbours in their worst direction; of whole
trainings, by thousands of them with and without a canary (`--parts many_runs --runs 4000`: minutes to hours, so only
when it is asked for; `--canary natural mislabelled` takes weaker ones than the worst case); of one training, by many
canaries that take the places of clients or records; of the trained models, by membership inference from the loss.
CONFIG and its fields are those of `fedpriv run`; a folder given as --output gets audit.json and audit.png, and keeps
the scores of many runs: the same command goes on where it was stopped, with more --runs it adds to them.

Exit code 1: a certificate is refuted, which is a bug, or training failed; 2: something given was wrong; 130:
interrupted.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from fedpriv.engine import compilation_cache
from fedpriv.engine.history import DivergedError
from fedpriv.experiments.attacks.audit.audit import Wanted, audited
from fedpriv.experiments.attacks.audit.picture import picture
from fedpriv.experiments.attacks.audit.report import as_json, text
from fedpriv.experiments.base.command import command, one_line
from fedpriv.experiments.base.files import write_text
from fedpriv.experiments.base.provenance import prng, versions
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.options import config_name, listing, parse, split_options
from fedpriv.experiments.runs.recorder import new_folder

OWN = ("--parts", "--runs", "--draws", "--audit-seed", "--output", "--json")
"""What a stronger test has otherwise."""


@dataclass(frozen=True)
class Options(Wanted):
    """Options of the command `audit`, beside the config's."""

    json: bool = False
    """Print one JSON object."""


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    if "--list" in args:
        say(listing())
        return 0
    given = list(args)
    name, module = modules.named(config_name(args))
    options, rest = split_options(Options, args)
    details = (__doc__ or "").partition("\n\n")[2]
    settings = parse(module, name, rest, "audit", Options, details)
    compilation_cache.cache_programs()
    folder = new_folder(settings, name) if settings.output else None
    try:
        report = audited(name, module, settings, options, folder)
    except DivergedError as error:
        say(f"error: diverged: {one_line(error)}", file=sys.stderr)
        return 1
    report = dataclasses.replace(report, command=_again(given, options.audit_seed + 1))
    about = {"settings": settings, "options": dataclasses.asdict(options)}
    found = as_json(name, report, about | {"versions": versions(), "prng": prng()})
    if folder:
        write_text(folder / "audit.json", json.dumps(found, indent=2) + "\n")
        picture(found, folder / "audit.png")
    say(json.dumps(found, indent=2) if options.json else text(report))
    return int(report.refuted)


def _again(args: Sequence[str], seed: int) -> str:
    """The command with another seed, without `OWN`."""
    kept: list[str] = []
    dropped = False
    for word in args:
        if word.startswith("--"):
            dropped = word.split("=")[0] in OWN
        if not dropped:
            kept.append(word)
    return shlex.join(["fedpriv", "audit", *kept, "--audit-seed", str(seed)])
