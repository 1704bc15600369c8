"""What a config costs, as text: what was solved for, a table for each account, and what the ledger notes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedpriv.core.terminal_text import wrapped
from fedpriv.experiments.accounting.cost import Costs, table
from fedpriv.experiments.base.formats import named


def text(cost: Costs, width: int) -> str:
    """What `experiments.privacy` prints; `width` in characters, of its prose."""
    blocks = [_solution(cost.solved)] if cost.solved else []
    blocks += [f"noise for the target: {_noise(cost)}"] if cost.noise else []
    blocks += [_of_groups(name, fields) for name, fields in cost.groups.items()]
    blocks += [f"note: {note}" for note in cost.ledger.notes]
    for account in cost.accounts:
        claims = account.claim is not None and math.isfinite(account.claim.epsilon)
        if account.private or claims:
            blocks.append(_prose_wrapped(table(account, cost.ledger.delta), width))
        else:
            why = account.certificates[0].assumptions[0]
            blocks.append(f"{', '.join(account.labels)}: epsilon = inf for every view; {why}")
    return "\n\n".join(blocks) + "\n"


def notes(cost: Costs) -> list[str]:
    """The notes of a cost: the ledger's, and which accounts the object of `as_json` leaves out."""
    others = [" ".join(account.names) for account in cost.accounts[1:]]
    left_out = [f"other numbers: {names} (ask with --algorithms {names})" for names in others]
    return [*cost.ledger.notes, *left_out]


def _noise(cost: Costs) -> str:
    return ", ".join(f"{name} {noise:.6g}" for name, noise in cost.noise.items())


def _of_groups(name: str, fields: Mapping[str, dict[str, float]]) -> str:
    said = (f"{field} {named(each)}" for field, each in fields.items())
    return f"for the groups of {name}: {'; '.join(said)}"


def _solution(solved: dict[str, Any]) -> str:
    adjacency = solved["relation"].replace("_", "-")
    honest = f", honest = {solved['honest']:g}" if solved["honest"] < 1 else ""
    honest += f", the best of {solved['best_of']:g} runs" if solved["best_of"] > 1 else ""
    means = f"{solved['unit']} level, {solved['view']}, {adjacency} adjacency, delta = {solved['delta']:.3g}{honest}"
    said = (
        f"{solved['for']} for {solved['by']} epsilon {solved['target_epsilon']:g} ({means}): {solved['value']:.6g}, "
        f"which costs {solved['epsilon']:.4g}"
    )
    if solved["by"] != "certified":
        said += "\nsolved by the claim; the certificates below may be larger"
    return said


def _prose_wrapped(text: str, width: int) -> str:
    """A table's columns stay as wide as they are."""
    lines = (x if "  " in x.strip() else wrapped(x, width) for x in text.splitlines())
    return "\n".join(lines)
