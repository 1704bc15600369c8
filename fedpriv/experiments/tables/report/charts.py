"""The page's curves, drawn by matplotlib as inline SVG: mean over the seeds, band of one standard deviation."""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias
from xml.etree import ElementTree

import numpy as np

from fedpriv.engine.metric_words import in_percent
from fedpriv.experiments.runs.contents import Line
from fedpriv.experiments.runs.measured import heading, together
from fedpriv.experiments.tables import plots, thinning
from fedpriv.experiments.tables.plots import COLOURS, DASHES, FAR_ENDS, colours, far, scale
from fedpriv.experiments.tables.report.audits import Errors
from fedpriv.experiments.tables.report.tables import Result, further, measured
from fedpriv.privacy.epsilon_words import meaning_of_epsilon, why_infinite

TEXT, RULE = "#1b1b1b", "#d9d9d9"
# The page's style sheet has lighter colours, by the same numbers, where it is dark.
VARIABLES = {colour: f"var(--c{i})" for i, colour in enumerate(COLOURS)}
VARIABLES |= {TEXT: "var(--text)", RULE: "var(--rule)"}
MARKERS = dict(zip(plots.MARKERS, "●■▲◆▼✚✖", strict=True))  # as text
STYLE = plots.STYLE | {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    "grid.color": RULE,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), TEXT),
    **dict.fromkeys(("xtick.color", "ytick.color"), TEXT),
}
FAR_VALUES = 100  # beyond it a linear axis would squeeze the ends of most curves
LARGEST = 1e100  # what is drawn; an axis beyond overflows
_CONTROLS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


class Series(NamedTuple):
    """How one algorithm of one run is drawn in all pictures; `key` is of its checkbox and of all drawn for it."""

    result: Result
    key: str
    colour: int
    dash: int

    @property
    def marker(self) -> str:
        """As text, for the legend."""
        return MARKERS[plots.look(self.colour, self.dash)["marker"]]

    @property
    def dash_array(self) -> str:
        """For a line of the legend."""
        return " ".join(f"{2 * part:g}" for part in DASHES[self.dash]) or "none"


class Chart(NamedTuple):
    """What one picture shows: `measure` of each series by what `x` reads from its lines."""

    title: str
    measure: str
    series: Sequence[Series]
    x: Callable[[Line], float]
    x_label: str
    caption: Sequence[str] = ()


class Picture(NamedTuple):
    """A chart as the report's page has it.

    Attributes:
      key: unique on the page.
      svg: "" where there is nothing to draw.
    """

    key: str
    title: str
    svg: str
    caption: list[str]


def without_controls(text: str) -> str:
    """Without the characters that neither a page nor a picture may have, or that would reverse the text after them."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def series(found: Sequence[Result], key: str = "s") -> list[Series]:
    """The report's series: an evaluated algorithm keeps its colour, a run its dashes, where there are enough."""
    drawn = [result for result in found if result.lines]
    own = colours(result.algorithm for result in drawn)
    runs = list(dict.fromkeys(result.run.path for result in drawn))
    crossed = 1 < len(own) <= len(COLOURS) and 1 < len(runs) <= len(DASHES)
    made = []
    for number, result in enumerate(drawn):
        place = own[result.algorithm] if len(runs) == 1 else number
        colour, dash = place % len(COLOURS), place // len(COLOURS) % len(DASHES)
        if crossed:
            colour, dash = own[result.algorithm], runs.index(result.run.path)
        made.append(Series(result, f"{key}{number}", colour, dash))
    return made


def pictures(drawn: Sequence[Series], ends: Sequence[Series] = ()) -> list[list[Picture]]:
    """The report's charts in rows: metrics by round, uplink and epsilon; everything else that was recorded by round.

    Args:
      ends: of runs, where these differ in their noise or budget alone: what is drawn by epsilon instead.
    """
    results = [s.result for s in drawn]
    metrics = measured(results)
    said = ["Each point is the end of a run."] if ends else []
    rows = [
        [
            _by_round(drawn, measure),
            _by_uplink(drawn, measure),
            *_by_epsilon(ends or drawn, measure, said),
        ]
        for measure in metrics
    ]
    rows.append([_by_round(drawn, name) for name in further(results)])
    return [
        [_picture(chart, f"chart-{i}-{j}") for j, chart in enumerate(row)]
        for i, row in enumerate(rows)
        if row
    ]


def _heading(drawn: Sequence[Series], measure: str) -> tuple[str, list[str]]:
    """Of a chart, and what has to be said of a number that is not of the test set."""
    public = together(s.result.summary.public for s in drawn)
    if measure in public.of_score:
        said = ["On records of clients; not private, not released."][: public.own_test]
        return f"Test {heading(measure, public)}", said
    if measure in public:
        return measure, []
    return f"{measure}, not private", ["A diagnostic for you; not private, not released."]


