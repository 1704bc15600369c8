"""Part of experiments.audit: what was found, as tables with words below them, and as an object."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.audit_mechanisms import Audited, Undrawn
from experiments.audit_training import Canaried, Inferred, Skipped
from experiments.ledger import claimed
from experiments.plain import plain
from experiments.show import NAMES, columns, epsilon
from fedpriv.privacy import Certificate, Claim


@dataclass(frozen=True)
class Report:
    """All that was asked for; `None` where it was not.

    Attributes:
      delta: of the config.
    """

    delta: float
    mechanisms: Sequence[Audited | Undrawn] | None = None
    runs: Sequence[Canaried | Skipped] | None = None
    inferred: Sequence[Inferred] | None = None

    @property
    def drawn(self) -> list[Audited]:
        return [row for row in self.mechanisms or () if isinstance(row, Audited)]

    @property
    def undrawn(self) -> list[Undrawn]:
        return [row for row in self.mechanisms or () if isinstance(row, Undrawn)]

    @property
    def trained(self) -> list[Canaried]:
        return [row for row in self.runs or () if isinstance(row, Canaried)]

    @property
    def skipped(self) -> list[Skipped]:
        return [row for row in self.runs or () if isinstance(row, Skipped)]

    @property
    def refuted(self) -> bool:
        """Whether a certificate is."""
        return any(row.refuted for row in [*self.drawn, *self.trained])


def text(report: Report) -> str:
    """Three tables, and what they mean in words."""
    parts = []
    if report.mechanisms is not None:
        parts.append(_mechanisms(report))
    if report.runs is not None:
        parts.append(_runs(report.trained, report.skipped))
    if report.inferred is not None:
        parts.append(_inferred(report.inferred))
    return "\n\n".join(parts)


def _mechanisms(report: Report) -> str:
    head = ["algorithm", "view", "neighbours", "claimed", "certified", "audited"]
    rows = [[*head, "by counts", "as Gaussian", "draws", "rounds"]]
    for one in report.drawn:
        bounds = one.bounds
        rounds = f"{one.drawn_rounds} of {one.rounds}"
        rows.append(
            [
                *_said(one.names, one.views, one.claim, one.certificate),
                f">= {one.least:.3g}",
                f"{bounds.clopper_pearson:.3g}",
                f"{bounds.gaussian:.3g}" if bounds.gaussian else "-",
                f"{one.draws:.0e}".replace("e+0", "e"),
                str(one.rounds) if one.drawn_rounds == one.rounds else rounds,
            ]
        )
    lines = [
        "1. The mechanism: draws of what the certificate takes a view to see, of a unit in the worst direction"
    ]
    if report.drawn:
        lines += [*columns(rows), ""]
        lines.append(
            f"epsilon of all rounds at delta = {report.delta:.3g}; audited: each row wrong with probability 5% at most,"
            " by counts (Clopper-Pearson intervals, for any mechanism; of n draws up to about log n) or as Gaussian "
            "(where nothing but Gaussian noise is random)"
        )
    lines += _verdicts([(_who(one.names, one.views), one) for one in report.drawn])
    for bare in report.undrawn:
        lines.append(
            f"{_named(bare.names)}: certified inf towards every view, nothing to draw: {bare.reason}"
        )
        if bare.claim:
            lines.append(f"  {bare.claim}")
    return "\n".join(lines)


def _runs(runs: Sequence[Canaried], skipped: Sequence[Skipped]) -> str:
    lines = ["2. Training runs: canaries with random directions, each there by a fair coin"]
    lines += [f"{_named([one.name])}: {one.reason}" for one in skipped]
    if not runs:
        nothing = "no algorithm adds noise to what its models or sums show"
        return "\n".join(lines if skipped else [*lines, nothing])
    head = ["algorithm", "view", "neighbours", "claimed", "certified", "audited", "estimate"]
    rows = [[*head, "delta", "canaries", "runs"]]
    for one in runs:
        rows.append(
            [
                *_said([one.name], [one.certificate.view], one.claim, one.certificate),
                f">= {one.least:.3g}",
                f"{one.estimate:.3g} (no bound)",
                f"{one.certificate.delta:.2g}",
                str(one.canaries),
                str(one.runs),
            ]
        )
    lines += [*columns(rows), ""]
    lines.append(
        "audited: by guesses of who was there, from the models' moves along each canary's direction, each row wrong "
        "with probability 5% at most; estimate: of the average canary, as if scores were normal: no bound, it scatters "
        "and is expected to be above small epsilons, which refutes nothing"
    )
    found = [(_who([one.name], [one.certificate.view]), one) for one in runs]
    for who, one in found:
        if one.estimate > one.certificate.epsilon >= one.least:
            lines.append(
                f"{who}: the estimate, {one.estimate:.3g}, is above the certificate and does not refute it: the bound "
                f"that would is {one.least:.3g}"
            )
    return "\n".join([*lines, *_verdicts(found)])


def _inferred(inferred: Sequence[Inferred]) -> str:
    fprs = inferred[0].seeds[0].fprs
    rows = [["algorithm", "AUC", *(f"TPR at FPR {fpr:g}" for fpr in fprs), "models"]]
    for one in inferred:
        found = np.array([[m.auc, *m.tpr] for m in one.seeds])
        spread = found.std(0, ddof=1) if len(found) > 1 else np.full(found.shape[1], np.nan)
        cells = [f"{a:.3f} +- {s:.3f}" for a, s in zip(found.mean(0), spread, strict=True)]
        rows.append(
            [_named([one.name]), *(c.replace(" +- nan", "") for c in cells), str(len(found))]
        )
    return "\n".join(
        [
            "3. Membership inference: records of the clients against those of the test set, by their loss",
            *columns(rows),
            "",
            "mean and standard deviation over the models; a coin has an AUC of 0.5 and a TPR equal to the FPR; near "
            "that, this attack found nothing, which is no proof that there is nothing",
        ]
    )


def _named(names: Sequence[str]) -> str:
    return ", ".join(NAMES.get(name, name) for name in names)


def _who(names: Sequence[str], views: Sequence[str]) -> str:
    return f"{_named(names)} [{', '.join(views)}]"


def _said(
    names: Sequence[str], views: Sequence[str], claim: Claim | None, certificate: Certificate
) -> list[str]:
    return [
        _named(names),
        ", ".join(views) if len(views) < 3 else "all",
        f"{certificate.unit}, {certificate.relation.replace('_', '-')}",
        claimed(claim, views),
        epsilon(plain(certificate.epsilon)),
    ]


def _verdicts(found: Sequence[tuple[str, Audited | Canaried]]) -> list[str]:
    """In words: what is refuted, which audits have no power, why a certificate is infinite."""
    lines = []
    for who, one in found:
        if one.refuted:
            lines.append(f"{who}: THE CERTIFICATE IS REFUTED, which is a bug; please report it")
        if one.claim_refuted:
            by_step = one.certificate.unit == "record" and isinstance(one, Audited)
            seen = ", for whoever sees every noisy step" if by_step else ""
            lines.append(f"{who}: REFUTED{seen}, epsilon is at least {one.least:.3g}: {one.claim}")
        if one.powerless:
            lines.append(
                f"{who}: no power: less than a tenth seen of what may be there, which speaks neither for nor against it"
            )
        if math.isinf(one.certificate.epsilon):
            lines.append(f"{who}: certified inf: {'; '.join(one.certificate.assumptions)}")
    if any(one.claim is not None and not one.claim.sound for _, one in found):
        lines.append("(*) not proved for this run: see python -m experiments.privacy")
    return lines


def as_json(config: str, report: Report, settings: dict[str, Any]) -> dict[str, Any]:
    """The object that `--json` prints; infinity is the string "inf"."""
    found: dict[str, Any] = {"config": config, "delta": report.delta, **settings}
    if report.mechanisms is not None:
        found["mechanisms"] = [
            {
                "algorithms": one.names,
                "views": one.views,
                "rounds": one.rounds,
                "drawn_rounds": one.drawn_rounds,
                "draws": one.draws,
                "claimed": one.claim,
                "certified": one.certificate,
                "audited": {"least": one.least, **one.bounds._asdict()},
                **_judged(one),
            }
            for one in report.drawn
        ]
        found["nothing_to_draw"] = [bare._asdict() for bare in report.undrawn]
    if report.runs is not None:
        found["runs"] = [
            {
                "algorithm": one.name,
                "canaries": one.canaries,
                "seeds": one.runs,
                "claimed": one.claim,
                "certified": one.certificate,
                "audited": {"least": one.least, "significance": 0.05, "estimate": one.estimate},
                **_judged(one),
            }
            for one in report.trained
        ]
        found["not_run"] = [one._asdict() for one in report.skipped]
    if report.inferred is not None:
        found["membership"] = [
            {"algorithm": one.name, "seeds": [m._asdict() for m in one.seeds]}
            for one in report.inferred
        ]
    return plain(found)


def _judged(one: Audited | Canaried) -> dict[str, bool]:
    return {
        "claim_refuted": one.claim_refuted,
        "certificate_refuted": one.refuted,
        "powerless": one.powerless,
    }
