"""MSPDQ paper, Figure 6: defence score (MSE of iDLG) and accuracy, by splitting factor, bits and epsilon.

Each attack is on one image and one step, in the first round from a freshly drawn SigmoidLeNet (the setting of iDLG).
Epsilons are settings: none of these methods has a finite certificate. The item `weights` has the scores of MSP-FL with
secret weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedpriv.attacks.image_scores import mse
from fedpriv.core.types import LossFn
from fedpriv.data import datasets
from fedpriv.experiments.attacks.inversion.attack import Attacked, attacker, views
from fedpriv.experiments.attacks.inversion.views import (
    Reading,
    Seen,
    Victims,
    as_read,
    draw_victims,
    jopeq,
    split,
    unlike,
)
from fedpriv.experiments.papers.mspdq import Jopeq, Ldp, Name
from fedpriv.experiments.papers.reproduce.item import (
    Cell,
    Computation,
    Computed,
    Item,
    Results,
    Scale,
    Training,
    Value,
    folder_name,
)
from fedpriv.experiments.papers.reproduce.mspdq import MNIST, PAPER, lead, training
from fedpriv.experiments.papers.reproduce.picture import Points, panels
from fedpriv.experiments.papers.reproduce.reading import final_accuracy, over_seeds
from fedpriv.rounds.algorithm import Algorithm

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FACTORS = (0.3, 0.5, 0.7)
EPSILONS = (1.0, 3.0, 10.0, 30.0)
EXCHANGES = {8: 10, 6: 20, 4: 30}
"""Bits -> K_t of MSPDQ-FL, those of the paper's Figure 3."""

BY_SUBMODEL: tuple[Reading, ...] = ("first", "transcript")
QUANTIZED: tuple[Reading, ...] = ("last", "sum")
UNLIKE: tuple[Reading, ...] = ("transcript", "weights")

STEPS, SEEDS = 300, 3
CLIENTS, VICTIMS = 20, 4
SECRET = 6
"""Clients with secret weights, all attacked; of those of Figure 6 the first ones are."""
FIRST, ALL = "by one message", "by all messages"
ALIKE, SEARCHED = "weights taken to be alike", "weights searched"
MSE, COSINE = "MSE (1e-3)", "cosine with the update"
UNITS = {"value": 1000.0, "cosine": 1.0}
"""Of what `attacked` gives, per unit of the tables."""

Key = tuple[str, str]
"""Group and curve of `Point`."""


