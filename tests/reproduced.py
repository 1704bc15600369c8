"""A tiny paper for experiments.reproduce, on the quickstart: a table, a figure, a computation, an illustration."""

import csv

from fedpriv.experiments.commands import reproduce
from fedpriv.experiments.papers.reproduce.accounting import certified, claimed
from fedpriv.experiments.papers.reproduce.item import Cell, Computation, Item, Training, Value
from fedpriv.experiments.papers.reproduce.picture import Curves, Points, panels
from fedpriv.experiments.papers.reproduce.reading import (
    best_accuracy,
    final_accuracy,
    last,
    saved_uplink,
    uplink_mb,
)

SMALL = {"clients": 20, "cohort": 3, "sampling": "fixed_size", "local.epochs": 1}


def training(algorithm, **more):
    return Training("quickstart", algorithm, {**SMALL, **more}, rounds=4, seeds=2, every=2)


PLAIN = training("fed_avg")
PRIVATE = training("dp_fed_avg", noise_multiplier=2.0)
COUNTED = Computation("counted", lambda scale, data_dir: {"found": scale.of(8), "scaled": ""})
TABLE = Item(
    "tiny",
    "table1",
    "Accuracies",
    cells=(
        Cell("FedAvg", "best (%)", "90.50 +- 0.25", (PLAIN,), best_accuracy),
        Cell("FedAvg", "MB", "0.1", (PLAIN,), uplink_mb),
        Cell("DP-FedAvg", "best (%)", "50", (PRIVATE,), best_accuracy),
        Cell("DP-FedAvg", "last (%)", "", (PRIVATE,), final_accuracy),
        Cell("DP-FedAvg", "eps claimed", "1.5", (), claimed(PRIVATE)),
        Cell("DP-FedAvg", "eps certified", "", (), certified(PRIVATE)),
    ),
    notes=("a tiny table",),
)
LINES = {"FedAvg": PLAIN, "DP-FedAvg": PRIVATE}
FIGURE = Item(
    "tiny",
    "fig1",
    "Curves",
    cells=(Cell("saved", "%", "99", (PRIVATE, PLAIN), saved_uplink(2.0)),),
    work=tuple(LINES.values()),
    draw=panels(
        [
            [
                Curves("", LINES),
                Points("", {"both": [(1, PLAIN), (2, PRIVATE)]}, last("loss"), "x", "y"),
            ]
        ]
    ),
)
COMPUTED = Item(
    "tiny",
    "fig2",
    "No training",
    cells=(Cell("all", "found", "8", (COUNTED,), lambda done: Value(done.summary["found"])),),
)
ILLUSTRATION = Item("tiny", "fig3", "A drawing")


ITEMS = (TABLE, FIGURE, COMPUTED, ILLUSTRATION)


def launch(*args, output):
    return reproduce.main(["tiny", *map(str, args), "--output", str(output)])


def rows(folder):
    with (folder / "table.csv").open() as file:
        return {(row["row"], row["column"]): row for row in csv.DictReader(file)}
