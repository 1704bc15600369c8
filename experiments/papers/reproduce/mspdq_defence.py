"""MSPDQ paper, Figure 6: defence score (MSE of iDLG) and accuracy, by splitting factor, bits and epsilon."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.papers.reproduce import figure6
from experiments.papers.reproduce.item import (
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
from experiments.papers.reproduce.mspdq import MNIST, PAPER, lead, training
from experiments.papers.reproduce.picture import Points, panels
from experiments.papers.reproduce.reading import final_accuracy, over_seeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEPS, SEEDS = 300, 3
CLIENTS, VICTIMS = 20, 4
SECRET = 6
"""Clients with secret weights, all attacked; of those of Figure 6 the first ones are."""
FIRST, ALL = "by one message", "by all messages"
ALIKE, SEARCHED = "weights taken to be alike", "weights searched"
MSE, COSINE = "MSE (1e-3)", "cosine with the update"
UNITS = {"value": 1000.0, "cosine": 1.0}
"""Of what `figure6.attacked` gives, per unit of the tables."""

Key = tuple[str, str]
"""Group and curve of `figure6.Point`."""


@cache
def curves() -> dict[Key, list[figure6.Point]]:
    found: dict[Key, list[figure6.Point]] = {}
    for point in [*figure6.points(), *figure6.secret_weights()]:
        found.setdefault((point.group, point.curve), []).append(point)
    return found


@cache
def attack(key: Key) -> Computation:
    """On every point of a curve."""
    return Computation(folder_name("inversion", *key), partial(_attack, key))


def _attack(key: Key, scale: Scale, data_dir: Path | None) -> dict[str, Any]:
    """A scale leaves out seeds, and no images or steps."""
    import fedpriv as fp
    from experiments.attacks.inversion.attack import attacker
    from experiments.attacks.inversion.views import draw_victims
    from fedpriv.attacks.image_scores import mse

    data, rows, blind = fp.datasets.load("mnist", data_dir), list[dict[str, Any]](), list[float]()
    seeds, secret = scale.seeds(SEEDS), key[0] == "weights"
    clients, count = (SECRET, SECRET) if secret else (CLIENTS, VICTIMS)
    for seed in range(seeds):
        drawn = draw_victims(data, clients, seed)
        victims = drawn._replace(images=drawn.images[:count], labels=drawn.labels[:count])
        on = attacker(victims, STEPS, seed)
        rows += [
            row for point in curves()[key] for row in figure6.attacked(point, victims, on, seed)
        ]
        blind.append(float(np.median(mse(victims.guess, victims.images))))
    scaled = {"scaled": f"{seeds} of {SEEDS} seeds of the attack"} if seeds < SEEDS else {}
    return {"rows": rows, "mean_image": blind, "seeds": f"0 to {seeds - 1}", **scaled}


def trained(point: figure6.Point) -> Training:
    """With the same splitting, quantization and noise."""
    own: dict[str, Any] = {}
    for name, given in point.options.items():
        if dataclasses.is_dataclass(given):
            own[f"{name}.epsilon"] = point.x
        else:
            own[name] = given
    return training(MNIST, point.name, **own)


def defence(name: str) -> Item:
    """Every point, and what the paper says of them."""
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


def _cells(key: Key, point: figure6.Point) -> list[Cell]:
    row = _row(key, point.x)
    cells = _scored(row, key, point, {FIRST: 0, ALL: -1} if len(point.readings) > 1 else {FIRST: 0})
    return [*cells, Cell(row, "accuracy (%)", "", (trained(point),), final_accuracy)]


def _scored(row: str, key: Key, point: figure6.Point, columns: Mapping[str, int]) -> list[Cell]:
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
    cells = [_higher(eight, msp, x) for x in figure6.FACTORS]
    cells += [_higher(four, eight, x) for x in figure6.FACTORS]
    cells += [_higher(lap, jopeq, x) for x in figure6.EPSILONS]
    for x in figure6.EPSILONS:
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
    """A panel with the scores of a group: solid by one message, dashed by all."""

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


def _of(group: str) -> dict[Key, list[figure6.Point]]:
    return {key: points for key, points in curves().items() if key[0] == group}


def _x(group: str) -> dict[str, str]:
    if group == "noise":
        return {"xlabel": "eps (a setting)", "xscale": "log"}
    return {"xlabel": "splitting factor", "xscale": "linear"}


KINDS = {"defence": defence, "secret weights": secret_weights}