def _by_round(drawn: Sequence[Series], measure: str) -> Chart:
    heading, said = _heading(drawn, measure)
    return Chart(f"{heading} by round", measure, drawn, lambda line: line.round, "round", said)


def _by_uplink(drawn: Sequence[Series], measure: str) -> Chart:
    label = "uplink per client of the population (MB)"
    heading, said = _heading(drawn, measure)
    by = f"{heading} by uplink"
    return Chart(by, measure, drawn, lambda line: line.uplink_mb_per_client, label, said)


def _by_epsilon(
    drawn: Sequence[Series], measure: str, caption: Sequence[str] = ()
) -> Iterator[Chart]:
    """One picture for each meaning that an epsilon has: numbers of different meaning do not compare."""
    kinds: dict[str, list[Series]] = {}
    reasons: dict[tuple[str, str], list[str]] = {}
    for s in drawn:
        certified = [line.privacy.certified for line in s.result.lines]
        last = certified[-1]
        view = last.view.replace("_", " ")
        if any(math.isfinite(c.epsilon) for c in certified):
            kinds.setdefault(meaning_of_epsilon(last), []).append(s)
        else:
            why = "; ".join(why_infinite(last)) or "no finite bound"
            reasons.setdefault((view, why), []).append(s.result.label)
    without = [
        f"No curve by epsilon, as the certified one ({view}) is infinite: {'; '.join(names)} ({why})."
        for (view, why), names in reasons.items()
    ]
    heading, about = _heading(drawn, measure)
    title, caption = f"{heading} by certified epsilon", [*about, *caption]
    for number, (kind, having) in enumerate(kinds.items(), 1):
        label = textwrap.fill(f"epsilon: {kind}", 58)
        said = [*caption, *(without if number == len(kinds) else ())]
        yield Chart(title, measure, having, lambda x: x.privacy.certified.epsilon, label, said)
    if without and not kinds:
        yield Chart(title, measure, (), lambda x: x.round, "", without)


def _picture(chart: Chart, key: str) -> Picture:
    curves = [(s, *_points(chart, s)) for s in chart.series]
    curves = [curve for curve in curves if np.isfinite(curve[1]).any()]
    lost = sum(int(np.isnan(x).sum()) for _, x, *_ in curves)
    caption = [*chart.caption, *([f"{lost} values are not finite and left out."] if lost else [])]
    svg = ""
    if less := thinning.said(len(x) for _, x, *_ in curves):
        caption.append(less)
    if curves:
        ends = [f"{s.result.label} ends at {_end(*points)}" for s, *points in curves]
        curves = [(s, *_thinned(x, mean, std)) for s, x, mean, std in curves]
        said = f"{chart.title}. {'; '.join(ends)}."
        svg = _inline(_svg(lambda axes: _draw(axes, chart, curves), key), key, said)
    return Picture(key, chart.title, svg, caption)


Points: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]
"""(x, mean, standard deviation)."""


def _points(chart: Chart, s: Series) -> Points:
    """(x, mean, standard deviation) as they are shown; NaN where one of the first two is not finite, or next to it."""
    factor = 100 if in_percent(chart.measure) else 1
    found = [(chart.x(line), line.metric(chart.measure)) for line in s.result.lines]
    rows = [(x, m.mean, math.nan if m.std is None else m.std) for x, m in found if m]
    x, mean, std = np.array(rows, float).reshape(-1, 3).T
    lost = ~((np.abs(x) < LARGEST) & (np.abs(mean) < LARGEST))
    shown = (x, factor * mean, factor * std)
    x, mean, std = (np.where(lost, np.nan, v) for v in shown)
    return x, mean, std


def _thinned(x: np.ndarray, mean: np.ndarray, std: np.ndarray) -> Points:
    kept = thinning.drawn(mean)
    return x[kept], mean[kept], std[kept]


def _end(x: np.ndarray, mean: np.ndarray, std: np.ndarray) -> str:
    x, mean, std = (v[~np.isnan(v)] for v in (x, mean, std))
    return f"{mean[-1]:.4g}" + (f" ± {std[-1]:.2g}" if len(std) else "") + f" (x = {x[-1]:.4g})"


