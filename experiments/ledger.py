"""What a config costs: claimed and certified epsilons by view, as an object, a table and a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.config import Ledger
from experiments.record import plain
from experiments.show import NAMES, epsilon
from fedpriv.privacy import VIEWS, Certificate, Claim, certify
from fedpriv.types import Algorithm


class Account(NamedTuple):
    """Epsilons of the algorithms that release and claim the same.

    Attributes:
      names: of the algorithms.
      rounds: number of rounds T.
      claim: the paper's, if there is one.
      certificates: one for each view.
    """

    names: tuple[str, ...]
    rounds: int
    claim: Claim | None
    certificates: tuple[Certificate, ...]

    @property
    def private(self) -> bool:
        return any(math.isfinite(c.epsilon) for c in self.certificates)


def accounts(
    ledger: Ledger, rounds: int, views: Sequence[str] = VIEWS, honest: float = 1.0
) -> list[Account]:
    """One for each group of algorithms with equal releases and claims, those with noise first."""
    groups: dict[Any, list[str]] = {}
    for name, algorithm in ledger.algorithms.items():
        said = (algorithm.releases(rounds), algorithm.claim(rounds, ledger.delta))
        groups.setdefault(said, []).append(name)
    found = []
    for (_, claim), names in groups.items():
        algorithm = ledger.algorithms[names[0]]
        certificates = tuple(
            certify(algorithm, rounds, ledger.delta, view=view, honest=honest) for view in views
        )
        found.append(Account(tuple(names), rounds, claim, certificates))
    return sorted(found, key=lambda account: not account.private)


def as_json(
    config: str, account: Account, delta: float, solved: dict[str, Any] | None, notes: Sequence[str]
) -> dict[str, Any]:
    """The object that `--json` prints; infinity is the string "inf"."""
    return plain(
        {
            "config": config,
            "algorithms": account.names,
            "rounds": account.rounds,
            "delta": delta,
            "claimed": account.claim,
            "certified": account.certificates,
            "solved": solved,
            "notes": tuple(notes),
        }
    )


def table(account: Account, delta: float) -> str:
    """View x (claimed, certified by RDP, certified by PLD), and what the numbers mean."""
    unit = account.certificates[0].unit
    names = ", ".join(NAMES.get(name, name) for name in account.names)
    rows = [["view", "adjacency", "claimed", "certified RDP", "certified PLD"]]
    rows += [_row(account, certificate) for certificate in account.certificates]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    lines.insert(1, "  ".join("-" * w for w in widths))
    head = f"{names}: epsilon of {account.rounds} rounds at delta = {delta:.3g}, {unit} level"
    return "\n".join([head, "", *(line.rstrip() for line in lines), "", *_legend(account)])


def _row(account: Account, certificate: Certificate) -> list[str]:
    claim = account.claim if account.claim and account.claim.view == certificate.view else None
    mark = "" if claim is None or claim.sound else " (*)"
    nothing = epsilon(plain(certificate.epsilon))
    by = {name: epsilon(plain(value)) for name, value in certificate.epsilons.items()}
    return [
        certificate.view,
        certificate.relation.replace("_", "-"),
        epsilon(plain(claim.epsilon)) + mark if claim else "-",
        by.get("RDP", "-" if by else nothing),
        by.get("PLD", nothing),
    ]


def _legend(account: Account) -> list[str]:
    lines = []
    if account.claim:
        claim = account.claim
        verdict = "holds for this run" if claim.sound else "(*) not proved for this run"
        printed = "gives" if claim.reproduced else "does not give"
        lines.append(
            f"claimed: {claim.unit} level, {claim.view}, {claim.relation.replace('_', '-')} adjacency, by "
            f"{claim.source}; {verdict}; as computed here it {printed} the paper's printed epsilons"
        )
        lines += [f"  {reason}" for reason in claim.reasons]
    for certificate in account.certificates:
        lines.append(
            f"certified, {certificate.view}: {certificate.bound}; composed: {certificate.event}"
        )
        shared = account.certificates[0] is not certificate
        texts = [t for t in certificate.assumptions if not (shared and _said(account, t))]
        lines += [f"  {text}" for text in texts]
    return lines


def _said(account: Account, text: str) -> bool:
    return text in account.certificates[0].assumptions


def picture(ledger: Ledger, account: Account, path: Path, points: int = 16) -> None:
    """Epsilon over the rounds: certified for every view, and claimed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    algorithm: Algorithm = ledger.algorithms[account.names[0]]
    rounds = np.unique(
        np.linspace(1, account.rounds, min(points, account.rounds)).round().astype(int)
    )
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for c in account.certificates:
        if math.isfinite(c.epsilon):
            curve = [certify(algorithm, int(t), ledger.delta, view=c.view).epsilon for t in rounds]
            label = f"certified, {c.view}, {c.relation.replace('_', '-')}"
            axes.plot(rounds, curve, label=label)
    if account.claim and math.isfinite(account.claim.epsilon):
        claims = [algorithm.claim(int(t), ledger.delta) for t in rounds]
        label = f"claimed, {account.claim.view}, {account.claim.relation.replace('_', '-')}"
        axes.plot(rounds, [c.epsilon for c in claims if c], "k--", label=label)
    axes.set(
        xlabel="round",
        ylabel=f"epsilon at delta = {ledger.delta:.3g}, {account.certificates[0].unit} level",
        yscale="log",
    )
    if axes.lines:
        axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