class Point(NamedTuple):
    """One setting of one curve of defence scores.

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
    """Every setting of the figure of defence scores."""
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


def secret_points() -> list[Point]:
    """MSP-FL whose weights are each client's own, or each submodel's."""
    numbers = {"client": (1, 3), "submodel": (2, 3, 4, 5)}
    return [
        Point("weights", whose, m, "msp_fl", {}, UNLIKE)
        for whose in numbers
        for m in numbers[whose]
    ]


@cache
def curves() -> dict[Key, list[Point]]:
    found: dict[Key, list[Point]] = {}
    for point in [*points(), *secret_points()]:
        found.setdefault((point.group, point.curve), []).append(point)
    return found


@cache
def attack(key: Key) -> Computation:
    """Attacks every point of a curve of defence scores."""
    return Computation(folder_name("inversion", *key), partial(_attack, key))


def _attack(key: Key, scale: Scale, data_dir: Path | None) -> dict[str, Any]:
    """A scale leaves out seeds, and no images or steps."""
    data, rows, blind = datasets.load("mnist", data_dir), list[dict[str, Any]](), list[float]()
    seeds, secret = scale.seeds(SEEDS), key[0] == "weights"
    clients, count = (SECRET, SECRET) if secret else (CLIENTS, VICTIMS)
    for seed in range(seeds):
        drawn = draw_victims(data, clients, seed)
        victims = drawn._replace(images=drawn.images[:count], labels=drawn.labels[:count])
        on = attacker(victims, STEPS, seed)
        rows += [row for point in curves()[key] for row in attacked(point, victims, on, seed)]
        blind.append(float(np.median(mse(victims.guess, victims.images))))
    scaled = {"scaled": f"{seeds} of {SEEDS} seeds of the attack"} if seeds < SEEDS else {}
    return {"rows": rows, "mean_image": blind, "seeds": f"0 to {seeds - 1}", **scaled}


def attacked(
    point: Point, victims: Victims, attack: Callable[..., Attacked], seed: int
) -> list[dict[str, Any]]:
    """A row of defence scores for each reading: median, quartiles, mean of the victims' MSE; medians of the rest.

    Args:
      victims: of whose federation those with an image are attacked, the others take part.
      attack: on them.
    """
    rows, clients = [], victims.federation.num_clients
    view = views(victims, Seen(point.algorithm(victims.model.loss, clients), point.readings), seed)
    for reading in point.readings:
        seen = as_read(view, victims.params, reading)
        made = attack(seen._replace(update=seen.update[: len(victims.labels)]))
        scores = np.asarray(mse(made.images, victims.images))
        low, middle, high = np.quantile(scores, (0.25, 0.5, 0.75)).tolist()
        spread = {"value": middle, "low": low, "high": high, "mean": float(scores.mean())}
        how = {"cosine": float(np.median(made.cosine)), "labels": float(made.labels.mean())}
        rows.append({"x": point.x, "reading": reading, "seed": seed, **spread, **how})
    return rows


def trained(point: Point) -> Training:
    """The training of a point of defence scores: the same splitting, quantization and noise."""
    own: dict[str, Any] = {}
    for name, given in point.options.items():
        if dataclasses.is_dataclass(given):
            own[f"{name}.epsilon"] = point.x
        else:
            own[name] = given
    return training(MNIST, point.name, **own)


def defence(name: str) -> Item:
    """The figure of defence scores: every point, and what the paper says of them."""
    groups = ((key, point) for key, points in curves().items() for point in points)
    cells = [cell for key, point in groups if key[0] != "weights" for cell in _cells(key, point)]
    row, image = "the mean image, for which nothing need be seen", attack(("printed", "MSP-FL"))
    cells.append(Cell(row, f"{MSE} {FIRST}", "", (image,), _blind))
    drawn = panels([[Scores(x, title) for x, title in _SCORES], [_accuracy(x) for x in _ACCURACY]])
    return PAPER.item(name, [*cells, *_claims()], draw=drawn)


_SCORES = (
    ("printed", "(a) proposed, as printed"),
    ("columns", "(a) by columns, gamma = 0.3"),
    ("noise", "(b) with an eps"),
)
_ACCURACY = (
    ("printed", "(c) proposed, as printed"),
    ("columns", "(c) by columns, gamma = 0.3"),
    ("noise", "(d) with an eps"),
)


def _row(key: Key, x: float) -> str:
    group, curve = key
    how = {"printed": "as printed, splitting factor", "columns": "by columns, splitting factor"}
    return f"{curve}, {how.get(group, 'eps (a setting)')} {x:g}"


def _cells(key: Key, point: Point) -> list[Cell]:
    row = _row(key, point.x)
    cells = _scored(row, key, point, {FIRST: 0, ALL: -1} if len(point.readings) > 1 else {FIRST: 0})
    return [*cells, Cell(row, "accuracy (%)", "", (trained(point),), final_accuracy)]


def _scored(row: str, key: Key, point: Point, columns: Mapping[str, int]) -> list[Cell]:
    """Score and cosine by readings of the point."""
    found = []
    for column, index in columns.items():
        for name, of in ((MSE, "value"), (COSINE, "cosine")):
            read = partial(_score, point.x, point.readings[index], of=of)
            found.append(Cell(row, f"{name} {column}", "", (attack(key),), read))
    return found


def _seeds(x: float, reading: str, run: Computed, of: str = "value") -> np.ndarray:
    rows = run.summary["rows"]
    of_point = [float(r[of]) for r in rows if (r["x"], r["reading"]) == (x, reading)]
    return UNITS[of] * np.array(of_point)


def _score(x: float, reading: str, run: Computed, of: str = "value") -> Value:
    return over_seeds(_seeds(x, reading, run, of))


def _blind(run: Computed) -> Value:
    return over_seeds(UNITS["value"] * np.array(run.summary["mean_image"]))


def secret_weights(name: str) -> Item:
    """What is left of MSP-FL's images to a server that knows neither m nor the weights."""
    cells = []
    for (group, whose), points in curves().items():
        for point in points if group == "weights" else ():
            row = f"m = {point.x:g}, own weights of every {whose}"
            cells += _scored(row, (group, whose), point, {ALIKE: 0, SEARCHED: -1})
    return PAPER.item(name, cells)


