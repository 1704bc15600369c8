"""Curves for a paper: PDF with fonts that can be edited, PNG at 300 dpi; mean and band over the seeds."""

from __future__ import annotations

import math
import textwrap
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from fedpriv.core.cards import png_of
from fedpriv.core.files import save_figure
from fedpriv.core.terminal_text import printable
from fedpriv.engine.metric_words import in_percent, with_unit
from fedpriv.experiments.base.command import one_line
from fedpriv.experiments.base.formats import NAMES
from fedpriv.experiments.base.spread import Spread
from fedpriv.experiments.runs.contents import Line
from fedpriv.experiments.runs.measured import heading, measured_on, together
from fedpriv.experiments.runs.run_folder import RunFolder
from fedpriv.experiments.runs.run_names import names
from fedpriv.experiments.tables import thinning
from fedpriv.privacy.epsilon_words import meaning_of_epsilon, only_not_covered

if TYPE_CHECKING:
    from matplotlib.figure import Figure

By: TypeAlias = Literal["round", "uplink", "hours", "epsilon", "mu", "bits"]
Width: TypeAlias = Literal["column", "page"]
WIDTHS: dict[Width, float] = {"column": 3.3, "page": 6.8}  # inches
SUFFIXES = (".pdf", ".png", ".svg")
# Okabe and Ito's palette for all kinds of colour vision, without its yellow and black, which one of two backgrounds
# would hide; markers and dashes tell curves apart without it.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b0528c", "#b8860b", "#56b4e9", "#5f5f5f")
MARKERS = "os^DvPX"
FAR_ENDS = 4  # beyond it a linear axis would squeeze a whole curve
DASHES = ((), (4, 2), (1, 1.5), (6, 2, 1, 2), (9, 3), (3, 1, 1, 1, 1, 1))
STYLE: dict[Any, Any] = {
    "pdf.fonttype": 42,  # TrueType: journals refuse type 3
    "text.parse_math": False,  # what files say is no formula
    "font.size": 8,
    "axes.titlesize": 8,
    "figure.titlesize": 9,
    "legend.fontsize": 7,
    "lines.linewidth": 1.2,
    "lines.markersize": 3,
    "axes.grid": True,
    "grid.color": "#d9d9d9",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


class Curve(NamedTuple):
    """An algorithm of a run, and how it is drawn.

    Attributes:
      names: of a group, metric of a row of panels -> what is drawn there in its place, and nothing in other rows; None:
        the metrics themselves.
    """

    run: RunFolder
    algorithm: str
    look: dict[str, Any]
    names: Mapping[str, str] | None = None

    def hours(self, line: Line) -> float:
        """Simulated hours of all rounds so far; NaN where the run has none."""
        each = self.run.results.hours_per_round(self.algorithm)
        return math.nan if each is None else each * line.round


class Kept:
    """In the place of a file: the figure is kept, and can be shown.

    Attributes:
      figure: of matplotlib, once it is drawn.
    """

    suffix = ".png"  # what it is shown as

    def __init__(self) -> None:
        self.figure: Figure | None = None

    def png(self) -> bytes:
        """As a notebook shows it."""
        import matplotlib as mpl

        with mpl.rc_context(STYLE):
            return png_of(self.figure)


class Axis(NamedTuple):
    """The x axis of curves: its number of an evaluation, and its label."""

    value: Callable[[Curve, Line], float]
    label: str


def _meaning(curves: Sequence[Curve]) -> str:
    """Of the epsilons that there are: unit, view, adjacency, delta and basis."""
    lines = [line for one in curves for line in one.run.lines.get(one.algorithm, ())]
    found = [line.privacy.certified for line in lines]
    said = dict.fromkeys(meaning_of_epsilon(c) for c in found if math.isfinite(c.epsilon))
    return f" ε: {'; '.join(said)}, of one model released alone." if said else ""


AXES = {
    "round": Axis(lambda _, line: line.round, "round"),
    "uplink": Axis(lambda _, line: line.uplink_mb_per_client, "uplink per client (MB)"),
    "hours": Axis(Curve.hours, "simulated hours"),
    "epsilon": Axis(lambda _, line: line.privacy.certified.epsilon, "certified ε"),
    "ends": Axis(
        lambda _, line: line.privacy.certified.epsilon, "certified ε"
    ),  # of `ends_by_epsilon`, as is mu
    "mu": Axis(
        lambda _, line: math.inf if line.privacy.mu is None else line.privacy.mu, "Gaussian μ"
    ),
    "bits": Axis(
        lambda _, line: 8e6 * line.uplink_mb_per_client / line.round,
        "uplink per client of the population and round (bits)",
    ),
}
AT_ENDS = ("ends", "mu", "bits")


@contextmanager
def sheet(width: float, height: float) -> Iterator[Figure]:
    """A figure of this size, in inches, in the style of all figures for papers."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure


def far(values: Sequence[float] | np.ndarray, ratio: float) -> bool:
    """Whether numbers of a plot are positive and differ by more than this factor."""
    low, high = np.nanmin(values), np.nanmax(values)
    return bool(low > 0 and high / low > ratio)


def scale(axes: Any, which: str, log: bool, whole: bool = False) -> None:
    """Ticks of "x" or "y" at round numbers, written as they are: `STYLE` leaves no formula to a tick."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axis = getattr(axes, f"{which}axis")
    if log:
        axes.set(**{f"{which}scale": "log"})
        axis.set_major_locator(LogLocator(subs=(1, 3), numticks=7))
    else:
        axis.set_major_locator(MaxNLocator(5, integer=whole, steps=[1, 2, 2.5, 5, 10]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def colours(algorithms: Iterable[str]) -> dict[str, int]:
    """For curves: algorithm -> number of its colour, from `len(COLOURS)` on with other dashes.

    An algorithm has the same in every figure, but where another one that is drawn with it has it: then the one that
    stands later in `NAMES` takes the next that is free.
    """
    found: dict[str, int] = {}
    for name in sorted(set(algorithms), key=_place):
        first = len(found) // len(COLOURS) * len(COLOURS)
        each = (first + (_place(name) + step) % len(COLOURS) for step in range(len(COLOURS)))
        found[name] = next(number for number in each if number not in found.values())
    return found


def _place(algorithm: str) -> int:
    """In `NAMES`; of another's a number behind them that depends on its name alone."""
    places = {name: place for place, name in enumerate(NAMES)}
    return places.get(algorithm, len(NAMES) + zlib.crc32(algorithm.encode()))


def look(colour: int, dash: int, points: int = 1) -> dict[str, Any]:
    """Of a curve: colour, dashes and a marker at no more than a dozen of its points."""
    return {
        "color": COLOURS[colour % len(COLOURS)],
        "linestyle": (0, DASHES[dash % len(DASHES)]) if dash % len(DASHES) else "-",
        "marker": MARKERS[(colour + 3 * dash) % len(MARKERS)],
        "markevery": max(1, min(points, thinning.MOST) // 12),
    }


def columns(runs: Sequence[RunFolder], together: bool) -> dict[str, list[Curve]]:
    """Title of a column of plots -> its curves: one for each run, or one for all."""
    every = [(r, t, n) for r, t in zip(runs, names(runs), strict=True) for n in r.results.rounds]
    own = colours(name for *_, name in every)
    found: dict[str, list[Curve]] = {}
    for run, title, name in every:
        number = own[name]
        label, dash = run.name_of(name), number // len(COLOURS)
        if together and len(runs) > 1:
            of = next(i for i, other in enumerate(runs) if other is run)
            label = f"{label}, {title}"
            number, dash = (of, of // len(COLOURS)) if len(own) == 1 else (number, of)
        drawn = look(number, dash, len(run.lines.get(name, ())))
        column = found.setdefault("" if together else title, [])
        column.append(Curve(run, name, drawn | {"label": label}))
    return found


def picture(
    columns: Mapping[str, Sequence[Curve]],
    metrics: Sequence[str],
    paths: Sequence[Path | Kept],
    width: Width | None = None,
    x: str = "round",
    title: str | None = None,
) -> str:
    """A row of plots for each metric, with the legend below; returns the caption.

    Args:
      width: one of `WIDTHS`; by default the page's for several columns of panels.
      x: one of `AXES`, to draw the metrics by.
      title: above the panels; by default none, as papers have captions.

    Raises:
      ValueError: no run has the metric, or a file cannot be written.
    """
    wide = WIDTHS[width or ("page" if len(columns) > 1 else "column")]
    of_one = wide / len(columns)
    every = [one for curves in columns.values() for one in curves]
    lines = _legend_lines(dict.fromkeys(one.look["label"] for one in every), wide)
    # The legend gets room of its own, so that the panels keep theirs.
    tall = max(1.5, min(2.2, 0.72 * of_one)) * len(metrics) + 0.5 + 0.14 * lines
    with sheet(wide, tall) as figure:
        shape = len(metrics), len(columns)
        # What has no epsilon is level beside the others.
        shared: Literal["all", "col"] = "all" if x in AT_ENDS else "col"
        panels = figure.subplots(*shape, sharex=shared, sharey="row", squeeze=False)
        for metric, row in zip(metrics, panels, strict=True):
            for axes, curves in zip(row, columns.values(), strict=True):
                for one in curves:
                    draw(axes, one, metric, x)
            if not any(axes.lines for axes in row):
                known = _metrics([one.run for one in every])
                raise ValueError(f"metric: there is no {metric!r}; there are {', '.join(known)}")
            public = together(one.run.results.public for one in every)
            row[0].set_ylabel(heading(metric, public))
        for axes, name in zip(panels[0], columns, strict=True) if len(columns) > 1 else ():
            axes.set_title(textwrap.fill(name, max(10, int(15 * of_one))))
        if x in AT_ENDS:
            _ticks_at_ends(panels[-1], columns, AXES[x])
        for axes in panels[-1]:
            axes.set_xlabel(AXES[x].label)
            if x in ("round", "uplink", "hours"):
                scale(axes, "x", log=False, whole=x == "round")
        if title:
            figure.suptitle(title)
        below(figure, {line.get_label(): line for axes in panels.flat for line in axes.lines})
        save(figure, paths)
    return _caption(every, metrics, x)


def _caption(curves: Sequence[Curve], metrics: Sequence[str], x: str) -> str:
    """What is drawn, of how many seeds, and what an epsilon means."""
    configs = ", ".join(dict.fromkeys(Path(one.run.config).stem for one in curves))
    seeds = sorted({of[0].seeds for one in curves if (of := one.run.lines.get(one.algorithm))})
    over = " or ".join(map(str, seeds)) + (" seed" if seeds == [1] else " seeds")
    public = together(one.run.results.public for one in curves)
    named = " and ".join(f"{with_unit(metric)} {measured_on(metric, public)}" for metric in metrics)
    by = {"ends": "at the end of runs, by certified ε"}
    by["mu"] = "at the end of runs, by μ of the tightest Gaussian bound"
    by["bits"] = f"at the end of runs, by {AXES['bits'].label}"
    said = f"{configs}: {named} {by.get(x, f'by {AXES[x].label}')}; "
    said += "one seed." if seeds == [1] else f"mean over {over}, band: one standard deviation."
    if less := thinning.said(len(one.run.lines.get(one.algorithm, ())) for one in curves):
        said += f" {less}"
    if x not in ("epsilon", *AT_ENDS):
        return said + (_meaning(curves) if any("ε" in one.look["label"] for one in curves) else "")
    infinite: dict[str, dict[str, None]] = {}
    for one in filter(_is_not_private, curves):
        label = one.run.name_of(one.algorithm) if one.names else one.look["label"]
        lines = one.run.lines.get(one.algorithm, ())
        covered = not any(only_not_covered(line.privacy.certified) for line in lines)
        infinite.setdefault("Not private" if covered else "Not covered", {})[label] = None
    end = " (no curve)." if x == "epsilon" else "."
    left_out = [f" {why}: {', '.join(names)}{end}" for why, names in infinite.items()]
    return f"{said}{_meaning(curves)}{''.join(left_out)}"


def _is_not_private(one: Curve) -> bool:
    lines = one.run.lines.get(one.algorithm, ())
    return not any(math.isfinite(line.privacy.certified.epsilon) for line in lines)


def _ticks_at_ends(
    panels: Sequence[Any], columns: Mapping[str, Sequence[Curve]], axis: Axis
) -> None:
    every = [one for curves in columns.values() for one in curves]
    ends = [axis.value(one, line) for one in every for line in one.run.lines[one.algorithm]]
    finite = [end for end in ends if math.isfinite(end)]
    for axes in panels:
        scale(axes, "x", log=bool(finite) and far(finite, FAR_ENDS))


def _in_legend(labels: Iterable[str], inches: float) -> tuple[list[str], int]:
    """The labels, wrapped, and the number of columns for which the longest leaves room."""
    wrapped = [textwrap.fill(label, int(15 * inches) - 8) for label in labels]
    longest = max(len(part) for label in wrapped for part in label.splitlines())
    return wrapped, max(1, min(len(wrapped), int(15 * inches / (longest + 8))))


def _legend_lines(labels: Iterable[str], inches: float) -> int:
    wrapped, many = _in_legend(labels, inches)
    return -(-sum(label.count("\n") + 1 for label in wrapped) // many)


def below(figure: Figure, handles: Mapping[str, Any]) -> None:
    """A legend under the plots, in as many columns as its longest label leaves room for."""
    wrapped, many = _in_legend(handles, figure.get_figwidth())
    figure.legend(handles.values(), wrapped, loc="outside lower center", ncols=many, frameon=False)


def change_texts(figure: Figure, change: Callable[[str], str]) -> None:
    """Of everything that is written in a figure, line by line."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_text("\n".join(map(change, text.get_text().split("\n"))))


def save(figure: Figure, paths: Sequence[Path | Kept]) -> None:
    """Saves plots; raises ValueError where a file cannot be written."""
    change_texts(figure, printable)  # fonts lack the rest, and warn of it
    for path in paths:
        if isinstance(path, Kept):
            path.figure = figure
            continue
        kind = path.suffix[1:]
        dated = {"pdf": "CreationDate", "svg": "Date"}.get(kind)
        try:
            save_figure(figure, path, dpi=300, metadata={dated: None} if dated else None)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or one_line(error)
            raise ValueError(f"output: cannot write {path} ({why})") from None


def _metrics(runs: Sequence[RunFolder]) -> list[str]:
    lines = [line for run in runs for of in run.lines.values() for line in of]
    own = dict.fromkeys(n for x in lines for n in x.of_score)
    return [*own, *sorted({n for x in lines for n in x.diagnostics_not_private})]


def curve(axes: Any, x: Iterable[float], values: Sequence[Spread], **look: Any) -> None:
    """Plots the mean over the seeds, a band of one standard deviation, of what is finite; long curves are thinned."""
    found = [(at, s.mean, s.std or 0.0) for at, s in zip(x, values, strict=True)]
    points = [point for point in found if math.isfinite(point[1])]
    if points:
        at, mean, std = np.array(points, float).T
        at, mean, std = (of[thinning.drawn(mean)] for of in (at, mean, std))
        (line,) = axes.plot(at, mean, **look)
        axes.fill_between(at, mean - std, mean + std, alpha=0.2, color=line.get_color())


def draw(axes: Any, one: Curve, metric: str, x: str = "round") -> None:
    """Draws a curve, an accuracy in %, everything else as it was recorded."""
    metric = metric if one.names is None else one.names.get(metric, "")
    if not metric:
        return
    lines = one.run.lines.get(one.algorithm, ())
    found = [(AXES[x].value(one, line), line.metric(metric)) for line in lines]
    points = [(at, s) for at, s in found if s and math.isfinite(at)]
    shown = [percent(s) if in_percent(metric) else s for _, s in points]
    curve(axes, [at for at, _ in points], shown, **one.look)
    if x in AT_ENDS and found and not points:
        _level(axes, one, metric)


def _level(axes: Any, one: Curve, metric: str) -> None:
    """A line across the panel, for what has no epsilon."""
    ends = [line.metric(metric) for line in one.run.lines[one.algorithm]]
    means = [s.mean for s in ends if s and math.isfinite(s.mean)]
    if means:
        factor = 100 if in_percent(metric) else 1
        look = one.look | {"marker": "", "linestyle": ":"}
        look["label"] = f"{look['label']} (not private)"
        del look["markevery"]
        axes.axhline(factor * float(np.mean(means)), **look)


def percent(s: Spread) -> Spread:
    std = None if s.std is None else 100 * s.std
    return Spread(100 * s.mean, std, tuple(100 * x for x in s.per_seed))
