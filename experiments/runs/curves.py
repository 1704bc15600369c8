"""What a run recorded at its evaluations, as one tidy frame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.runs.contents import Line

if TYPE_CHECKING:
    import pandas

OF_LINE = ("algorithm", "round", "epsilon", "delta", "unit", "view", "adjacency", "basis")
COLUMNS = (*OF_LINE[:2], "metric", "seed", "value", "uplink_mb", "downlink_mb", *OF_LINE[2:])


def frame(lines: Iterable[Line]) -> pandas.DataFrame:
    """Evaluations as a frame: a row for each line, metric and seed; columns are `COLUMNS`."""
    import pandas

    once: dict[str, list[Any]] = {name: [] for name in OF_LINE}
    counts, found = list[int](), dict[str, list[Any]]()
    found |= {name: [] for name in COLUMNS if name not in OF_LINE}
    for line in lines:
        spreads, seeds = line.metrics | line.diagnostics_not_private, line.seeds
        c = line.privacy.certified
        own = (line.algorithm, line.round, c.epsilon, c.delta, c.unit, c.view, c.relation, c.basis)
        for name, value in zip(OF_LINE, own, strict=True):
            once[name].append(value)
        counts.append(0)
        for metric, spread in spreads.items():
            several = len(spread.per_seed)
            counts[-1] += several
            found["metric"] += [metric] * several
            found["seed"] += range(several)
            found["value"] += spread.per_seed
            for way in ("uplink", "downlink"):
                mean = getattr(line, f"{way}_mb_per_client")
                each = line.traffic_mb_per_seed.get(way, (mean,) * seeds)
                found[f"{way}_mb"] += each if several == seeds else (mean,) * several
    of_lines = {name: np.repeat(np.array(each), counts) for name, each in once.items()}
    return pandas.DataFrame({name: (of_lines | found)[name] for name in COLUMNS})
