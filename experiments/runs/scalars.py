"""A line of metrics.jsonl as numbers with names, as TensorBoard and W&B want it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """A record as numbers with names: means over the seeds, deviations, and epsilons that say what they are of.

    `epsilon/certified/VIEW/UNIT/ADJACENCY`, likewise `epsilon/claimed/...`; one that is infinite is left out.
    """
    return dict(_scalars(record))


def _scalars(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    spreads = dict(record["metrics"])
    diagnostics = record["diagnostics_not_private"].items()
    spreads |= {f"diagnostics_not_private/{name}": spread for name, spread in diagnostics}
    for name, spread in spreads.items():
        yield name, float(spread["mean"])
        if spread["std"] is not None:
            yield f"{name}/std", float(spread["std"])
    for name in ("uplink_mb_per_client", "downlink_mb_per_client", "seconds"):
        yield name, float(record[name])
    for kind, about in record["privacy"].items():
        if about and about["epsilon"] not in ("inf", "nan"):
            tag = (about[field] for field in ("view", "unit", "relation"))
            yield "/".join(["epsilon", kind, *tag]), float(about["epsilon"])
