"""The tables of audits of trainings, and what they mean in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.attacks.audit.row import Row, Unaudited
from experiments.attacks.audit.words import SAID, estimated, named, said, verdicts
from experiments.base.formats import ABSENT, aligned, hyphenated

NOTHING = "no algorithm adds noise to what its models or sums show"
MANY = (
    "audited: at 95 % confidence, each row for itself, by counts (Clopper-Pearson) of guesses from the scores of an "
    "adversary that sees every model and knows all but the canary; last_model: the last model alone, which the "
    "certificate of third_party covers; 1 - 1e-6: at that confidence; exact pair: what the same bound shows of as many "
    "draws of the pair that dominates the run, on average and at least and at most of 20 times, the limit of any audit "
    "by so many runs; share: of that average; estimate: as if scores were Gaussian, with its interval, no bound; "
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
"""Times as many runs for whom an audit leaves in doubt."""
AFTER_ONE_RUN = 4000
"""Runs for whom one run leaves in doubt."""


def many_runs_table(rows: Sequence[Row], skipped: Sequence[Unaudited], command: str) -> list[str]:
    """Lines; `command` repeats the audit."""
    lines = ["Many runs: whole trainings on one federation, with a canary by a fair coin"]
    lines += [f"{named(one.names)}: {one.reason}" for one in skipped]
    if not rows:
        return lines if skipped else [*lines, NOTHING]
    more = ["1 - 1e-6", "exact pair", "share", "estimate (no bound)", "delta", "runs", "min"]
    table = [[*SAID, *more, "canary"], *map(_many_runs_cells, rows)]
    stronger = f"{command} --parts many_runs --runs {STRONGER * rows[0].about['runs']}"
    return [*lines, *aligned(table), "", MANY, *verdicts(rows, stronger)]


def _many_runs_cells(row: Row) -> list[str]:
    done, found = row.about, row.audited
    return [
        *said(row),
        f">= {row.surely:.3g}",
        *_limit(found),
        estimated(row),
        f"{row.certificate.delta:.2g}",
        str(done["runs"]),
        f"{done['seconds'] / 60:.3g}",
        hyphenated(done["canary"]),
    ]


def _limit(found: dict[str, Any]) -> list[str]:
    """The cells of the exact pair and of the share."""
    limits, share = found["limits"], found["share"]
    if not limits:
        return [ABSENT, ABSENT]
    spread = f"{found['limit']:.3g} ({min(limits):.3g}..{max(limits):.3g})"
    return [spread, ABSENT if share is None else f"{100 * share:.0f} %"]


def one_run_table(rows: Sequence[Row], skipped: Sequence[Unaudited], command: str) -> list[str]:
    """As `many_runs_table`."""
    lines = ["One run: many canaries with random directions, each there by a fair coin"]
    lines += [f"{named(one.names)}: {one.reason}" for one in skipped]
    if not rows:
        return lines if skipped else [*lines, NOTHING]
    table = [
        [
            *SAID,
            "exact pair",
            "share",
            "as Gaussian",
            "Steinke et al.",
            "p-value",
            "estimate (no bound)",
            "delta",
            "canaries",
            "runs",
        ]
    ]
    for row in rows:
        done = [str(row.about[name]) for name in ("canaries", "seeds")]
        beside = [f"{row.audited[name]:.3g}" for name in ("as_gaussian", "steinke", "p_value")]
        limit = _limit(row.audited)
        table.append(
            [*said(row), *limit, *beside, estimated(row), f"{row.certificate.delta:.2g}", *done]
        )
    stronger = f"{command} --parts many_runs --runs {AFTER_ONE_RUN}"
    return [*lines, *aligned(table), "", ONE, *verdicts(rows, stronger)]
