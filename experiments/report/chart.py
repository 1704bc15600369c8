"""A picture as inline SVG: lines through the means, bands of one standard deviation, axes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from experiments.report import axis
from experiments.report.axis import Axis
from experiments.report.curves import Chart, Curve
from experiments.report.markup import Element, element

WIDTH = 400
LEFT, RIGHT, TOP, BOTTOM = 56, 388, 10, 246
# An axis is logarithmic where a linear one would squeeze a whole curve (x) or the ends of most (y).
FAR_ENDS, FAR_VALUES = 4, 100
MOST_MARKERS = 40  # on a line; more would hide it

Point = tuple[float, float, float | None]


def figure(chart: Chart, key: str) -> Element:
    """`chart` with its title and caption; `key` is unique on the page."""
    heading = element("h3", chart.title, id=f"{key}-title")
    if not chart.curves:
        drawn: Element = element("p", "Nothing to draw.", class_="nothing")
    else:
        drawn = _svg(chart, key)
    lines = [element("p", said) for said in chart.caption]
    return element("figure", heading, drawn, element("figcaption", lines) if lines else None)


def _svg(chart: Chart, key: str) -> Element:
    x, y = _axes(chart)
    clip = element("clipPath", id=f"{key}-clip")
    clip.append(element("rect", x=LEFT, y=TOP - 4, width=RIGHT - LEFT + 4, height=BOTTOM - TOP + 8))
    inside = element("g", clip_path=f"url(#{key}-clip)")
    bands = [_band(curve, x, y) for curve in chart.curves]
    lines = [_series(curve, x, y, chart.title) for curve in chart.curves]
    inside.extend([*(band for band in bands if band is not None), *lines])
    return element(
        "svg",
        element("desc", _described(chart), id=f"{key}-desc"),
        element("defs", clip),
        _grid(x, y),
        _labels(chart, x, y),
        inside,
        class_="chart",
        viewBox=f"0 0 {WIDTH} {BOTTOM + 27 + 15 * len(chart.x_label)}",
        role="img",
        aria_labelledby=f"{key}-title",
        aria_describedby=f"{key}-desc",
    )


def _axes(chart: Chart) -> tuple[Axis, Axis]:
    points = [p for curve in chart.curves for p in curve.points if _drawable(p)]
    bands = [mean + sign * std for _, mean, std in points if std for sign in (-1, 1)]
    ends = [max(at for at, _, _ in curve.points if math.isfinite(at)) for curve in chart.curves]
    every, means = [at for at, _, _ in points], [mean for _, mean, _ in points]
    by_round = chart.x_label == ("round",)
    bounded = math.isfinite(chart.bounds[1])
    x = axis.fitted(
        every,
        start=LEFT,
        end=RIGHT,
        log=not by_round and axis.far_apart(every, 1) and axis.far_apart(ends, FAR_ENDS),
        from_zero=True,
    )
    y = axis.fitted(
        means,
        extremes=bands,
        start=BOTTOM,
        end=TOP,
        bounds=chart.bounds,
        log=not bounded and axis.far_apart(means, FAR_VALUES),
    )
    return x._replace(whole=by_round), y


def _drawable(point: Point) -> bool:
    return math.isfinite(point[0]) and math.isfinite(point[1])


def _grid(x: Axis, y: Axis) -> Element:
    made = element("g", class_="grid")
    for tick in x.ticks():
        at = _number(x.at(tick))
        made.append(element("path", d=f"M{at} {TOP}V{BOTTOM}"))
        made.append(element("text", axis.text(tick), x=at, y=BOTTOM + 17, class_="x"))
    for tick in y.ticks():
        at = _number(y.at(tick))
        made.append(element("path", d=f"M{LEFT} {at}H{RIGHT}"))
        made.append(element("text", axis.text(tick), x=LEFT - 6, y=at, dy="0.35em", class_="y"))
    made.append(element("path", d=f"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}", class_="frame"))
    return made


def _labels(chart: Chart, x: Axis, y: Axis) -> Element:
    first, *others = chart.x_label
    lines = [first + (", log scale" if x.log else ""), *others]
    middle = (LEFT + RIGHT) / 2
    made = element("g", class_="labels")
    for number, line in enumerate(lines):
        made.append(element("text", line, x=middle, y=BOTTOM + 35 + 15 * number))
    if y.log:
        made.append(element("text", "log scale", x=LEFT + 6, y=TOP + 10, class_="inside"))
    return made


def _pieces(curve: Curve) -> Iterator[list[Point]]:
    """The points between what is not finite."""
    piece: list[Point] = []
    for point in curve.points:
        if _drawable(point):
            piece.append(point)
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece


def _band(curve: Curve, x: Axis, y: Axis) -> Element | None:
    paths = []
    for piece in _pieces(curve):
        known = [
            (at, mean, std) for at, mean, std in piece if std is not None and math.isfinite(std)
        ]
        if len(known) < 2:
            continue
        upper = [(x.at(at), y.at(mean + std)) for at, mean, std in known]
        lower = [(x.at(at), y.at(mean - std)) for at, mean, std in reversed(known)]
        paths.append(_path([*upper, *lower]) + "Z")
    if not paths:
        return None
    return element("path", d="".join(paths), class_=f"band {_classes(curve)}")


def _series(curve: Curve, x: Axis, y: Axis, title: str) -> Element:
    made = element("g", class_=f"series {_classes(curve)}")
    pieces = list(_pieces(curve))
    d = "".join(_path([(x.at(at), y.at(mean)) for at, mean, _ in piece]) for piece in pieces)
    dash = curve.look.dash or None
    made.append(element("path", d=d, class_="line", stroke_dasharray=dash))
    points = [point for piece in pieces for point in piece]
    step = max(1, math.ceil(len(points) / MOST_MARKERS))
    for at, mean, std in sorted({*points[::step], points[-1]}, key=lambda p: p[0]):
        where = f"translate({_number(x.at(at))} {_number(y.at(mean))})"
        says = f"{curve.look.label}: {_spread(mean, std)} at {at:.4g}"
        marker = element("path", element("title", says), d=curve.look.marker)
        marker.set("transform", where)
        marker.set("class", "marker")
        made.append(marker)
    return made


def _classes(curve: Curve) -> str:
    return f"{curve.look.key} c{curve.look.colour}"


def _path(points: list[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_number(px)} {_number(py)}" for px, py in points)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _spread(mean: float, std: float | None) -> str:
    return f"{mean:.4g}" + ("" if std is None else f" ± {std:.2g}")


def _described(chart: Chart) -> str:
    """What a reader who cannot see the picture is told: where each curve ends."""
    ends = []
    for curve in chart.curves:
        at, mean, std = next(p for p in reversed(curve.points) if _drawable(p))
        ends.append(f"{curve.look.label} ends at {_spread(mean, std)} (x = {at:.4g})")
    return f"{chart.title}, x: {', '.join(chart.x_label)}. {'; '.join(ends)}."
