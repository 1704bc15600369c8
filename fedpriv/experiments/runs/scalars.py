"""A record as numbers with names, as TensorBoard, W&B and MLflow want it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedpriv.core.json_values import MARK


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """A record as numbers with names: means over the seeds, deviations, and epsilons that say what they are of.

    What no epsilon covers, if the record has it, has a name that says so.

    `epsilon/certified/VIEW/UNIT/ADJACENCY`, likewise `epsilon/claimed/...`; one that is infinite is left out.
    """
    return dict(_scalars(record))


def _scalars(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    spreads = dict(record["metrics"])
    for part in ("metrics_not_private", "diagnostics_not_private"):
        spreads |= {f"{part}/{name}": spread for name, spread in record.get(part, {}).items()}
    for name, spread in spreads.items():
        yield name, float(spread["mean"])
        if spread["std"] is not None:
            yield f"{name}/std", float(spread["std"])
    for name in ("uplink_mb_per_client", "downlink_mb_per_client", "seconds"):
        if (marked := f"{name}{MARK}") in record:
            yield marked, float(record[marked])
    for kind, about in record["privacy"].items():
        if about and about["epsilon"] not in ("inf", "nan"):
            tag = (about[field] for field in ("view", "unit", "relation"))
            yield "/".join(["epsilon", kind, *tag]), float(about["epsilon"])
