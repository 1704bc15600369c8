"""Which curves a page has: every measure by round; accuracy and loss by uplink and by epsilon, too."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from experiments.report.looks import Look
from experiments.report.records import Evaluation, Spread
from experiments.report.results import Result, no_epsilon

TITLES = {"accuracy": "Test accuracy (%)", "loss": "Test loss"}


class Curve(NamedTuple):
    """What is drawn of one series.

    Attributes:
      look: how.
      points: (x, mean over the seeds, standard deviation or None); what is not finite is a gap.
    """

    look: Look
    points: list[tuple[float, float, float | None]]


class Chart(NamedTuple):
    """One picture.

    Attributes:
      title: the quantity and what it is drawn by.
      x_label: lines of text below the axis.
      caption: sentences below the picture.
      curves: what is drawn.
      bounds: what y cannot exceed.
    """

    title: str
    x_label: tuple[str, ...]
    caption: tuple[str, ...]
    curves: list[Curve]
    bounds: tuple[float, float] = (-math.inf, math.inf)


Series = Sequence[tuple[Result, Look]]


def charts(series: Series) -> list[list[Chart]]:
    """Rows of pictures: one for accuracy, one for loss, one for everything else that was recorded."""
    rows = [
        [_by_round(series, measure), _by_uplink(series, measure), *_by_epsilon(series, measure)]
        for measure in TITLES
    ]
    own = [name for result, _ in series for line in result.evaluations for name in line.measures]
    further = [_by_round(series, name) for name in dict.fromkeys(own) if name not in TITLES]
    return [row for row in (*rows, further) if row]


def value(line: Evaluation, measure: str) -> Spread | None:
    """As it is shown: accuracy in percent."""
    if measure == "accuracy":
        mean, std, each = line.accuracy
        scaled = tuple(100 * x for x in each)
        return Spread(100 * mean, None if std is None else 100 * std, scaled)
    return line.loss if measure == "loss" else line.measures.get(measure)


def _curve(
    result: Result, look: Look, measure: str, x: Callable[[Evaluation], float]
) -> Curve | None:
    """None where nothing of it can be drawn."""
    found = [(x(line), value(line, measure)) for line in result.evaluations]
    points = [(at, s.mean, s.std) for at, s in found if s is not None]
    drawable = any(math.isfinite(at) and math.isfinite(mean) for at, mean, _ in points)
    return Curve(look, points) if drawable else None


def _chart(
    series: Series,
    measure: str,
    by: str,
    x: Callable[[Evaluation], float],
    x_label: Sequence[str],
    caption: Sequence[str] = (),
) -> Chart:
    curves = [curve for r, look in series if (curve := _curve(r, look, measure, x))]
    bounds = (0.0, 100.0) if measure == "accuracy" else (-math.inf, math.inf)
    title = f"{TITLES.get(measure, measure)} by {by}"
    said = [*caption, *_gaps(curves)]
    return Chart(title, tuple(x_label), tuple(said), curves, bounds)


def _gaps(curves: Sequence[Curve]) -> list[str]:
    lost = sum(not math.isfinite(x + mean) for curve in curves for x, mean, _ in curve.points)
    return [f"{lost} values are not finite and left out."] if lost else []


def _by_round(series: Series, measure: str) -> Chart:
    caption = () if measure in TITLES else ("A diagnostic for you; not private, not released.",)
    return _chart(series, measure, "round", lambda line: float(line.round), ["round"], caption)


def _by_uplink(series: Series, measure: str) -> Chart:
    label = ["uplink per client of the population (MB)"]
    return _chart(series, measure, "uplink", lambda line: line.uplink, label)


def _by_epsilon(series: Series, measure: str) -> Iterator[Chart]:
    """One picture for each meaning that an epsilon has: numbers of different meaning do not compare."""
    meanings: dict[tuple[str, ...], list[tuple[Result, Look]]] = {}
    for result, look in series:
        if any(math.isfinite(line.certified.epsilon) for line in result.evaluations):
            meanings.setdefault(_meaning(result.evaluations[-1]), []).append((result, look))
    left_out = _without_epsilon(series)
    for number, (meaning, having) in enumerate(meanings.items()):
        label = ["certified epsilon, third party", ", ".join(meaning)]
        others = left_out if number == len(meanings) - 1 else []
        yield _chart(
            having, measure, "certified epsilon", lambda x: x.certified.epsilon, label, others
        )
    if not meanings and left_out:
        yield Chart(f"{TITLES[measure]} by certified epsilon", (), tuple(left_out), [])


def _meaning(line: Evaluation) -> tuple[str, ...]:
    about = line.certified
    adjacency = about.relation.replace("_", "-")
    return f"{about.unit} level", adjacency, f"delta {about.delta:.3g}"


def _without_epsilon(series: Series) -> list[str]:
    """A sentence for each reason."""
    reasons: dict[str, list[str]] = {}
    for result, look in series:
        lines = result.evaluations
        if lines and not any(math.isfinite(line.certified.epsilon) for line in lines):
            reasons.setdefault(no_epsilon(lines[-1].certified), []).append(look.label)
    return [
        f"No curve by epsilon, as the certified one (third party) is infinite: {'; '.join(names)} ({reason})."
        for reason, names in reasons.items()
    ]
