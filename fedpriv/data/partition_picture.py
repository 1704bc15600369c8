"""A partition as a picture: how many records of each class a client has."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpriv.core.arguments import check_path, require, shown
from fedpriv.data.labels import class_numbers
from fedpriv.data.validation import on_host, row_numbers

_MOST = 2**30  # numbers in a table
_NAMED = 20  # classes with a colour and a line in the legend of their own


def counts(clients: Sequence[ArrayLike], labels: ArrayLike) -> np.ndarray:
    """i64[clients, classes], the number of records of each class that a client has.

    Args:
        clients: [rows] for each client, its row numbers.
        labels: [N], the classes of all examples, from 0.

    Raises:
        ValueError: no client; rows out of range; labels that are not integers from 0.
    """
    array = on_host("labels", labels)
    labels = np.asarray(class_numbers("labels", array)) if array.ndim == 1 else array
    if labels.ndim != 1 or (labels.size and labels.min() < 0):
        raise ValueError(f"labels: {shown(labels)}; give one class from 0 per example")
    require(len(clients) > 0, "clients", [], "give one array of row numbers per client")
    classes = 1 + int(labels.max(initial=0))
    remedy = "number the classes one after the other, as np.unique(labels, return_inverse=True)[1]"
    require(len(clients) * classes <= _MOST, "labels", classes - 1, remedy)
    labels_of_clients = (
        labels[row_numbers(f"clients[{i}]", rows, len(labels))] for i, rows in enumerate(clients)
    )
    return np.stack([np.bincount(own, minlength=classes) for own in labels_of_clients])


def picture(
    clients: Sequence[ArrayLike],
    labels: ArrayLike,
    path: str | os.PathLike[str] | None = None,
) -> Any:
    """A `matplotlib.figure.Figure` with a bar for each client, of its number of records, coloured by class.

    Args:
        clients, labels: as `counts`.
        path: where to save it, in the format of its ending (`.png`, `.pdf`, `.svg`); a notebook shows the returned
            figure.

    Raises:
        ValueError: as `counts`.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    if path is not None:
        check_path("path", path, "give the file to save it in, or leave it out")
    table = counts(clients, labels)
    number, classes = table.shape
    figure = Figure((6.4, min(1.6 + 0.16 * number, 12)), layout="constrained")
    axes = figure.add_subplot(xlabel="records", ylabel="client", ylim=(number - 0.5, -0.5))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    few = colormaps["tab10" if classes <= 10 else "tab20"]
    many = colormaps["viridis"].resampled(classes)
    for c in range(classes):
        axes.barh(
            np.arange(number),
            table[:, c],
            height=0.8 if number <= 60 else 1.0,
            left=table[:, :c].sum(1),
            color=few(c) if classes <= _NAMED else many(c),
            label=str(c),
        )
    if classes <= _NAMED:
        axes.legend(title="class", loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small")
    if path is not None:
        figure.savefig(path)
    return figure
