"""`Audited`, all that an audit has found, and how it is written: tables with words below them, or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.attacks.audit.membership import Inferred
from experiments.attacks.audit.row import Row, Unaudited
from experiments.attacks.audit.training_tables import many_runs_table, one_run_table
from experiments.attacks.audit.words import SAID, named, said, verdicts
from experiments.base.formats import ABSENT, aligned
from experiments.base.json_values import plain


@dataclass(frozen=True)
class Audited:
    """All that was asked for; `None` where it was not.

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
    command: str = "python -m experiments.audit ..."

    def __repr__(self) -> str:
        return text(self)

    @property
    def refuted(self) -> bool:
        """Whether a certificate is."""
        parts = [part[0] for part in (self.mechanisms, self.many_runs, self.one_run) if part]
        return any(row.refuted for rows in parts for row in rows)


def text(report: Audited) -> str:
    """A table for each part, and what it means in words."""
    parts = []
    if report.mechanisms is not None:
        parts.append(_mechanisms(*report.mechanisms, report))
    if report.many_runs is not None:
        parts.append(many_runs_table(*report.many_runs, report.command))
    if report.one_run is not None:
        parts.append(one_run_table(*report.one_run, report.command))
    if report.inferred is not None:
        parts.append(_inferred(report.inferred))
    return "\n\n".join("\n".join(lines) for lines in parts)


def _mechanisms(rows: Sequence[Row], bare: Sequence[Unaudited], report: Audited) -> list[str]:
    lines = [
        "The mechanism: draws of what the certificate takes a view to see, of a unit in the worst direction"
    ]
    table = [[*SAID, "by counts", "as Gaussian", "draws", "rounds"]]
    for row in rows:
        done, bounds = row.about, row.audited
        some = f"{done['drawn_rounds']} of {done['rounds']}"
        table.append(
            [
                *said(row),
                f"{bounds['clopper_pearson']:.3g}",
                f"{bounds['gaussian']:.3g}" if bounds["gaussian"] else ABSENT,
                f"{done['draws']:.0e}".replace("e+0", "e"),
                str(done["rounds"]) if done["drawn_rounds"] == done["rounds"] else some,
            ]
        )
    if rows:
        lines += [
            *aligned(table),
            "",
            f"epsilon of all rounds at delta = {report.delta:.3g}; audited: each row wrong with probability 5% at most,"
            " by counts (Clopper-Pearson intervals, for any mechanism; of n draws up to about log n) or as Gaussian "
            "(where nothing but Gaussian noise is random)",
        ]
    most = max((row.about["draws"] for row in rows), default=0)
    lines += verdicts(rows, f"{report.command} --parts mechanism --draws {4 * most}")
    for one in bare:
        lines.append(
            f"{named(one.names)}: certified inf towards every view, nothing to draw: {one.reason}"
        )
        lines += [f"  {one.claim}"] if one.claim else []
    return lines


def _inferred(inferred: Sequence[Inferred]) -> list[str]:
    fprs = inferred[0].seeds[0].fprs
    rows = [["algorithm", "AUC", *(f"TPR at FPR {fpr:g}" for fpr in fprs), "models"]]
    for one in inferred:
        found = np.array([[m.auc, *m.tpr] for m in one.seeds])
        cells = [f"{mean:.3f}" for mean in found.mean(0)]
        if len(found) > 1:
            spread = found.std(0, ddof=1)
            cells = [f"{cell} +- {s:.3f}" for cell, s in zip(cells, spread, strict=True)]
        rows.append([named([one.name]), *cells, str(len(found))])
    return [
        "Membership inference: records of the clients against those of the test set, by their loss",
        *aligned(rows),
        "",
        "mean and standard deviation over the models; a coin has an AUC of 0.5 and a TPR equal to the FPR; near "
        "that, this attack found nothing, which is no proof that there is nothing",
    ]


def as_json(config: str, report: Audited, settings: dict[str, Any]) -> dict[str, Any]:
    """The object that `--json` prints; infinity is the string "inf"."""
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
