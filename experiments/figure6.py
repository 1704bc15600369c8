"""Figure 6 of the MSPDQ paper: defence score against splitting factor, bits and epsilon, with accuracy.

python -m experiments.inversion --figure6 --data mnist --victims 20 [--rounds 6]. The defence score is the MSE of iDLG
on one image and step per client, in the first round from a freshly drawn SigmoidLeNet (the setting of iDLG). Accuracy
is of a small CNN trained as in configs/mspdq_mnist.py with one local epoch, and the same splitting, quantization and
noise. Leaves figure6.json and figure6.png. Epsilons here are settings: none of these methods has a finite certificate.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fedpriv as fp
from experiments.inversion_attack import Attacked, attacker, views
from experiments.inversion_views import Reading, Seen, Victims, draw_victims, jopeq, read, split
from experiments.papers import mspdq
from experiments.papers.mspdq import Jopeq, Ldp, Msp, Name
from experiments.plain import plain
from fedpriv.attacks.scores import mse
from fedpriv.core.types import LossFn
from fedpriv.data.datasets import Dataset
from fedpriv.rounds.algorithm import Algorithm

FACTORS = (0.3, 0.5, 0.7)
EPSILONS = (1.0, 3.0, 10.0, 30.0)
EXCHANGES = {8: 10, 6: 20, 4: 30}
"""Bits -> K_t of MSPDQ-FL, those of the paper's Figure 3."""

GROUPS = {
    "printed": ("(a) model splitting, as printed", "splitting factor", FACTORS),
    "columns": ("(b) interval by columns, gamma = 0.3", "splitting factor", FACTORS),
    "noise": ("(c) methods with an eps", "eps (a setting)", EPSILONS),
}
"""Title, what x is, and its values; the second is what trains, see experiments/results/mspdq.md."""


class Point(NamedTuple):
    """One setting of one curve.

    Attributes:
      group: of `GROUPS`.
      curve: its name.
      x: splitting factor, or eps.
      name: how experiments.papers.mspdq calls the algorithm.
      options: fields of `Msp` for training.
      attacked: further arguments of `inversion_views.split`.
      readings: of what the server sees; the first is drawn as the curve, the last dashed.
    """

    group: str
    curve: str
    x: float
    name: Name
    options: dict[str, Any]
    attacked: dict[str, Any]
    readings: tuple[Reading, ...]

    def algorithm(self, loss: LossFn, victims: int) -> Algorithm:
        """For clients with one image each."""
        if self.name == "jopeq":
            return jopeq(loss, victims, self.x)
        return split(loss, victims, **self.attacked)


def points() -> list[Point]:
    """Every setting of the figure."""
    found = [p for x in FACTORS for p in (_msp_fl(x), *_quantized(x))]
    return found + [p for x in EPSILONS for p in _noisy(x)]


def _msp_fl(x: float) -> Point:
    readings: tuple[Reading, ...] = ("first", "last", "transcript")
    return Point("printed", "MSP-FL", x, "msp_fl", {"splitting_factor": x}, {"factor": x}, readings)


def _quantized(x: float) -> list[Point]:
    """As printed, and by columns with a larger gamma."""
    found = []
    for group in ("printed", "columns"):
        for bits, count in EXCHANGES.items():
            own: dict[str, Any] = {"bits": bits, "exchanges": count}
            options = own | {"splitting_factor": x}
            attacked = own | {"factor": x}
            if group == "columns":
                options |= {"interval": "columns", "gamma": 0.3}
                attacked |= {"norm": "columns", "gamma": 0.3}
            curve = f"MSPDQ-FL, {bits} bits"
            readings: tuple[Reading, ...] = ("last", "transcript", "sum")
            found.append(Point(group, curve, x, "mspdq_fl", options, attacked, readings))
    return found