def trade_off(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    key: str,
    seen: Sequence[Errors] = (),
) -> Picture:
    """What is proved of an attacker's two errors, by view, and what guessing has; false positives on a log scale.

    Args:
      curves: false-positive and false-negative rates.
      seen: those that audits counted, of these views.
    """
    title = "Errors of an attacker"
    if not curves:
        return Picture(key, title, "", [])

    def draw(axes: Any) -> None:
        scale(axes, "x", log=True)
        axes.set_xlabel("false positives, log scale")
        axes.set_xlim(9e-4, 1)
        scale(axes, "y", log=False)
        axes.set_ylim(-0.02, 1)
        for number, (view, (false_positives, false_negatives)) in enumerate(curves.items()):
            look = plots.look(number, number, len(false_positives))
            axes.plot(false_positives, false_negatives, markersize=4, label=view, **look)
        axes.plot(
            false_positives, 1 - np.asarray(false_positives), color=TEXT, lw=0.8, label="guess"
        )
        for errors in seen:
            _counted(axes, errors, list(curves).index(errors.certified["view"]))
        axes.legend(frameon=False, fontsize="medium")

    said = "; ".join(
        f"{view}: at least {100 * np.interp(0.01, *rates):.3g} % missed at 1 % false positives"
        for view, rates in curves.items()
    )
    caption = ["No attacker is below its view's curve: false negatives by false positives."]
    if seen:
        runs = " and ".join(dict.fromkeys(f"{errors.runs:,}" for errors in seen))
        caption.append(
            f"Points: what audits by {runs} trainings counted, with intervals of 95 % for each rate and threshold, "
            "some of which miss by chance. The room between them and their curve is what was not seen."
        )
    return Picture(key, title, _inline(_svg(draw, key), key, f"{title}. {said}."), caption)


def _counted(axes: Any, errors: Errors, number: int) -> None:
    """Points with intervals, in the colour of their view."""

    def rates(kind: str) -> tuple[np.ndarray, np.ndarray]:
        each = [[point[kind][name] for name in ("rate", "low", "high")] for point in errors.points]
        rate, low, high = np.array(each).T
        return rate, np.array([rate - low, high - rate])

    (x, x_error), (y, y_error) = rates("false_positives"), rates("false_negatives")
    look = {"fmt": ".", "markersize": 5, "elinewidth": 0.8, "label": errors.label}
    axes.errorbar(x, y, xerr=x_error, yerr=y_error, color=COLOURS[number % len(COLOURS)], **look)


def _svg(draw: Callable[[Any], None], key: str) -> str:
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    written = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": key}), np.errstate(all="ignore"):
        figure = Figure(figsize=(5.4, 3.6), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.subplots())
        plots.change_texts(figure, without_controls)
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    return written.getvalue()


def _draw(axes: Any, chart: Chart, curves: Sequence[tuple]) -> None:
    ends = [float(np.nanmax(x)) for _, x, *_ in curves]
    means = np.concatenate([mean for _, _, mean, _ in curves])
    values = np.concatenate([x for _, x, *_ in curves])
    by_round, percent = chart.x_label == "round", in_percent(chart.measure)
    scale(axes, "x", not by_round and far(values, 1) and far(ends, FAR_ENDS), by_round)
    scale(axes, "y", not percent and far(means, FAR_VALUES))
    floor = np.nanmin(means) / 3 if _log(axes.yaxis) else -np.inf
    for s, x, mean, std in curves:
        _curve(axes, s, x, mean, std, floor)
    if percent:
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, 0), min(high, 100))
    axes.set_xlabel(chart.x_label + (", log scale" if _log(axes.xaxis) else ""))
    axes.set_ylabel("log scale" if _log(axes.yaxis) else "")


def _log(axis: Any) -> bool:
    return axis.get_scale() == "log"


def _curve(
    axes: Any, s: Series, x: np.ndarray, mean: np.ndarray, std: np.ndarray, floor: float
) -> None:
    drawn = plots.look(s.colour, s.dash, len(x))
    if np.isfinite(std).any():
        lower, upper = np.maximum(mean - std, floor), mean + std
        band = axes.fill_between(x, lower, upper, color=drawn["color"], alpha=0.16, linewidth=0)
        band.set_gid(f"band {s.key}")
    axes.plot(x, mean, markersize=4, linewidth=1.8, gid=f"series {s.key}", **drawn)


def _inline(svg: str, key: str, said: str) -> str:
    """matplotlib's document as an element of the page: named for who cannot see it, in the page's colours."""
    root = ElementTree.fromstring(svg)
    referred = set(re.findall(r'(?:url\(|href=")#([\w-]+)', svg))
    for e in root.iter():
        e.tag = e.tag.rpartition("}")[2]
        given = {name.rpartition("}")[2]: value for name, value in e.attrib.items()}
        if (name := given.pop("id", "")) in referred:
            given["id"] = name
        elif name.startswith(("band ", "series ")):
            given["class"] = name
        if "style" in given:
            given["style"] = re.sub("#[0-9a-f]{6}", _variable, given["style"])
        e.attrib.clear()
        e.attrib.update(given)
    for parent in root.findall("metadata/..") + root.findall("defs/style/.."):
        for child in [e for e in parent if e.tag in ("metadata", "style")]:
            parent.remove(child)
    root.attrib = {"viewBox": root.attrib["viewBox"], "class": "chart", "role": "img"}
    root.attrib |= {"aria-labelledby": f"{key}-title", "aria-describedby": f"{key}-desc"}
    desc = ElementTree.Element("desc", id=f"{key}-desc")
    desc.text = said
    root.insert(0, desc)
    return ElementTree.tostring(root, encoding="unicode", method="html")


def _variable(found: re.Match[str]) -> str:
    return VARIABLES.get(found[0], found[0])
