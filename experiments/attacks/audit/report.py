"""`Audited`, all that an audit has found, and how it is written: tables with words below them, or JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.accounting.cost import claimed
from experiments.attacks.audit.row import Row, Unaudited
from experiments.attacks.audit.training import Inferred
from experiments.base.formats import NAMES, aligned, epsilon, hyphenated
from experiments.base.json_values import plain

SAID = ["algorithm", "view", "neighbours", "claimed", "certified", "audited"]


@dataclass(frozen=True)
class Audited:
    """All that was asked for; `None` where it was not.

    Attributes:
      delta: of the config.
      mechanisms, runs: what was audited, and what could not be.
    """

    delta: float
    mechanisms: tuple[Sequence[Row], Sequence[Unaudited]] | None = None
    runs: tuple[Sequence[Row], Sequence[Unaudited]] | None = None
    inferred: Sequence[Inferred] | None = None

    @property
    def refuted(self) -> bool:
        """Whether a certificate is."""
        parts = [part[0] for part in (self.mechanisms, self.runs) if part]
        return any(row.refuted for rows in parts for row in rows)


def text(report: Audited) -> str:
    """Three tables, and what they mean in words."""
    parts = []
    if report.mechanisms is not None:
        parts.append(_mechanisms(*report.mechanisms, report.delta))
    if report.runs is not None:
        parts.append(_runs(*report.runs))
    if report.inferred is not None:
        parts.append(_inferred(report.inferred))
    return "\n\n".join("\n".join(lines) for lines in parts)


def _mechanisms(rows: Sequence[Row], bare: Sequence[Unaudited], delta: float) -> list[str]:
    lines = [
        "1. The mechanism: draws of what the certificate takes a view to see, of a unit in the worst direction"
    ]
    table = [[*SAID, "by counts", "as Gaussian", "draws", "rounds"]]
    for row in rows:
        done, bounds = row.about, row.audited
        some = f"{done['drawn_rounds']} of {done['rounds']}"
        table.append(
            [
                *_said(row),
                f"{bounds['clopper_pearson']:.3g}",
                f"{bounds['gaussian']:.3g}" if bounds["gaussian"] else "-",
                f"{done['draws']:.0e}".replace("e+0", "e"),
                str(done["rounds"]) if done["drawn_rounds"] == done["rounds"] else some,
            ]
        )
    if rows:
        lines += [
            *aligned(table),
            "",
            f"epsilon of all rounds at delta = {delta:.3g}; audited: each row wrong with probability 5% at most,"
            " by counts (Clopper-Pearson intervals, for any mechanism; of n draws up to about log n) or as Gaussian "
            "(where nothing but Gaussian noise is random)",
        ]
    lines += _verdicts(rows)
    for one in bare:
        lines.append(
            f"{_named(one.names)}: certified inf towards every view, nothing to draw: {one.reason}"
        )
        lines += [f"  {one.claim}"] if one.claim else []
    return lines


def _runs(rows: Sequence[Row], skipped: Sequence[Unaudited]) -> list[str]:
    lines = ["2. Training runs: canaries with random directions, each there by a fair coin"]
    lines += [f"{_named(one.names)}: {one.reason}" for one in skipped]
    if not rows:
        nothing = "no algorithm adds noise to what its models or sums show"
        return lines if skipped else [*lines, nothing]
    table = [[*SAID, "estimate", "delta", "canaries", "runs"]]
    for row in rows:
        estimate = f"{row.audited['estimate']:.3g} (no bound)"
        done = [str(row.about[name]) for name in ("canaries", "seeds")]
        table.append([*_said(row), estimate, f"{row.certificate.delta:.2g}", *done])
    lines += [
        *aligned(table),
        "",
        "audited: by guesses of who was there, from the models' moves along each canary's direction, each row wrong "
        "with probability 5% at most; estimate: of the average canary, as if scores were normal: no bound, it scatters "
        "and is expected to be above small epsilons, which refutes nothing",
    ]
    for row in rows:
        if row.audited["estimate"] > row.certificate.epsilon >= row.least:
            lines.append(
                f"{_who(row)}: the estimate, {row.audited['estimate']:.3g}, is above the certificate and does not "
                f"refute it: the bound that would is {row.least:.3g}"
            )
    return lines + _verdicts(rows)


def _inferred(inferred: Sequence[Inferred]) -> list[str]:
    fprs = inferred[0].seeds[0].fprs
    rows = [["algorithm", "AUC", *(f"TPR at FPR {fpr:g}" for fpr in fprs), "models"]]
    for one in inferred:
        found = np.array([[m.auc, *m.tpr] for m in one.seeds])
        cells = [f"{mean:.3f}" for mean in found.mean(0)]
        if len(found) > 1:
            spread = found.std(0, ddof=1)
            cells = [f"{cell} +- {s:.3f}" for cell, s in zip(cells, spread, strict=True)]
        rows.append([_named([one.name]), *cells, str(len(found))])
    return [
        "3. Membership inference: records of the clients against those of the test set, by their loss",
        *aligned(rows),
        "",
        "mean and standard deviation over the models; a coin has an AUC of 0.5 and a TPR equal to the FPR; near "
        "that, this attack found nothing, which is no proof that there is nothing",
    ]


def _named(names: Sequence[str]) -> str:
    return ", ".join(NAMES.get(name, name) for name in names)


def _who(row: Row) -> str:
    return f"{_named(row.names)} [{', '.join(row.views)}]"


def _said(row: Row) -> list[str]:
    """The cells of `SAID`."""
    certificate = row.certificate
    return [
        _named(row.names),
        ", ".join(row.views) if len(row.views) < 3 else "all",
        f"{certificate.unit}, {hyphenated(certificate.relation)}",
        claimed(row.claim, row.views),
        epsilon(plain(certificate.epsilon)),
        f">= {row.least:.3g}",
    ]


def _verdicts(rows: Sequence[Row]) -> list[str]:
    """In words: what is refuted, which audits have no power, why a certificate is infinite."""
    lines = []
    for row in rows:
        who = _who(row)
        if row.refuted:
            lines.append(f"{who}: THE CERTIFICATE IS REFUTED, which is a bug; please report it")
        if row.claim_refuted:
            by_step = row.certificate.unit == "record" and "draws" in row.about
            seen = ", for whoever sees every noisy step" if by_step else ""
            lines.append(f"{who}: REFUTED{seen}, epsilon is at least {row.least:.3g}: {row.claim}")
        if row.powerless:
            lines.append(
                f"{who}: no power: less than a tenth seen of what may be there, which speaks neither for nor against it"
            )
        if math.isinf(row.certificate.epsilon):
            lines.append(f"{who}: certified inf: {'; '.join(row.certificate.assumptions)}")
    if any(row.claim is not None and not row.claim.sound for row in rows):
        lines.append("(*) not proved for this run: see python -m experiments.privacy")
    return lines


def as_json(config: str, report: Audited, settings: dict[str, Any]) -> dict[str, Any]:
    """The object that `--json` prints; infinity is the string "inf"."""
    found: dict[str, Any] = {"config": config, "delta": report.delta, **settings}
    if report.mechanisms is not None:
        rows, bare = report.mechanisms
        named = ({"algorithms": row.names, "views": row.views} for row in rows)
        found["mechanisms"] = [own | _as_json(row) for own, row in zip(named, rows, strict=True)]
        found["nothing_to_draw"] = [one._asdict() for one in bare]
    if report.runs is not None:
        rows, skipped = report.runs
        found["runs"] = [{"algorithm": row.names[0]} | _as_json(row) for row in rows]
        found["not_run"] = [{"name": one.names[0], "reason": one.reason} for one in skipped]
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
        "audited": {"least": row.least, **row.audited},
        "claim_refuted": row.claim_refuted,
        "certificate_refuted": row.refuted,
        "powerless": row.powerless,
    }
