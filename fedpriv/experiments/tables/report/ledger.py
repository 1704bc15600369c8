"""The page's ledger: claimed and certified epsilons by view, with everything that is needed to read them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fedpriv.experiments.base.formats import (
    ABSENT,
    assumptions,
    epsilons_by_group,
    spread_over_clients,
)
from fedpriv.experiments.runs.alike import alike
from fedpriv.experiments.runs.contents import Report
from fedpriv.experiments.tables.report.audits import Errors
from fedpriv.experiments.tables.report.tables import Cell, Result, Table, epsilon
from fedpriv.privacy import SEES, VIEWS, Certificate, Claim
from fedpriv.privacy.epsilon_words import hyphenated, why_infinite

HEAD = ("view", "status", "epsilon", "delta", "unit", "adjacency", "by")


class Account(NamedTuple):
    """In the report's ledger: epsilons of the algorithms that have the same for the same reasons.

    Attributes:
      names: of the algorithms.
      missing: views that are not certified yet.
      verdict: on the claim; "" without one.
      bounds: what was composed and which side of the truth the bound is on, by view; none where nothing is private.
      assumptions: each once; where nothing is certified, why, if that is known.
      meaning: what an attacker of each view can do, where it is known.
      in_words: the same, a sentence for each view.
      trade_off: false-positive and false-negative rates, by view.
      seen: those that audits counted.
    """

    names: list[str]
    table: Table
    missing: list[str]
    claim: Claim | None
    verdict: str
    bounds: list[str]
    assumptions: list[str]
    meaning: Table | None
    in_words: list[str]
    trade_off: dict[str, tuple[Sequence[float], Sequence[float]]]
    seen: list[Errors]


def ledger(results: Sequence[Result], audits: Sequence[Errors] = ()) -> list[Account]:
    """The report's accounts, private ones first."""
    reports = ((result.summary.privacy.get(result.algorithm), result) for result in results)
    groups = alike((report, result) for report, result in reports if report)
    ordered = sorted(groups, key=lambda group: not _private(group[0]))
    return [_account(report, found, audits) for report, found in ordered]


def _private(report: Report) -> bool:
    return any(math.isfinite(c.epsilon) for c in report.certified.values())


def _account(report: Report, found: Sequence[Result], audits: Sequence[Errors]) -> Account:
    views = sorted(report.certified, key=VIEWS.index)
    certificates = [report.certified[view] for view in views]
    claim, rows = report.claimed, list[list[str | Cell]]()
    why = [] if _private(report) else [text for c in certificates for text in why_infinite(c)]
    for c in certificates:
        rows += _certified(c, report)
        rows += [_claimed(claim)] if claim and claim.view == c.view else []
    if claim and claim.view not in views:
        rows.append(_claimed(claim))
    return Account(
        names=[result.label for result in found],
        table=Table(f"Epsilons of {report.rounds} rounds", HEAD, rows),
        missing=[view for view in VIEWS if view not in views],
        claim=claim,
        verdict=_verdict(claim) if claim else "",
        bounds=[_bound(c) for c in certificates] if _private(report) else [],
        assumptions=[*dict.fromkeys(why)] or assumptions(certificates),
        meaning=_meaning(report),
        in_words=[f"{view}: {said}" for view in views if (said := report.in_words(view))],
        trade_off={
            view: (numbers.false_positive_rates, numbers.false_negative_rates)
            for view, numbers in report.operational.items()
        },
        seen=[
            errors
            for errors in audits
            if any(
                errors.are_of(result.run.config, result.algorithm, c)
                for result in found
                for c in certificates
                if c.view in report.operational
            )
        ],
    )


def _meaning(report: Report) -> Table | None:
    head: tuple[str, ...] = (
        "view",
        "μ",
        "regret",
        "advantage",
        "finds, 1 % wrong",
        "finds, 0.1 % wrong",
    )
    head += ("right, half of them in", "right, 1 % in", "rebuilds 1 of 10")
    rows: list[list[str | Cell]] = [
        [
            view,
            "none" if of.mu is None else f"{of.mu:.3g}",
            ABSENT if of.regret is None else f"{of.regret:.2g}",
            *(f"{100 * share:.3g} %" for share in (of.advantage, *of.true_positive_rates)),
            *(f"{100 * share:.3g} %" for share in (*of.success, of.reconstruction)),
        ]
        for view, of in report.operational.items()
    ]
    return Table("An attacker at best, in expectation", head, rows) if rows else None


def _row(c: Certificate | Claim, status: str | Cell, number: Cell, by: str) -> list[str | Cell]:
    view = Cell(c.view, below=[SEES[c.view]])
    return [view, status, number, f"{c.delta:.3g}", c.unit, hyphenated(c.relation), by]


def _certified(c: Certificate, report: Report) -> list[list[str | Cell]]:
    """Of all, and, where statistics were released before training, of these alone."""
    clients = report.client_epsilons.get(c.view)
    below = [spread_over_clients(clients)] if clients else []
    below += [epsilons_by_group(groups)] if (groups := report.group_epsilons.get(c.view)) else []
    rows = [_row(c, f"certified, {c.basis}", Cell(epsilon(c.epsilon), "strong", below), _by(c))]
    if alone := report.statistics.get(c.view):
        said = f"of these the statistics, alone: {alone.basis}"
        rows.append(_row(alone, said, Cell(epsilon(alone.epsilon)), _by(alone)))
    return rows


def _by(c: Certificate) -> str:
    by = ", ".join(f"{name} {epsilon(value)}" for name, value in c.epsilons.items())
    return by or "nothing is certified"


def _claimed(c: Claim) -> list[str | Cell]:
    doubted = Cell(f"{c.status}, not proved for this run", "warn")
    status = "claimed" if c.sound else doubted
    return _row(c, status, Cell(epsilon(c.epsilon)), "the paper's formula")


def _verdict(c: Claim) -> str:
    claimed = c.status == "claimed"
    verdict = "holds for this run" if c.sound else "is not proved for this run"
    said = f"The {'claim' if claimed else c.status} is by {c.source}. It {verdict}"
    if claimed:
        printed = "gives" if c.reproduced else "does not give"
        said += f"; as computed here the formula {printed} the epsilons that the paper prints"
    return f"{said}."


def _bound(c: Certificate) -> str:
    bound = f"{c.accountant} ({c.bound})" if c.epsilons else c.bound
    return f"{c.view}: {bound}; composed: {c.event}"
