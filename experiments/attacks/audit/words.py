"""What the tables of an audit share: the first cells of a row, and what is said of it below the table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.accounting.cost import claimed
from experiments.attacks.audit.canary import WORST
from experiments.attacks.audit.row import Row
from experiments.base.formats import NAMES, epsilon, hyphenated
from experiments.base.json_values import plain

SAID = ["algorithm", "view", "neighbours", "claimed", "certified", "audited"]


def named(names: Sequence[str]) -> str:
    return ", ".join(NAMES.get(name, name) for name in names)


def who(row: Row) -> str:
    kind = row.about.get("canary", WORST)
    weaker = "" if kind == WORST else f", {kind} canary"
    return f"{named(row.names)} [{', '.join(row.views)}{weaker}]"


def said(row: Row) -> list[str]:
    """The cells of `SAID`."""
    certificate = row.certificate
    return [
        named(row.names),
        ", ".join(row.views) if len(row.views) < 3 else "all",
        f"{certificate.unit}, {hyphenated(certificate.relation)}",
        claimed(row.claim, [*row.views, certificate.view]),
        epsilon(plain(certificate.epsilon)),
        f">= {row.least:.3g}",
    ]


def estimated(row: Row) -> str:
    """The estimate with its interval; that it is none where its assumption is rejected."""
    about = row.audited["estimate"]
    numbers = f"{about['epsilon']:.3g} ({about['low']:.3g}..{about['high']:.3g})"
    if math.isnan(about["p_value"]):
        return f"{numbers}, assumption not tested"
    return numbers if row.assumption_holds else f"{numbers}, assumption rejected"


def verdicts(rows: Sequence[Row], stronger: str) -> list[str]:
    """In words: what is refuted or suspicious, which audits have no power, why a certificate is infinite.

    Args:
      stronger: the command for a test with more power.
    """
    lines = []
    for row in rows:
        if row.refuted:
            declared = row.certificate.basis == "declared"
            what = "WHAT WAS DECLARED BY HAND" if declared else "THE CERTIFICATE"
            bug = "" if declared else ", which is a bug; please report it"
            lines.append(f"{who(row)}: {what} IS REFUTED{bug}")
        if row.claim_refuted:
            lines.append(f"{who(row)}: REFUTED{_by_whom(row)}, {_least(row)}: {row.claim}")
        if row.suspicious:
            lines.append(f"SUSPICIOUS: {_above(row)}; stronger test: {stronger}")
        if math.isinf(row.certificate.epsilon):
            lines.append(f"{who(row)}: certified inf: {'; '.join(row.certificate.assumptions)}")
    if powerless := dict.fromkeys(who(row) for row in rows if row.powerless):
        lines.append(
            "no power: less than a tenth seen of what may be there, which speaks neither for nor against it: "
            + "; ".join(powerless)
        )
    if any(row.claim is not None and not row.claim.sound for row in rows):
        lines.append("(*) not proved for this run: see python -m experiments.privacy")
    return lines


def _by_whom(row: Row) -> str:
    return ", for whoever sees every noisy step" if row.certificate.unit == "record" else ""


def _least(row: Row) -> str:
    return f"epsilon is at least {row.least:.3g} (95 %; {row.surely:.3g} at 1 - 1e-6)"


def _above(row: Row) -> str:
    certified = row.certificate.epsilon
    found = f"the bound {row.least:.3g} (95 %)"
    if row.least <= certified:
        found = f"the estimate {estimated(row)}"
    return f"{who(row)}: {found} lies above the certificate {certified:.4g} at delta {row.certificate.delta:.2g}"