def _noisy(x: float) -> list[Point]:
    readings: tuple[Reading, ...] = ("first", "last", "transcript")
    options = {"ldp": Ldp(epsilon=x)}
    return [
        Point("noise", "JoPEQ", x, "jopeq", {"jopeq": Jopeq(epsilon=x)}, {}, ("update",)),
        Point("noise", "MSP + Lap", x, "msp_laplace", options, {"epsilon": x}, readings),
    ]


def run(options: argparse.Namespace) -> int:
    """The command.

    Raises:
      ValueError, OSError: something given was wrong.
    """
    data = fp.datasets.load(options.data, options.data_dir)
    options.output.mkdir(parents=True, exist_ok=True)
    found = [*defence(data, options), *accuracies(data, options)]
    settings = {n: getattr(options, n) for n in ("data", "victims", "steps", "seed", "rounds")}
    written = plain({"settings": settings, "figure": found})
    (options.output / "figure6.json").write_text(json.dumps(written, indent=2) + "\n")
    picture(found, options.output / "figure6.png")
    print(json.dumps(written, indent=2) if options.json else text(found))
    return 0


def defence(data: Dataset, options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row per point and reading: median, quartiles and mean of the victims' MSE; first that of the mean image."""
    victims = draw_victims(data, options.victims, options.seed)
    attack = attacker(victims, options.steps, options.seed)
    blind = float(np.median(mse(victims.guess, victims.images)))
    rows = [{"what": "mse", "group": "", "curve": "mean image", "x": 0.0, "value": blind}]
    for point in points():
        rows += attacked(point, victims, attack, options.seed)
    return rows


def attacked(
    point: Point, victims: Victims, attack: Callable[..., Attacked], seed: int
) -> list[dict[str, Any]]:
    """A row for each of the point's readings."""
    rows = []
    seen = Seen(point.algorithm(victims.model.loss, len(victims.labels)), point.readings)
    view = views(victims, seen, seed)
    for reading in point.readings:
        made = attack(read(view, victims.params, reading))
        scores = np.asarray(mse(made.images, victims.images))
        low, middle, high = np.quantile(scores, (0.25, 0.5, 0.75)).tolist()
        rows.append(
            {
                "what": "mse",
                "group": point.group,
                "curve": point.curve,
                "x": point.x,
                "reading": reading,
                "drawn": _drawn(point, reading),
                "value": middle,
                "low": low,
                "high": high,
                "mean": float(scores.mean()),
                "cosine": float(np.median(made.cosine)),
                "labels": float(made.labels.mean()),
            }
        )
        _say(rows[-1])
    return rows


def _drawn(point: Point, reading: Reading) -> str | None:
    if reading == point.readings[0]:
        return "solid"
    return "dashed" if reading == point.readings[-1] else None


def accuracies(data: Dataset, options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row per point: test accuracy after so many rounds, None where training diverged; FedAvg first."""
    if options.rounds == 0:
        return []
    shape = data.train["image"].shape[1:]
    model = fp.models.classifier(fp.models.CNN((8, 16), (32,), 10), shape)
    base = Msp(rounds=options.rounds, local_epochs=1, seeds=1)
    settings: list[tuple] = [("", "FedAvg", 0.0, "fed_avg", {})]
    settings += [(p.group, p.curve, p.x, p.name, p.options) for p in points()]
    rows = []
    for group, curve, x, name, own in settings:
        config = replace(base, algorithms=(name,), **own)
        entry = mspdq.experiment(config, data, model).entries[name]
        value = _trained(entry.algorithm, entry.federations[0], data, model, options)
        rows.append({"what": "accuracy", "group": group, "curve": curve, "x": x, "value": value})
        _say(rows[-1])
    return rows


def _trained(
    algorithm: Algorithm,
    federation: fp.Federation,
    data: Dataset,
    model: fp.models.Model,
    options: argparse.Namespace,
) -> float | None:
    try:
        history = fp.simulate(
            algorithm,
            model.init,
            federation,
            data.test,
            score=model.score,
            rounds=options.rounds,
            every=options.rounds,
            seeds=(options.seed,),
            strategy=fp.Strategy(),
        )
    except fp.DivergedError:
        return None
    return float(history.accuracy[-1, 0])


def _say(row: dict[str, Any]) -> None:
    kept = (
        row[name] for name in ("what", "group", "curve", "x", "reading", "value") if name in row
    )
    print(*kept, file=sys.stderr, flush=True)


def text(found: Sequence[dict[str, Any]]) -> str:
    """Markdown tables: a line per curve and reading, a column per setting."""
    lines = []
    for group, (title, label, xs) in GROUPS.items():
        rows = [[title, f"read by; {label}:", *(f"{x:g}" for x in xs)]]
        rows.append(["---"] * len(rows[0]))
        own = [row for row in found if row["group"] == group]
        for curve, reading in dict.fromkeys((row["curve"], row.get("reading")) for row in own):
            line = [r for r in own if (r["curve"], r.get("reading")) == (curve, reading)]
            rows.append([curve, reading or "accuracy", *(_cell(row) for row in line)])
        lines += ["| " + " | ".join(row) + " |" for row in rows] + [""]
    for row in found:
        if not row["group"]:
            lines.append(f"{row['what']} of {row['curve']}: {row['value']:.2g}")
    words = "median over the victims of the MSE of images clipped to [0, 1] (quartiles), cosine of what was read"
    return "\n".join(
        [
            *lines,
            f"{words} and the true update; eps is a setting (JoPEQ: of one value of one message; MSP + Lap: of one "
            "message, client level, replace-one, server view, claimed): certified, every method here has eps = inf",
        ]
    )


def _cell(row: dict[str, Any]) -> str:
    if row["what"] == "accuracy":
        return "diverged" if row["value"] is None else f"{row['value']:.1%}"
    return f"{row['value']:.2g} ({row['low']:.2g} to {row['high']:.2g}), {row['cosine']:.2f}"


def picture(found: Sequence[dict[str, Any]], path: Path) -> None:
    """Defence scores above accuracies; dashed what an attack on the whole transcript leaves."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, len(GROUPS), sharey="row", sharex="col")
    for (group, (title, label, xs)), (above, below) in zip(GROUPS.items(), panels.T, strict=True):
        own = [row for row in found if row["group"] == group]
        for number, curve in enumerate(dict.fromkeys(row["curve"] for row in own)):
            color = f"C{number + {'printed': 0, 'columns': 1, 'noise': 4}[group]}"
            _draw(above, below, [row for row in own if row["curve"] == curve], curve, color)
        for row in found:
            if not row["group"]:
                axes = above if row["what"] == "mse" else below
                axes.axhline(row["value"], color="gray", linestyle=":", label=row["curve"])
        above.set(title=title)
        below.set(xlabel=label, xscale="log" if group == "noise" else "linear")
        below.set_xticks(xs, [f"{x:g}" for x in xs], minor=False)
        below.minorticks_off()
        below.legend(fontsize=8)
    for label, line in (("one message", "o-"), ("whole transcript", "s--")):
        panels[0, 0].plot([], [], line, color="black", label=label)
    panels[0, 0].legend(fontsize=8, loc="center right")
    panels[0, 0].set(ylabel="defence score (MSE)", ylim=(-0.01, 0.5))
    panels[1, 0].set(ylabel="test accuracy", ylim=(0, 1))
    figure.savefig(path, dpi=110)


def _draw(above: Any, below: Any, rows: list[dict[str, Any]], curve: str, color: str) -> None:
    scores = [row for row in rows if row["what"] == "mse"]
    for drawn, line in (("solid", "o-"), ("dashed", "s--")):
        kept = [row for row in scores if row["drawn"] == drawn]
        x, y, low, high = (np.array([r[n] for r in kept]) for n in ("x", "value", "low", "high"))
        above.errorbar(x, y, (y - low, high - y), fmt=line, capsize=2, color=color)
    trained = [row for row in rows if row["what"] == "accuracy"]
    values = [np.nan if row["value"] is None else row["value"] for row in trained]
    below.plot([row["x"] for row in trained], values, "o-", label=curve, color=color)