def _claims() -> list[Cell]:
    msp, lap, jopeq = ("printed", "MSP-FL"), ("noise", "MSP + Lap"), ("noise", "JoPEQ")
    eight, four = (("printed", f"MSPDQ-FL, {bits} bits") for bits in (8, 4))
    cells = [_higher(eight, msp, x) for x in FACTORS]
    cells += [_higher(four, eight, x) for x in FACTORS]
    cells += [_higher(lap, jopeq, x) for x in EPSILONS]
    for x in EPSILONS:
        row = f"claim: MSP + Lap similar to or above JoPEQ, eps = {x:g}"
        cells.append(lead(row, "above -3", _at(lap, x), _at(jopeq, x)))
    row = "claim: MSP + Lap largely unaffected, eps = 1 against 30"
    cells.append(lead(row, "within 3", _at(lap, 1.0), _at(lap, 30.0)))
    row = "claim: MSPDQ-FL (4 bits, factor 0.3) loses less than JoPEQ (eps = 1)"
    return [*cells, lead(row, "above 0", _at(four, 0.3), _at(jopeq, 1.0))]


def _at(key: Key, x: float) -> Training:
    (point,) = (p for p in curves()[key] if p.x == x)
    return trained(point)


def _higher(one: Key, other: Key, x: float) -> Cell:
    """That the score by one message is."""
    readings = [next(p for p in curves()[key] if p.x == x).readings[0] for key in (one, other)]
    row = f"claim: score of {one[1]} above {other[1]}, {x:g}"
    read = partial(_difference, x, readings)
    return Cell(row, f"difference in {MSE}", "above 0", (attack(one), attack(other)), read)


def _difference(x: float, readings: Sequence[str], one: Computed, other: Computed) -> Value:
    pairs = zip((one, other), readings, strict=True)
    first, second = (_seeds(x, reading, run) for run, reading in pairs)
    return over_seeds(first - second)


@dataclass(frozen=True)
class Scores:
    """A panel with the defence scores of a group: solid by one message, dashed by all."""

    group: str
    title: str

    def draw(self, axes: Axes, results: Results) -> None:
        for number, (key, points) in enumerate(_of(self.group).items()):
            work = attack(key)
            if work not in results:
                continue
            for index, line in ((0, "o-"), (-1, "s--")):
                if index and len(points[0].readings) == 1:
                    continue
                computed: Any = results[work]
                found = [_score(p.x, p.readings[index], computed) for p in points]
                mean, std = [v.mean for v in found], [v.std or 0.0 for v in found]
                label = key[1] + (", all messages" if index else "")
                how: dict[str, Any] = {"color": f"C{number}", "label": label, "capsize": 3}
                axes.errorbar([p.x for p in points], mean, std, fmt=line, **how)
        axes.set(title=self.title, ylabel=f"defence score, {MSE}", **_x(self.group))


def _accuracy(chosen: tuple[str, str]) -> Points:
    group, title = chosen
    lines: Mapping[str, Any] = {
        key[1]: [(p.x, trained(p)) for p in points] for key, points in _of(group).items()
    }
    axis = _x(group)
    return Points(title, lines, final_accuracy, axis["xlabel"], "test accuracy (%)", axis["xscale"])


def _of(group: str) -> dict[Key, list[Point]]:
    return {key: points for key, points in curves().items() if key[0] == group}


def _x(group: str) -> dict[str, str]:
    if group == "noise":
        return {"xlabel": "eps (a setting)", "xscale": "log"}
    return {"xlabel": "splitting factor", "xscale": "linear"}


KINDS = {"defence": defence, "secret weights": secret_weights}
