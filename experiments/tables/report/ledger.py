"""The page's ledger: claimed and certified epsilons by view, with everything that is needed to read them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from experiments.runs.contents import Report
from experiments.tables.report.markup import Content, Element, element, folded, listing, table
from experiments.tables.report.tables import Result, shown
from fedpriv.privacy import SEES, VIEWS, Certificate, Claim

NOTES = (
    "Every epsilon is of one model (one algorithm, one seed) released alone; the others of this page saw the same "
    "records, and choosing among them by their accuracy is not covered.",
    "Certified: proved for exactly the sampling that was run; constructed: what is released was read off the program "
    "of a round; declared: somebody wrote it down. Claimed: a paper's own formula, with the reasons where it does not "
    "hold.",
    "Adjacency: a unit is added or removed, replaced, or zeroed out. Replacing moves a sum by up to 2 C, the others by "
    "C: epsilons of different adjacency do not compare.",
)


def ledger(found: Sequence[Result]) -> list[Element | None]:
    """A block for each group of algorithms with the same epsilons for the same reasons, private ones first."""
    groups: dict[str, tuple[Report, list[str]]] = {}
    for result in found:
        if report := result.summary.privacy.get(result.algorithm):
            groups.setdefault(repr(report), (report, []))[1].append(result.label)
    private = sorted(groups.values(), key=lambda group: not _private(group[0]))
    notes = dict.fromkeys(note for r in found for note in r.summary.privacy_notes)
    said = listing([*NOTES, *(f"Note: {note}" for note in notes)])
    return [said, *(_account(report, names) for report, names in private)]


def _private(report: Report) -> bool:
    return any(math.isfinite(c.epsilon) for c in report.certified.values())


def _account(report: Report, names: Sequence[str]) -> Element:
    views = sorted(report.certified, key=VIEWS.index)
    head = ["view", "status", "epsilon", "delta", "unit", "adjacency", "by"]
    rows = [_certified(report.certified[view]) for view in views]
    if claim := report.claimed:  # below the certificate of its view
        at = views.index(claim.view) + 1 if claim.view in views else len(rows)
        rows.insert(at, _claimed(claim))
    missing = " and ".join(view for view in VIEWS if view not in views)
    later = f"{missing}: certified when the run ends; python -m experiments.privacy tells before"
    return element(
        "article",
        element("h3", "; ".join(names)),
        table(f"Epsilons of {report.rounds} rounds", head, rows),
        element("p", later) if missing else None,
        _verdict(claim) if claim else None,
        _basis([report.certified[view] for view in views]),
        class_="account",
    )


def _number(c: Certificate | Claim, status: Content, epsilon: Content, by: str) -> list[Content]:
    name = [[part, element("wbr")] for part in re.split("(?<=_)", c.view)]
    view = [name, " ", element("br"), element("span", SEES[c.view], class_="quiet")]
    return [view, status, epsilon, f"{c.delta:.3g}", c.unit, c.relation.replace("_", "-"), by]


def _certified(c: Certificate) -> list[Content]:
    by = ", ".join(f"{name} {shown(value)}" for name, value in c.epsilons.items())
    strong = element("strong", shown(c.epsilon))
    return _number(c, f"certified, {c.basis}", strong, by or "nothing is certified")


def _claimed(c: Claim) -> list[Content]:
    doubt = [f"{c.status}, ", element("span", "not proved for this run", class_="warn")]
    return _number(c, "claimed" if c.sound else doubt, shown(c.epsilon), "the paper's formula")


def _verdict(c: Claim) -> Element:
    verdict = "holds for this run" if c.sound else "is not proved for this run"
    printed = "gives" if c.reproduced else "does not give"
    compared = f"; as computed here the formula {printed} the epsilons that the paper prints"
    claimed = c.status == "claimed"
    return element(
        "div",
        element(
            "p",
            f"The {'claim' if claimed else c.status} is by {c.source}. It {verdict}{compared * claimed}.",
            class_=None if c.sound else "warn",
        ),
        listing(c.reasons),
    )


def _basis(certificates: Sequence[Certificate]) -> list[Element]:
    """What was composed and which side of the truth the bound is on, by view; each assumption once."""
    if not certificates:
        return []
    bounds = [
        f"{c.view}: {c.accountant} ({c.bound}); composed: {c.event}"
        if c.epsilons
        else f"{c.view}: {c.bound}; composed: {c.event}"
        for c in certificates
    ]
    views: dict[str, list[str]] = {}
    for c in certificates:
        for text in c.assumptions:
            views.setdefault(text, []).append(c.view)
    assumed = [
        text if len(of) == len(certificates) else f"{text} ({', '.join(of)})"
        for text, of in views.items()
    ]
    if not any(math.isfinite(c.epsilon) for c in certificates):
        return [element("p", "Nothing is certified: ", "; ".join(assumed), ".", class_="warn")]
    return [
        folded("Accountants and bounds", listing(bounds)),
        folded(f"Assumptions of the certificates ({len(assumed)})", listing(assumed)),
    ]
