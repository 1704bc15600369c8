"""python -m experiments.privacy [CONFIG] [options] [--field value ...]: what a config costs; trains nothing.

Prints epsilon by view, claimed and certified, and draws it over the rounds. CONFIG and its fields are those of
experiments.run. Exit code 2 means that something given was wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments import config as configuration
from experiments.accounting.cost import Account, accounts, as_json, picture, table
from experiments.accounting.solving import Target, solve
from experiments.base.command import command
from experiments.base.formats import width, wrapped
from experiments.config import Ledger, Run, modules
from experiments.config.options import config_name, listing, own_options, parse
from fedpriv.core.arguments import Budget, MeanRuns, Rate, checked
from fedpriv.privacy import VIEWS


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    if "--list" in args:
        print(listing())
        return 0
    name, module = modules.named(config_name(args))
    options, rest = _options(args)
    config, solved = parse(module, name, rest, "privacy"), None
    if options.solve:
        given = (
            options.solve,
            options.target_epsilon,
            options.view,
            options.honest,
            options.claimed,
        )
        config, solved = solve(lambda c: configuration.ledger_of(module, c), config, Target(*given))
    ledger = configuration.ledger_of(module, config)
    found = accounts(ledger, config.rounds, honest=options.honest, best_of=options.best_of)
    if options.json:
        notes = [*ledger.notes, *(_left_out(account) for account in found[1:])]
        print(json.dumps(as_json(name, found[0], ledger.delta, solved, notes), indent=2))
    else:
        _show(name, config, ledger, found, solved)
    return 0


def _left_out(account: Account) -> str:
    names = " ".join(account.names)
    return f"other numbers: {names} (ask with --algorithms {names})"


def _options(args: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """This command's own options, and the config's."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.privacy [CONFIG]",
        description="What a config costs: epsilon by view, claimed and certified. Trains nothing. The config's own "
        "fields (below, as for experiments.run) may be overridden too; --output is the folder of privacy.png here, by "
        "default runs/CONFIG-privacy.",
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--solve",
        choices=["noise", "rounds"],
        help="fill in noise_multiplier, or rounds, from the target",
    )
    parser.add_argument(
        "--target-epsilon",
        type=float,
        metavar="E",
        help="for --solve: in nats, at the config's delta",
    )
    parser.add_argument("--claimed", action="store_true", help="solve by the paper's claim")
    parser.add_argument(
        "--view",
        choices=VIEWS,
        help="solve for this view (default: third_party)",
    )
    parser.add_argument(
        "--honest",
        type=float,
        default=1.0,
        metavar="H",
        help="fraction of each cohort that adds its share of the noise and does not collude (default: 1)",
    )
    parser.add_argument(
        "--best-of",
        type=float,
        default=1.0,
        metavar="MEAN",
        help="what choosing costs: only the best of a secret number of runs is released, which is geometric with this "
        "mean; third party alone (default: 1)",
    )
    options, rest = own_options(parser, args)
    checked("--target-epsilon", options.target_epsilon, Budget | None)
    checked("--honest", options.honest, Rate)
    checked("--best-of", options.best_of, MeanRuns)
    if options.solve and options.best_of != 1:
        raise ValueError("--best-of: cannot be solved for; leave out --solve")
    if options.solve and options.target_epsilon is None:
        raise ValueError(f"--solve {options.solve}: needs --target-epsilon E")
    given = {
        "--target-epsilon": options.target_epsilon is not None,
        "--claimed": options.claimed,
        "--view": options.view is not None,
    }
    alone = [name for name, there in given.items() if there]
    if alone and not options.solve:
        raise ValueError(f"{alone[0]}: needs --solve noise or --solve rounds")
    if options.claimed and options.view:
        raise ValueError("--view: a claim has a view of its own; leave out --view or --claimed")
    options.view = options.view or "third_party"
    return options, rest


def _solution(solved: dict[str, Any]) -> str:
    adjacency = solved["relation"].replace("_", "-")
    honest = f", honest = {solved['honest']:g}" if solved["honest"] < 1 else ""
    means = f"{solved['unit']} level, {solved['view']}, {adjacency} adjacency, delta = {solved['delta']:.3g}{honest}"
    text = (
        f"{solved['for']} for {solved['by']} epsilon {solved['target_epsilon']:g} ({means}): {solved['value']:.6g}, "
        f"which costs {solved['epsilon']:.4g}"
    )
    if solved["by"] != "certified":
        text += "\nsolved by the claim; the certificates below may be larger"
    return text


def _show(
    name: str, config: Run, ledger: Ledger, found: list[Account], solved: dict[str, Any] | None
) -> None:
    if solved:
        print(_solution(solved) + "\n")
    for note in ledger.notes:
        print(f"note: {note}\n")
    for account in found:
        claims = account.claim is not None and math.isfinite(account.claim.epsilon)
        if account.private or claims:
            print(_prose_wrapped(table(account, ledger.delta)) + "\n")
        else:
            why = account.certificates[0].assumptions[0]
            print(f"{', '.join(account.names)}: epsilon = inf for every view; {why}\n")
    if found[0].private:
        path = (config.output or Path("runs") / f"{Path(name).stem}-privacy") / "privacy.png"
        picture(ledger, found[0], path)
        print(f"picture of {', '.join(found[0].names)}: {path}")


def _prose_wrapped(text: str) -> str:
    """A table's columns stay as wide as they are."""
    most = width(sys.stdout)
    lines = (x if "  " in x.strip() else wrapped(x, most) for x in text.splitlines())
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
