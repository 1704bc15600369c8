"""python -m experiments.audit [CONFIG] [options] [--field value ...]: what an adversary learns, beside what is said.

For each algorithm that adds noise and each view: epsilon claimed, certified, and at least (with 95 % confidence) by an
audit of the mechanism, which draws what the view sees on two neighbours in their worst direction. CONFIG and its fields
are those of experiments.run. Exit code 1: a certificate is refuted, which is a bug. Exit code 2: something given was
wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from experiments import config as configuration
from experiments.config import Ledger
from experiments.record import plain
from experiments.run import config_name, listing, one_line, parse
from experiments.show import NAMES, epsilon
from fedpriv.attacks.mechanism import LowerBounds, draw_scores, lower_bounds
from fedpriv.privacy import VIEWS, Certificate, Claim, Release, certify
from fedpriv.types import Algorithm

AFFORDABLE = 2e9  # Gaussian draws: about 20 s on two cores


class Audited(NamedTuple):
    """One algorithm and view.

    Attributes:
      algorithm: its name.
      rounds: that were audited; all numbers are of so many.
      draws: of each neighbour.
      claim: the paper's, if it is about this view.
      certificate: what is proved.
      bounds: what was found.
    """

    algorithm: str
    rounds: int
    draws: int
    claim: Claim | None
    certificate: Certificate
    bounds: LowerBounds

    @property
    def least(self) -> float:
        return max(self.bounds.clopper_pearson, self.bounds.gaussian)

    @property
    def refuted(self) -> bool:
        """Whether epsilon is larger than the certificate says."""
        return self.least > self.certificate.epsilon

    @property
    def claim_refuted(self) -> bool:
        """Whether it is larger than the claim says, about the same neighbours."""
        alike = {"zero_out", "add_or_remove"}
        return (
            self.claim is not None
            and self.least > self.claim.epsilon
            and self.claim.delta <= self.certificate.delta
            and ({self.claim.relation, self.certificate.relation} <= alike)
            | (self.claim.relation == self.certificate.relation)
        )


def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        if "--list" in args:
            print(listing())
            return 0
        name = config_name(args)
        options, rest = _options(args)
        module = configuration.load(name)
        config = parse(module, name, rest, "audit")
        ledger = configuration.ledger_of(module, config)
        found = audit(ledger, options.audit_rounds or config.rounds, options)
    except (ValueError, OSError) as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 2
    print(json.dumps(as_json(name, found), indent=2) if options.json else text(found))
    return int(any(one.refuted for one in found))


def _options(args: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """This command's own options, and the config's."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.audit [CONFIG]",
        description="Claimed, certified and audited epsilons side by side.",
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--draws", type=int, default=100_000, metavar="N", help="of each neighbour (default 1e5)"
    )
    parser.add_argument(
        "--audit-rounds",
        type=int,
        metavar="T",
        help="rounds to audit (default: the config's, or one where those would take more than about 20 s)",
    )
    parser.add_argument("--audit-seed", type=int, default=0, metavar="S", help="of the draws")
    if {"-h", "--help"} & set(args):
        parser.print_help()
        print()
    try:
        options, rest = parser.parse_known_args(args)
    except argparse.ArgumentError as error:
        raise ValueError(f"{error.argument_name}: {error.message}") from None
    if options.draws < 100:
        raise ValueError(f"--draws: {options.draws} is too few to say anything; give 100 or more")
    if options.audit_rounds is not None and options.audit_rounds < 1:
        raise ValueError(f"--audit-rounds: {options.audit_rounds} is not at least 1")
    return options, rest


def audit(ledger: Ledger, rounds: int, options: argparse.Namespace) -> list[Audited]:
    """Every view of every algorithm whose noise hides anything."""
    return [
        _audited(name, algorithm, view, rounds, ledger.delta, options)
        for name, algorithm in ledger.algorithms.items()
        for view in VIEWS
        if any(_drawable(r) for r in algorithm.releases(1) if r.view == view)
    ]


def _drawable(release: Release) -> bool:
    return release.multiplier > 0 and release.mechanism is not None


