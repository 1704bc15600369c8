"""What a run recorded at its evaluations, as one tidy frame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.core.json_values import MARK
from fedpriv.experiments.runs.contents import Begun, Line

if TYPE_CHECKING:
    import pandas

OF_LINE = ("algorithm", "round", "epsilon", "delta", "unit", "view", "adjacency", "basis")
TRAFFIC = tuple(f"{way}_mb{MARK}" for way in ("uplink", "downlink"))
COLUMNS = (*OF_LINE[:2], "metric", "seed", "value", *TRAFFIC, *OF_LINE[2:])


def frame(lines: Iterable[Line], begun: Begun) -> pandas.DataFrame:
    """Evaluations as a frame: a row for each line, metric and seed; columns are `COLUMNS`.

    The name of a metric that is not private says so.
    """
    import pandas

    once: dict[str, list[Any]] = {name: [] for name in OF_LINE}
    counts, found = list[int](), dict[str, list[Any]]()
    found |= {name: [] for name in COLUMNS if name not in OF_LINE}
    for line in lines:
        public = begun.public(line.of_score)
        spreads = {public.marked(name): spread for name, spread in line.of_score.items()}
        for name, spread in line.diagnostics_not_private.items():
            shown = public.marked(name)
            spreads[f"{name}{MARK}" if shown in spreads else shown] = spread
        seeds = line.seeds
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
                found[f"{way}_mb{MARK}"] += each if several == seeds else (mean,) * several
    of_lines = {name: np.repeat(np.array(each), counts) for name, each in once.items()}
    return pandas.DataFrame({name: (of_lines | found)[name] for name in COLUMNS})
