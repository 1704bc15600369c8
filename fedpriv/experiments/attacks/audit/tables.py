"""The tables of an audit, and what they mean in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedpriv.core.json_values import plain
from fedpriv.experiments.accounting.cost import claimed
from fedpriv.experiments.attacks.audit.canary import WORST
from fedpriv.experiments.attacks.audit.membership import Inferred
from fedpriv.experiments.attacks.audit.row import Row, Unaudited
from fedpriv.experiments.base.formats import ABSENT, NAMES, aligned, epsilon
from fedpriv.privacy.epsilon_words import hyphenated

SAID = ["algorithm", "view", "neighbours", "claimed", "certified", "audited"]
"""The first cells of every row."""
NOTHING = "no algorithm adds noise to what its models or sums show"
MANY = (
    "audited: at 95 % confidence, each row for itself, by counts (Clopper-Pearson) of guesses from the scores of an "
    "adversary that sees every model and knows all but the canary; last_model: the last model alone, which the "
    "certificate of third_party covers; 1 - 1e-6: at that confidence; exact pair: what the same bound shows of as many "
    "draws of the pair that dominates the run, on average and at least and at most of 20 times, about the limit of an "
    "audit by so many runs; share: of that average; estimate: as if scores were Gaussian, with its interval, no bound; "
    "canary: the mechanism's worst case, or a unit that trains on its own data (natural) or with wrong labels"
)
ONE = (
    "audited: at 95 % confidence, each row for itself, by f-DP of guesses of who was there (Mahloujifar et al. 2025), "
    "for any mechanism; exact pair: what the same bound shows of so many draws of the pair that dominates the run, on "
    "average and at least and at most of 20 times; share: of that average; as Gaussian: by f-DP, a bound where the "
    "trade-off curve is Gaussian; by Steinke et al. 2023; p-value: of so many right guesses if the certificate is "
    "right; estimate: of the average canary, as if scores were Gaussian, with its interval, no bound"
)
STRONGER = 4
"""Times as many runs or draws for whom an audit leaves in doubt."""
AFTER_ONE_RUN = 4000
"""Runs for whom one run leaves in doubt."""


def mechanisms_table(
    rows: Sequence[Row], bare: Sequence[Unaudited], delta: float, command: str
) -> list[str]:
    """Lines of an audit of mechanisms; `command` repeats the audit."""
    lines = [
        "The mechanism: draws of what the certificate takes a view to see, of a unit in the worst direction"
    ]
    if rows:
        head = [*SAID, "by counts", "as Gaussian", "draws", "rounds"]
        lines += [
            *aligned([head, *map(_mechanism_cells, rows)]),
            "",
            f"epsilon of all rounds at delta = {delta:.3g}; audited: each row wrong with probability 5% at most,"
            " by counts (Clopper-Pearson intervals, for any mechanism; of n draws up to about log n) or as Gaussian "
            "(where nothing but Gaussian noise is random)",
        ]
    most = max((row.about["draws"] for row in rows), default=0)
    lines += _verdicts(rows, f"{command} --parts mechanism --draws {STRONGER * most}")
    for one in bare:
        lines.append(
            f"{_named(one.names)}: certified inf towards every view, nothing to draw: {one.reason}"
        )
        lines += [f"  {one.claim}"] if one.claim else []
    return lines


def _mechanism_cells(row: Row) -> list[str]:
    done, bounds = row.about, row.audited
    some = f"{done['drawn_rounds']} of {done['rounds']}"
    return [
        *_said(row),
        f"{bounds['clopper_pearson']:.3g}",
        f"{bounds['gaussian']:.3g}" if bounds["gaussian"] else ABSENT,
        f"{done['draws']:.0e}".replace("e+0", "e"),
        str(done["rounds"]) if done["drawn_rounds"] == done["rounds"] else some,
    ]


def many_runs_table(rows: Sequence[Row], skipped: Sequence[Unaudited], command: str) -> list[str]:
    """As `mechanisms_table`, of an audit by many runs."""
    head = ["1 - 1e-6", "exact pair", "share", "estimate (no bound)", "delta", "runs", "min"]
    lines = ["Many runs: whole trainings on one federation, with a canary by a fair coin"]
    runs = STRONGER * rows[0].about["runs"] if rows else 0
    stronger = f"{command} --parts many_runs --runs {runs}"
    table = [[*SAID, *head, "canary"], *map(_many_runs_cells, rows)]
    return lines + _trainings(rows, skipped, table, MANY, stronger)


def _many_runs_cells(row: Row) -> list[str]:
    done = row.about
    return [
        *_said(row),
        f">= {row.surely:.3g}",
        *_limit(row.audited),
        _estimated(row),
        f"{row.certificate.delta:.2g}",
        str(done["runs"]),
        f"{done['seconds'] / 60:.3g}",
        hyphenated(done["canary"]),
    ]


def one_run_table(rows: Sequence[Row], skipped: Sequence[Unaudited], command: str) -> list[str]:
    """As `mechanisms_table`, of an audit by one run."""
    head = ["exact pair", "share", "as Gaussian", "Steinke et al.", "p-value"]
    head += ["estimate (no bound)", "delta", "canaries", "runs"]
    lines = ["One run: many canaries with random directions, each there by a fair coin"]
    stronger = f"{command} --parts many_runs --runs {AFTER_ONE_RUN}"
    table = [[*SAID, *head], *map(_one_run_cells, rows)]
    return lines + _trainings(rows, skipped, table, ONE, stronger)


def _one_run_cells(row: Row) -> list[str]:
    return [
        *_said(row),
        *_limit(row.audited),
        *(f"{row.audited[name]:.3g}" for name in ("as_gaussian", "steinke", "p_value")),
        _estimated(row),
        f"{row.certificate.delta:.2g}",
        *(str(row.about[name]) for name in ("canaries", "seeds")),
    ]


def _trainings(
    rows: Sequence[Row],
    skipped: Sequence[Unaudited],
    table: list[list[str]],
    legend: str,
    stronger: str,
) -> list[str]:
    """Who was skipped, then the table and its legend, if it has rows."""
    lines = [f"{_named(one.names)}: {one.reason}" for one in skipped]
    if rows:
        return [*lines, *aligned(table), "", legend, *_verdicts(rows, stronger)]
    return lines or [NOTHING]


def membership_table(inferred: Sequence[Inferred]) -> list[str]:
    """Lines on membership inference, for an audit."""
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
        "Membership inference: records of the clients against those of the test set, by their loss",
        *aligned(rows),
        "",
        "mean and standard deviation over the models; a coin has an AUC of 0.5 and a TPR equal to the FPR; near "
        "that, this attack found nothing, which is no proof that there is nothing",
    ]


def _named(names: Sequence[str]) -> str:
    return ", ".join(NAMES.get(name, name) for name in names)


def _who(row: Row) -> str:
    kind = row.about.get("canary", WORST)
    weaker = "" if kind == WORST else f", {kind} canary"
    return f"{_named(row.names)} [{', '.join(row.views)}{weaker}]"


def _said(row: Row) -> list[str]:
    """The cells of `SAID`."""
    certificate = row.certificate
    return [
        _named(row.names),
        ", ".join(row.views) if len(row.views) < 3 else "all",
        f"{certificate.unit}, {hyphenated(certificate.relation)}",
        claimed(row.claim, [*row.views, certificate.view]),
        epsilon(plain(certificate.epsilon)),
        f">= {row.least:.3g}",
    ]


def _limit(found: dict[str, Any]) -> list[str]:
    """The cells of the exact pair and of the share."""
    limits, share = found["limits"], found["share"]
    if not limits:
        return [ABSENT, ABSENT]
    spread = f"{found['limit']:.3g} ({min(limits):.3g}..{max(limits):.3g})"
    return [spread, ABSENT if share is None else f"{100 * share:.0f} %"]


def _estimated(row: Row) -> str:
    """The estimate with its interval; that it is none where its assumption is rejected."""
    about = row.audited["estimate"]
    numbers = f"{about['epsilon']:.3g} ({about['low']:.3g}..{about['high']:.3g})"
    if math.isnan(about["p_value"]):
        return f"{numbers}, assumption not tested"
    return numbers if row.assumption_holds else f"{numbers}, assumption rejected"


def _verdicts(rows: Sequence[Row], stronger: str) -> list[str]:
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
            lines.append(f"{_who(row)}: {what} IS REFUTED{bug}")
        if row.claim_refuted:
            lines.append(f"{_who(row)}: REFUTED{_by_whom(row)}, {_least(row)}: {row.claim}")
        if row.suspicious:
            lines.append(f"SUSPICIOUS: {_above(row)}; stronger test: {stronger}")
        if math.isinf(row.certificate.epsilon):
            lines.append(f"{_who(row)}: certified inf: {'; '.join(row.certificate.assumptions)}")
    if powerless := dict.fromkeys(_who(row) for row in rows if row.powerless):
        lines.append(
            "no power: less than a tenth seen of what may be there, which speaks neither for nor against it: "
            + "; ".join(powerless)
        )
    if any(row.claim is not None and not row.claim.sound for row in rows):
        lines.append("(*) not proved for this run: see fedpriv privacy")
    return lines


def _by_whom(row: Row) -> str:
    return ", for whoever sees every noisy step" if row.certificate.unit == "record" else ""


def _least(row: Row) -> str:
    return f"epsilon is at least {row.least:.3g} (95 %; {row.surely:.3g} at 1 - 1e-6)"


def _above(row: Row) -> str:
    certified = row.certificate.epsilon
    found = f"the bound {row.least:.3g} (95 %)"
    if row.least <= certified:
        found = f"the estimate {_estimated(row)}"
    return f"{_who(row)}: {found} lies above the certificate {certified:.4g} at delta {row.certificate.delta:.2g}"
