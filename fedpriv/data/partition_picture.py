"""A partition as a picture: how many records of each class a client has."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpriv.core.arguments import check_path
from fedpriv.core.complaints import require, shown
from fedpriv.core.files import save_figure
from fedpriv.data.labels import class_numbers
from fedpriv.data.validation import on_host, row_numbers

_MOST = 2**30  # numbers in a table
_NAMED = 20  # classes with a colour and a line in the legend of their own
_SHADES = 64  # of classes, that can be told apart at all
_BARS = 1_000  # that are not thinner than a pixel


def counts(clients: Sequence[ArrayLike], labels: ArrayLike) -> np.ndarray:
    """i64[clients, classes], the number of records of each class that a client has.

    Args:
        clients: [rows] for each client, its row numbers.
        labels: [N], the classes of all examples, from 0.

    Raises:
        ValueError: no client; rows out of range; labels that are not integers from 0.
    """
    labels, rows = _checked(clients, labels)
    classes = 1 + int(labels.max(initial=0))
    remedy = "number the classes one after the other, as np.unique(labels, return_inverse=True)[1]"
    require(len(rows) * classes <= _MOST, "labels", classes - 1, remedy)
    return np.stack([np.bincount(labels[own], minlength=classes) for own in rows])


def _checked(
    clients: Sequence[ArrayLike], labels: ArrayLike
) -> tuple[np.ndarray, list[np.ndarray]]:
    """(The classes, i[N]; the rows of each client, i64[n])."""
    array = on_host("labels", labels)
    labels = np.asarray(class_numbers("labels", array)) if array.ndim == 1 else array
    if labels.ndim != 1 or (labels.size and labels.min() < 0):
        raise ValueError(f"labels: {shown(labels)}; give one class from 0 per example")
    require(len(clients) > 0, "clients", [], "give one array of row numbers per client")
    return labels, [row_numbers(f"clients[{i}]", r, len(labels)) for i, r in enumerate(clients)]


def picture(
    clients: Sequence[ArrayLike],
    labels: ArrayLike,
    path: str | os.PathLike[str] | None = None,
) -> Any:
    """A `matplotlib.figure.Figure` with a bar for each client, of its number of records, coloured by class.

    Of more than 1,000 clients, neighbours share a bar, of their mean numbers. More than 20 classes have no legend, and
    of more than 64, neighbours share a colour.

    Args:
        clients, labels: as `counts`.
        path: where to save it, in the format of its ending (`.png`, `.pdf`, `.svg`); a notebook shows the returned
            figure.

    Raises:
        ValueError: no client; rows out of range; labels that are not integers from 0.
    """
    from matplotlib import colormaps
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    if path is not None:
        check_path("path", path, "give the file to save it in, or leave it out")
    labels, rows = _checked(clients, labels)
    number, classes = len(rows), 1 + int(labels.max(initial=0))
    edges, means = _bars(labels, rows, min(classes, _SHADES))
    ends = np.cumsum(means, axis=1)
    longest = ends[:, -1].max(initial=1)
    figure = Figure((6.4, min(1.6 + 0.16 * number, 12)), layout="constrained")
    limits = {"xlim": (0, 1.05 * longest), "ylim": (number - 0.5, -0.5)}
    axes = figure.add_subplot(xlabel="records", ylabel="client", **limits)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    few, many = colormaps["tab10" if classes <= 10 else "tab20"], colormaps["viridis"]
    shade = few if classes <= _NAMED else many.resampled(means.shape[1])
    apart = 0.1 if number <= 60 else 0.0
    bar, c = np.nonzero(means)
    left, right = (ends - means)[bar, c], ends[bar, c]
    top, bottom = edges[bar] - 0.5 + apart, edges[bar + 1] - 0.5 - apart
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    rectangles: Any = np.stack([np.stack(corner, axis=1) for corner in corners], axis=1)
    # One artist, however many rectangles there are.
    axes.add_collection(PolyCollection(rectangles, facecolors=shade(c), linewidths=0))
    if classes <= _NAMED:
        handles = [Patch(color=few(c), label=str(c)) for c in range(classes)]
        place: Any = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
        axes.legend(handles=handles, title="class", fontsize="small", **place)
    if path is not None:
        save_figure(figure, Path(path))
    return figure


def _bars(
    labels: np.ndarray, rows: Sequence[np.ndarray], shades: int
) -> tuple[np.ndarray, np.ndarray]:
    """(i64[bars + 1], the first client of each bar; f64[bars, shades], means over its clients of numbers of records).

    Counted at once, in time and memory of the records: a table may have too many clients and classes.
    """
    bars, classes = min(len(rows), _BARS), 1 + int(labels.max(initial=0))
    bar = np.arange(len(rows)) * bars // len(rows)
    of_records = np.repeat(bar, [len(own) for own in rows])
    shade = labels[np.concatenate(rows)].astype(np.int64) * shades // classes
    sums = np.bincount(of_records * shades + shade, minlength=bars * shades)
    clients = np.bincount(bar)
    edges = np.concatenate([[0], np.cumsum(clients)])
    return edges, sums.reshape(bars, shades) / clients[:, None]
