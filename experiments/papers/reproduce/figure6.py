"""Figure 6 of the MSPDQ paper: its settings, and the defence scores, MSE of iDLG on one image and step per client.

In the first round from a freshly drawn SigmoidLeNet (the setting of iDLG). Epsilons are settings: none of these methods
has a finite certificate. `python -m experiments.reproduce mspdq fig6` sets the scores beside accuracies; `weights` has
those of MSP-FL with secret weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from experiments.attacks.inversion.attack import Attacked, views
from experiments.attacks.inversion.views import Reading, Seen, Victims, jopeq, read, split, unlike
from experiments.papers.mspdq import Jopeq, Ldp, Name
from fedpriv.attacks.image_scores import mse
from fedpriv.core.types import LossFn
from fedpriv.rounds.algorithm import Algorithm

FACTORS = (0.3, 0.5, 0.7)
EPSILONS = (1.0, 3.0, 10.0, 30.0)
EXCHANGES = {8: 10, 6: 20, 4: 30}
"""Bits -> K_t of MSPDQ-FL, those of the paper's Figure 3."""

BY_SUBMODEL: tuple[Reading, ...] = ("first", "transcript")
QUANTIZED: tuple[Reading, ...] = ("last", "sum")
SECRET: tuple[Reading, ...] = ("transcript", "weights")


class Point(NamedTuple):
    """One setting of one curve.

    Attributes:
      group: "printed", "columns" (interval by columns, gamma = 0.3: what trains, see experiments/results/mspdq.md), by
        splitting factor; "noise", by eps; or "weights", by the number of submodels.
      curve: its name; of "weights" whose they are.
      x: splitting factor, eps, or number of submodels.
      name: how experiments.papers.mspdq calls the algorithm.
      options: fields of `Msp`.
      readings: of what the server sees; first by one message, last by all; of "weights" all by all.
    """

    group: str
    curve: str
    x: float
    name: Name
    options: dict[str, Any]
    readings: tuple[Reading, ...]

    def algorithm(self, loss: LossFn, victims: int) -> Algorithm:
        """For clients with one image each."""
        if self.group == "weights":
            return unlike(loss, victims, int(self.x), self.curve)
        if self.name == "jopeq":
            return jopeq(loss, victims, self.x)
        if self.name == "msp_laplace":
            return split(loss, victims, epsilon=self.x)
        renamed = {"splitting_factor": "factor", "interval": "norm"}
        own = {renamed.get(name, name): value for name, value in self.options.items()}
        return split(loss, victims, **own)


def points() -> list[Point]:
    """Every setting of the figure."""
    found = []
    for x in FACTORS:
        factor = {"splitting_factor": x}
        found.append(Point("printed", "MSP-FL", x, "msp_fl", factor, BY_SUBMODEL))
        for group, more in (("printed", {}), ("columns", {"interval": "columns", "gamma": 0.3})):
            for bits, count in EXCHANGES.items():
                options = {"bits": bits, "exchanges": count, **factor, **more}
                curve = f"MSPDQ-FL, {bits} bits"
                found.append(Point(group, curve, x, "mspdq_fl", options, QUANTIZED))
    for x in EPSILONS:
        given, noise = {"jopeq": Jopeq(epsilon=x)}, {"ldp": Ldp(epsilon=x)}
        found.append(Point("noise", "JoPEQ", x, "jopeq", given, ("update",)))
        found.append(Point("noise", "MSP + Lap", x, "msp_laplace", noise, BY_SUBMODEL))
    return found


def secret_weights() -> list[Point]:
    """MSP-FL whose weights are each client's own, or each submodel's."""
    numbers = {"client": (1, 3), "submodel": (2, 3, 4, 5)}
    return [
        Point("weights", whose, m, "msp_fl", {}, SECRET)
        for whose in numbers
        for m in numbers[whose]
    ]


def attacked(
    point: Point, victims: Victims, attack: Callable[..., Attacked], seed: int
) -> list[dict[str, Any]]:
    """A row for each of the point's readings: median, quartiles and mean of the victims' MSE; medians of the rest.

    Args:
      victims: of whose federation those with an image are attacked, the others take part.
      attack: on them.
    """
    rows, clients = [], victims.federation.num_clients
    view = views(victims, Seen(point.algorithm(victims.model.loss, clients), point.readings), seed)
    for reading in point.readings:
        seen = read(view, victims.params, reading)
        made = attack(seen._replace(update=seen.update[: len(victims.labels)]))
        scores = np.asarray(mse(made.images, victims.images))
        low, middle, high = np.quantile(scores, (0.25, 0.5, 0.75)).tolist()
        spread = {"value": middle, "low": low, "high": high, "mean": float(scores.mean())}
        how = {"cosine": float(np.median(made.cosine)), "labels": float(made.labels.mean())}
        rows.append({"x": point.x, "reading": reading, "seed": seed, **spread, **how})
    return rows