def _audited(
    name: str,
    algorithm: Algorithm,
    view: str,
    rounds: int,
    delta: float,
    options: argparse.Namespace,
) -> Audited:
    draws = options.draws
    if options.audit_rounds is None and draws * _cost(algorithm, view, rounds) > AFFORDABLE:
        rounds = 1
    draws = max(100, min(draws, int(AFFORDABLE / _cost(algorithm, view, rounds))))
    releases = [r for r in algorithm.releases(rounds) if r.view == view]
    scores = draw_scores(releases, view, draws=draws, seed=options.audit_seed)
    claim = algorithm.claim(rounds, delta)
    return Audited(
        name,
        rounds,
        draws,
        claim if claim is not None and claim.view == view else None,
        certify(algorithm, rounds, delta, view=view),
        lower_bounds(scores, delta),
    )


def _cost(algorithm: Algorithm, view: str, rounds: int) -> float:
    """Normal numbers per draw of both neighbours."""
    seen = [r for r in algorithm.releases(rounds) if r.view == view and r.mechanism is not None]
    return 2.0 * sum(r.steps * r.repeats * (r.mechanism.dimension or 4) for r in seen)  # type: ignore[union-attr]


def as_json(config: str, found: Sequence[Audited]) -> dict[str, Any]:
    """The object that `--json` prints; infinity is the string "inf"."""
    rows = [
        {
            "algorithm": one.algorithm,
            "rounds": one.rounds,
            "draws": one.draws,
            "claimed": one.claim,
            "certified": one.certificate,
            "audited": {**one.bounds._asdict(), "confidence": 1 - one.bounds.significance},
            "claim_refuted": one.claim_refuted,
            "certificate_refuted": one.refuted,
        }
        for one in found
    ]
    return plain({"config": config, "mechanisms": rows})


def text(found: Sequence[Audited]) -> str:
    """A table, and what it means in words."""
    if not found:
        return "no algorithm of this config hides anything from anybody: epsilon = inf, nothing to audit"
    head = [
        "algorithm",
        "view",
        "rounds",
        "neighbours",
        "claimed",
        "certified",
        "audited, at least",
    ]
    rows = [[*head, "by counts", "as Gaussian"]]
    for one in found:
        claimed = "-" if one.claim is None else epsilon(plain(one.claim.epsilon))
        rows.append(
            [
                NAMES.get(one.algorithm, one.algorithm),
                one.certificate.view,
                str(one.rounds),
                one.certificate.relation.replace("_", "-"),
                claimed + (" (*)" if one.claim is not None and not one.claim.sound else ""),
                epsilon(plain(one.certificate.epsilon)),
                f"{one.least:.3g}",
                f"{one.bounds.clopper_pearson:.3g}",
                f"{one.bounds.gaussian:.3g}",
            ]
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    lines.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join([*lines, "", *_words(found)])


def _words(found: Sequence[Audited]) -> list[str]:
    first = found[0].certificate
    lines = [
        f"epsilon at delta = {first.delta:.3g}, {first.unit} level, of so many rounds; audited: lower bounds that are "
        f"wrong with probability {found[0].bounds.significance:.0%}, from {found[0].draws} draws of each neighbour (by "
        "Clopper-Pearson intervals, which hold for any mechanism, and for mechanisms no worse than some Gaussian one)",
    ]
    for one in found:
        who = f"{NAMES.get(one.algorithm, one.algorithm)}, {one.certificate.view}"
        if one.refuted:
            lines.append(
                f"{who}: THE CERTIFICATE IS REFUTED ({one.least:.3g} > {one.certificate.epsilon:.3g}); this is a bug"
            )
        if one.claim_refuted and one.claim is not None:
            lines.append(
                f"{who}: the claim of {one.claim.epsilon:.3g} ({one.claim.source}) is refuted: epsilon is at least "
                f"{one.least:.3g}"
            )
        if one.least < 0.1 * min(one.certificate.epsilon, 10):
            lines.append(
                f"{who}: the audit says little; it would take more draws, or more rounds, to see so small an epsilon"
            )
    if any(one.claim is not None and not one.claim.sound for one in found):
        lines.append("(*) not proved, see python -m experiments.privacy")
    return lines


if __name__ == "__main__":
    sys.exit(main())
