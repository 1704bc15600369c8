"""python -m experiments.privacy [CONFIG] [options] [--field value ...]: what a config costs; trains nothing.

Prints epsilon by view, claimed and certified, and draws it over the rounds. CONFIG and its fields are those of
experiments.run. Exit code 2 means that something given was wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from experiments import config as configuration
from experiments.config import Ledger, Run
from experiments.ledger import Account, accounts, as_json, picture, table
from experiments.run import listing, one_line, parse
from fedpriv.privacy import VIEWS, calibrate_noise, calibrate_rounds, certify


def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        if "--list" in args:
            print(listing())
            return 0
        name = args.pop(0) if args and not args[0].startswith("-") else "quickstart"
        answer(name, args)
    except (ValueError, FileNotFoundError) as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 2
    return 0


def answer(name: str, args: list[str]) -> None:
    """Prints what is asked of the config `name`.

    Raises:
      ValueError: anything given that is not allowed, or a target that cannot be reached.
    """
    options, rest = _options(args)
    module = configuration.load(name)
    config = parse(module, name, rest, "privacy")
    solved = None
    if options.solve:
        config, solved = solve(lambda c: configuration.ledger(module, c), config, options)
    ledger = configuration.ledger(module, config)
    found = accounts(ledger, config.rounds, honest=options.honest)
    if options.json:
        print(json.dumps(as_json(name, found[0], ledger.delta, solved, ledger.notes), indent=2))
        return
    _show(name, config, ledger, found, solved)


def _options(args: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """This command's own options, and the config's."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.privacy [CONFIG]",
        description="What a config costs: epsilon by view, claimed and certified. Trains nothing.",
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
    parser.add_argument("--target-epsilon", type=float, metavar="E", help="for --solve, in nats")
    parser.add_argument("--claimed", action="store_true", help="solve by the paper's claim")
    parser.add_argument(
        "--view",
        choices=VIEWS,
        default="third_party",
        help="solve for this view (default: third_party)",
    )
    parser.add_argument(
        "--honest",
        type=float,
        default=1.0,
        metavar="H",
        help="fraction of each cohort that adds its share of the noise and does not collude (default: 1)",
    )
    if {"-h", "--help"} & set(args):
        parser.print_help()
        print()
    try:
        options, rest = parser.parse_known_args(args)
    except argparse.ArgumentError as error:
        raise ValueError(f"{error.argument_name}: {error.message}") from None
    if options.solve and options.target_epsilon is None:
        raise ValueError(f"--solve {options.solve}: needs --target-epsilon E")
    if options.target_epsilon is not None and not options.solve:
        raise ValueError("--target-epsilon: needs --solve noise or --solve rounds")
    return options, rest


def solve(ledger_of: Any, config: Run, options: argparse.Namespace) -> tuple[Run, dict[str, Any]]:
    """The config with the noise or the rounds that the target allows, and what was found.

    The answer is for the first of the config's algorithms that adds noise.

    Raises:
      ValueError: the target cannot be reached, or the config has no such algorithm or field.
    """
    ledger = ledger_of(config)
    name = _first_private(ledger)
    target = {
        "epsilon": options.target_epsilon,
        "delta": ledger.delta,
        "view": options.view,
        "honest": options.honest,
        "claimed": options.claimed,
    }
    if options.solve == "rounds":
        value: float = calibrate_rounds(ledger.algorithms[name], **target)
        config = replace(config, rounds=value)
    else:
        if "noise_multiplier" not in {field.name for field in fields(config)}:
            raise ValueError("--solve noise: this config has no field noise_multiplier")
        value = calibrate_noise(
            lambda sigma: ledger_of(replace(config, noise_multiplier=sigma)).algorithms[name],
            rounds=config.rounds,
            **target,
        )
        config = replace(config, noise_multiplier=value)
    algorithm = ledger_of(config).algorithms[name]
    claim = algorithm.claim(config.rounds, ledger.delta)
    proved = certify(
        algorithm, config.rounds, ledger.delta, view=options.view, honest=options.honest
    )
    reached = claim if options.claimed and claim else proved
    return config, {
        "for": options.solve,
        "value": value,
        "target_epsilon": options.target_epsilon,
        "epsilon": reached.epsilon,
        "by": "claimed" if options.claimed else "certified",
        "view": reached.view,
        "algorithm": name,
    }


def _first_private(ledger: Ledger) -> str:
    for name, algorithm in ledger.algorithms.items():
        if any(release.multiplier > 0 for release in algorithm.releases(1)):
            return name
    raise ValueError(
        f"algorithms: none of {', '.join(ledger.algorithms)} adds noise; name one that does"
    )


def _show(
    name: str, config: Run, ledger: Ledger, found: list[Account], solved: dict[str, Any] | None
) -> None:
    if solved:
        print(
            f"{solved['for']} for {solved['by']} epsilon {solved['target_epsilon']:g} ({solved['view']}): "
            f"{solved['value']:.6g}, which costs {solved['epsilon']:.4g}\n"
        )
    for note in ledger.notes:
        print(f"note: {note}\n")
    for account in found:
        if account.private or len(found) == 1:
            print(table(account, ledger.delta) + "\n")
        else:
            print(f"not private: {', '.join(account.names)} (epsilon = inf for every view)\n")
    path = (config.output or Path("runs") / f"{name}-privacy") / "privacy.png"
    picture(ledger, found[0], path)
    print(f"picture: {path}")


if __name__ == "__main__":
    sys.exit(main())
