"""fedpriv privacy [CONFIG] [options] [--field value ...]: what a config costs; trains nothing.
fedpriv privacy [FILE] --verify RUN: whether a run's certificates are right.

Prints epsilon by view, claimed and certified, and draws it over the rounds. CONFIG and its fields are those of
`fedpriv run`; --output is the folder of privacy.png here, by default runs/CONFIG-privacy. Exit code 2 means that
something given was wrong, 1 that a certificate is contradicted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedpriv.core.arguments import MeanRuns, Rate
from fedpriv.core.complaints import require
from fedpriv.core.terminal_text import terminal_width
from fedpriv.experiments.accounting.cost import as_json, costs, picture
from fedpriv.experiments.accounting.solving import Sought
from fedpriv.experiments.accounting.text import notes, text
from fedpriv.experiments.accounting.verifying import text as text_of_checks
from fedpriv.experiments.accounting.verifying import verified
from fedpriv.experiments.base.command import command
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.options import config_name, listing, parse, split_options


@dataclass(frozen=True)
class Options:
    """Options of the command `privacy`, beside the config's."""

    json: bool = False
    """Print one JSON object."""
    solve: Sought | None = None
    """Solve for noise_multiplier, or rounds, given --target-epsilon (and --view) below."""
    claimed: bool = False
    """Solve by the paper's claim, which has its own view."""
    honest: Rate = 1.0
    """Fraction of each cohort that adds its share of the noise and does not collude."""
    verify: Path | None = None
    """A run's folder, alone: check its certificates, their numbers by their pairs, and these by its config, which is
    traced again. Before it comes the file of that config, if it lies elsewhere now."""
    best_of: MeanRuns = 1.0
    """Also count the cost of choosing, also in what is solved for: only the best of a secret number of runs is
    released, and that number is geometric with this mean; third party only."""


@command
def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    if "--list" in args:
        say(listing())
        return 0
    if any(arg.partition("=")[0] == "--verify" for arg in args):
        asked = " ".join(args)
        given = config_name(args, "")
        options, rest = split_options(Options, args)
        alone = args[0].startswith("--verify") and not rest and (not given or given.endswith(".py"))
        require(alone, "verify", asked, "give RUN alone, or the file of its config before")
        assert options.verify is not None
        checked = verified(options.verify, modules.load(given) if given else None)
        say(text_of_checks(checked, terminal_width(sys.stdout)))
        return int(any(one.status == "contradicted" for one in checked))
    name, module = modules.named(config_name(args))
    options, rest = split_options(Options, args)
    details = (__doc__ or "").partition("\n\n")[2]
    settings = parse(module, name, rest, "privacy", Options, details)
    cost = costs(
        module,
        settings,
        honest=options.honest,
        best_of=options.best_of,
        sought=options.solve,
        claimed=options.claimed,
    )
    if options.json:
        say(json.dumps(as_json(name, cost, notes(cost)), indent=2))
        return 0
    say(text(cost, terminal_width(sys.stdout)))
    first = cost.accounts[0]
    if first.private:
        folder = settings.output or Path("runs") / f"{Path(name).stem}-privacy"
        picture(cost.ledger, first, folder / "privacy.png")
        say(f"picture of {', '.join(first.names)}: {folder / 'privacy.png'}")
    return 0
