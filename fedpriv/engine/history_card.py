"""What a notebook shows of a history: the curve of its main metric, and the epsilon of its rounds beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.core.cards import Card, png_of
from fedpriv.core.terminal_text import printable
from fedpriv.engine.metric_words import in_percent, with_unit
from fedpriv.models.score import main_metric
from fedpriv.privacy import certificate
from fedpriv.privacy.epsilon_words import OF_ONE_MODEL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOUR = "#0072b2"


def card_of(history: Any) -> Card:
    """Of a `History`; where nobody has certified its rounds, how to do so stands in the epsilon's place."""
    evaluations = history.evaluations
    if not evaluations:
        return Card("History", "no evaluation yet", [("seeds", _seeds(history))])
    last = evaluations[-1]
    rows = [(name, _spread(name, values)) for name, values in last.metrics.items()]
    rows += [("seeds", _seeds(history)), ("evaluations", str(len(evaluations)))]
    rows.append(("sent per client", f"{last.uplink_mb.mean():.4g} MB"))
    picture = (png_of(_curve(history)), "the curve by round") if len(evaluations) > 1 else None
    own, notes = history.certificate, list[str]()
    if own is None:
        notes.append(
            "Its epsilon: not certified here. fp.certify(algorithm, params, federation, rounds, delta) proves one, of "
            f"all rounds that were planned: {last.round}, or more if on_evaluation ended them. "
            "fp.simulate(..., delta=...) keeps it beside the curve."
        )
    elif len(history.seeds) > 1:
        notes.append(
            f"The epsilon is {OF_ONE_MODEL}; the numbers above are of {len(history.seeds)}."
        )
    if history.not_covered:
        names = ", ".join(history.not_covered)
        notes.append(
            f"No certificate covers the choice of the last round, which saw private numbers: {names}."
        )
    beside = [] if own is None else [certificate.card_of(own)]
    return Card("History", f"{last.round} rounds", rows, (), picture, notes, beside=beside)


def _seeds(history: Any) -> str:
    seeds = history.seeds
    return ", ".join(map(str, seeds)) if len(seeds) <= 8 else f"{len(seeds)} seeds"


def _spread(name: str, values: np.ndarray) -> str:
    """Mean and standard deviation over the seeds."""
    unit, scale = (" %", 100) if in_percent(name) else ("", 1)
    mean = f"{scale * values.mean():.4g}"
    return f"{mean} ± {scale * values.std(ddof=1):.2g}{unit}" if len(values) > 1 else mean + unit


def _curve(history: Any) -> Figure:
    """The main metric by round: mean over the seeds, band of one standard deviation."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    metric = main_metric([*history.evaluations[0].metrics])
    values = history.metric(metric) * (100 if in_percent(metric) else 1)
    figure = Figure(figsize=(4.2, 2.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    mean = values.mean(1)
    axes.plot(history.rounds, mean, color=COLOUR, marker="o" * (len(mean) < 30), markersize=3)
    if values.shape[1] > 1:
        std = values.std(1, ddof=1)
        axes.fill_between(history.rounds, mean - std, mean + std, color=COLOUR, alpha=0.2)
    axes.set_xlabel("round", parse_math=False)
    axes.set_ylabel(f"test {printable(with_unit(metric))}", parse_math=False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    return figure
