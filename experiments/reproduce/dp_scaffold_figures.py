"""DP-SCAFFOLD, Figures 1 to 8: six algorithms at three levels of heterogeneity, K = 50 and K = 100."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.reproduce.comparisons import change, claim
from experiments.reproduce.dp_scaffold_trainings import (
    ALGORITHMS,
    DATA,
    FEMNIST,
    MISSING,
    MNIST,
    NOTES,
    SYNTHETIC,
    levels,
    synthetic,
    training,
)
from experiments.reproduce.item import Cell, Item, Read, Training
from experiments.reproduce.picture import Curves, panels
from experiments.reproduce.reading import final_accuracy, last
from experiments.show import NAMES

Panel = tuple[str, str, Mapping[str, Any]]
"""Config, the level's name, settings."""

LOG_GAP, ACCURACY = "log10(F(x) - F*)", "test accuracy (%)"
DISSIMILARITY = "gradient dissimilarity"
READS: dict[str, tuple[str, float, Read]] = {
    LOG_GAP: ("log_gap", 1, last("log_gap")),
    ACCURACY: ("accuracy", 100, final_accuracy),
    DISSIMILARITY: ("dissimilarity", 1, last("dissimilarity")),
}
"""What is drawn -> where a run folder has it, in which unit, and how its last value is read."""


def grid(
    config: str, steps: Sequence[int], chosen: Sequence[tuple[str, dict]]
) -> list[list[Panel]]:
    """A row for each K."""
    return [[(config, level, own | {"local_steps": k}) for level, own in chosen] for k in steps]


def figure(
    name: str, title: str, what: str, rows: Sequence[Sequence[Panel]], cells: Sequence[Cell] = ()
) -> Item:
    """Panels with the six algorithms; in the table their last values, and whether DP-SCAFFOLD is ahead."""
    metric, factor, _ = READS[what]
    drawn = [
        [Curves(_row(panel), _lines(panel), metric, factor=factor, ylabel=what) for panel in row]
        for row in rows
    ]
    own = [cell for row in rows for panel in row for cell in _cells(panel, what)]
    size = (4.5 * max(map(len, rows)), 3.6 * len(rows))
    missing = MISSING if any(p[0] == FEMNIST for row in rows for p in row) else ()
    notes = (*NOTES, *missing)
    return Item(
        "dp_scaffold", name, title, (*own, *cells), draw=panels(drawn), size=size, notes=notes
    )


def _lines(panel: Panel) -> dict[str, Training]:
    return {NAMES[name]: of(panel, name) for name in ALGORITHMS}


def of(panel: Panel, algorithm: str) -> Training:
    config, _, settings = panel
    return training(config, algorithm, **settings)


def _row(panel: Panel) -> str:
    config, level, settings = panel
    return f"{DATA[config]} {level}, K = {settings['local_steps']}"


def _cells(panel: Panel, what: str) -> list[Cell]:
    read = READS[what][2]
    values = [
        Cell(_row(panel), f"{NAMES[name]}, last {what}", "", (of(panel, name),), read)
        for name in ALGORITHMS
    ]
    ahead = "above 0" if what == ACCURACY else "below 0"
    return values + [_less(_row(panel), [panel], what, ahead, rival) for rival in RIVALS]


RIVALS = ("dp_fed_avg", "dp_fed_sgd")


def _less(row: str, over: Sequence[Panel], what: str, published: str, rival: str) -> Cell:
    column = f"DP-SCAFFOLD less {NAMES[rival]}"
    ours, theirs = ([of(panel, name) for panel in over] for name in ("dp_scaffold", rival))
    return claim(row, column, published, READS[what][2], ours, theirs)


def _more_with_steps(row: Sequence[Panel], longer: Sequence[Panel]) -> list[Cell]:
    """ "The performance gap also increases with the number K of local updates, see Figure 1"."""
    column, pair = "DP-SCAFFOLD less DP-FedAvg: K = 100 less K = 50", ("dp_scaffold", "dp_fed_avg")
    found = []
    for short, long in zip(row, longer, strict=True):
        work = [of(panel, name) for panel in (long, short) for name in pair]
        name = f"{DATA[short[0]]} {short[1]}"
        found.append(Cell(name, column, "below 0", work, change(READS[LOG_GAP][2])))
    return found


_BOTH = (50, 100)
_MAIN = grid(SYNTHETIC, _BOTH, levels(SYNTHETIC))
_ALPHA = grid(SYNTHETIC, _BOTH, [synthetic(x, 0) for x in (0, 1, 5)])
_BETA = grid(SYNTHETIC, _BOTH, [synthetic(0, x) for x in (0, 1, 5)])
_FEMNIST = grid(FEMNIST, _BOTH, levels(FEMNIST))
_REAL = [*grid(FEMNIST, (50,), levels(FEMNIST)), *grid(MNIST, (50,), levels(MNIST))]
_EVERY = [panel for row in _MAIN for panel in row]

ROWS = "first row K = 50, second row K = 100"
ITEMS = (
    figure(
        "fig1", f"Train loss on synthetic data; {ROWS}", LOG_GAP, _MAIN, _more_with_steps(*_MAIN)
    ),
    figure("fig2", "Test accuracy with K = 50; FEMNIST (LogReg), MNIST (DNN)", ACCURACY, _REAL),
    figure(
        "fig3",
        f"Test accuracy on synthetic data; {ROWS}",
        ACCURACY,
        _MAIN,
        [_less("average over the panels", _EVERY, ACCURACY, "10", "dp_fed_avg")],
    ),
    figure("fig4", f"Train gradient dissimilarity on synthetic data; {ROWS}", DISSIMILARITY, _MAIN),
    figure(
        "fig5",
        f"Model heterogeneity (alpha): train loss on synthetic data; {ROWS}",
        LOG_GAP,
        _ALPHA,
    ),
    figure(
        "fig6", f"Data heterogeneity (beta): train loss on synthetic data; {ROWS}", LOG_GAP, _BETA
    ),
    figure("fig7", f"Test accuracy on FEMNIST (LogReg); {ROWS}", ACCURACY, _FEMNIST),
    figure(
        "fig8", f"Train gradient dissimilarity on FEMNIST (LogReg); {ROWS}", DISSIMILARITY, _FEMNIST
    ),
)
