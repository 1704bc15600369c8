"""`Audited`, all that an audit has found, and how it is written: tables with words below them, or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedpriv.core.json_values import plain
from fedpriv.experiments.attacks.audit.membership import Inferred
from fedpriv.experiments.attacks.audit.row import Row, Unaudited
from fedpriv.experiments.attacks.audit.tables import (
    many_runs_table,
    mechanisms_table,
    membership_table,
    one_run_table,
)


@dataclass(frozen=True)
class Audited:
    """All parts of an audit; `None` where one was not asked for.

    Attributes:
      delta: of the config.
      mechanisms, many_runs, one_run: what was audited, and what could not be.
      command: that does the same with other seeds, for a test with more power.
    """

    delta: float
    mechanisms: tuple[Sequence[Row], Sequence[Unaudited]] | None = None
    many_runs: tuple[Sequence[Row], Sequence[Unaudited]] | None = None
    one_run: tuple[Sequence[Row], Sequence[Unaudited]] | None = None
    inferred: Sequence[Inferred] | None = None
    command: str = "fedpriv audit ..."

    def __repr__(self) -> str:
        return text(self)

    @property
    def refuted(self) -> bool:
        """Whether a certificate is."""
        parts = [part[0] for part in (self.mechanisms, self.many_runs, self.one_run) if part]
        return any(row.refuted for rows in parts for row in rows)


def text(report: Audited) -> str:
    """An audit's tables, one for each part, and what they mean in words."""
    parts = []
    if report.mechanisms is not None:
        parts.append(mechanisms_table(*report.mechanisms, report.delta, report.command))
    if report.many_runs is not None:
        parts.append(many_runs_table(*report.many_runs, report.command))
    if report.one_run is not None:
        parts.append(one_run_table(*report.one_run, report.command))
    if report.inferred is not None:
        parts.append(membership_table(report.inferred))
    return "\n\n".join("\n".join(lines) for lines in parts)


def as_json(config: str, report: Audited, settings: dict[str, Any]) -> dict[str, Any]:
    """The object that `audit --json` prints; infinity is the string "inf"."""
    found: dict[str, Any] = {"config": config, "delta": report.delta, **settings}
    if report.mechanisms is not None:
        rows, bare = report.mechanisms
        named = ({"algorithms": row.names, "views": row.views} for row in rows)
        found["mechanisms"] = [own | _as_json(row) for own, row in zip(named, rows, strict=True)]
        found["nothing_to_draw"] = [one._asdict() for one in bare]
    for part in ("many_runs", "one_run"):
        if (of := getattr(report, part)) is not None:
            rows, skipped = of
            whose = ({"algorithm": row.names[0], "views": row.views} for row in rows)
            found[part] = [own | _as_json(row) for own, row in zip(whose, rows, strict=True)]
            reasons = [{"name": one.names[0], "reason": one.reason} for one in skipped]
            found[f"not_in_{part}"] = reasons
    if report.inferred is not None:
        found["membership"] = [
            {"algorithm": one.name, "seeds": [m._asdict() for m in one.seeds]}
            for one in report.inferred
        ]
    return plain(found)


def _as_json(row: Row) -> dict[str, Any]:
    return {
        **row.about,
        "claimed": row.claim,
        "certified": row.certificate,
        "audited": {"least": row.least, "surely": row.surely, **row.audited},
        "claim_refuted": row.claim_refuted,
        "certificate_refuted": row.refuted,
        "suspicious": row.suspicious,
        "powerless": row.powerless,
    }
