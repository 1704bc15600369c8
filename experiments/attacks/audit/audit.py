"""The command `audit`: what an adversary learns, beside what is said.

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
from functools import partial
from types import ModuleType
from typing import Any

from experiments import config as configuration
from experiments.accounting import budget
from experiments.attacks.audit.mechanisms import audit_mechanisms
from experiments.attacks.audit.picture import picture
from experiments.attacks.audit.report import Report, as_json, text
from experiments.attacks.audit.training import audit_runs, infer
from experiments.base import compilation_cache
from experiments.base.command import command, one_line
from experiments.base.files import write_text
from experiments.base.provenance import prng, versions
from experiments.config import Run, modules
from experiments.config.fields import Number, NumberOrZero, check_each
from experiments.config.options import config_name, listing, own_options, parse
from experiments.runs.recorder import new_folder
from experiments.training.run import built
from experiments.training.shared_arrays import Interned
from fedpriv.core.arguments import require
from fedpriv.devices.layout import split_cpu
from fedpriv.engine.history import DivergedError

PARTS = ("mechanism", "run", "membership")


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        if "--list" in args:
            print(listing())
            return 0
        name = config_name(args)
        module = modules.load(name)
        options, rest = _options(name, args)
        config = parse(module, name, rest, "audit")
        compilation_cache.enable()
        folder = new_folder(config, name) if config.output else None
        report = _audit(module, config, options)
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


def _audit(module: ModuleType, config: Run, options: argparse.Namespace) -> Report:
    """Whatever `--parts` asks for; the data first, so that a missing set is found before minutes are spent."""
    parts: dict[str, Any] = {}
    training = {"run", "membership"} & set(options.parts)
    noise = budget.solved(module, config)
    if training:
        split_cpu(config.layout.devices)
        strategy = configuration.strategy(config.layout)
        experiment = built(module, config, noise, Interned())
        ledger = experiment.ledger
    else:
        ledger = budget.made(partial(configuration.ledger_of, module), config, noise)
    if "mechanism" in options.parts:
        parts["mechanisms"] = audit_mechanisms(
            ledger, config.rounds, options.draws, options.audit_seed
        )
    if training:
        if "run" in options.parts:
            parts["runs"] = audit_runs(experiment, config, strategy, options.canaries)
        if "membership" in options.parts:
            parts["inferred"] = infer(experiment, config, strategy)
    return Report(ledger.delta, **parts)
