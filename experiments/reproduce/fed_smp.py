"""The tables and figures of Fed-SMP (Hu, Guo, Gong, arXiv:2202.07178)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments import config as configuration
from experiments.reproduce import fed_smp_notes as notes
from experiments.reproduce import fed_smp_printed as printed
from experiments.reproduce.accounting import certified, claimed
from experiments.reproduce.fed_smp_data import EVERY, FASHION_MNIST, SHAKESPEARE, SVHN, Data
from experiments.reproduce.fed_smp_printed import TradeOff
from experiments.reproduce.item import Cell, Item, Training
from experiments.reproduce.picture import Curves, Points, panels
from experiments.reproduce.reading import best_accuracy, last, saved_uplink, uplink_mb
from experiments.show import NAMES

ACCURACY, COST = "accuracy (%)", "uplink per client (MB)"
CLAIMED = "eps claimed (client, third party, add-or-remove, delta {delta:.2g}, n = {n:,})"
CERTIFIED = "eps certified (client, third party, replace-one, delta {delta:.2g}, n = {n:,})"
SPARSE = ("fed_avg_rand_k", "fed_avg_top_k", "rand_k", "top_k")
SAVED_COLUMN = "uplink saved (%) against DP-FedAvg up to the target accuracy (72, 72, 50 %)"
TARGETS = {"Fashion-MNIST": 72, "SVHN": 72, "Shakespeare": 50}
SAVED = {
    "Fashion-MNIST": {"top_k": "99", "rand_k": "70"},
    "SVHN": {"top_k": "99", "rand_k": "82"},
    "Shakespeare": {"top_k": "95", "rand_k": "60"},
}


def summary(name: str, data: Data, *more: str) -> Item:
    """Tables 1 to 3."""
    cells: list[Cell] = []
    said = data.summary
    for row in said.rows:
        for algorithm, accuracy in (("top_k", row.top_k), ("rand_k", row.rand_k)):
            label = f"p = {row.p:g}, {NAMES[algorithm]}"
            cells += _line(data, label, data.training(algorithm, row.p), accuracy, row.cost)
    for algorithm, accuracy in (("dp_fed_avg", said.dp_fed_avg), ("fed_avg", said.fed_avg)):
        label, training = f"p = 1, {NAMES[algorithm]}", data.training(algorithm)
        cells += _line(data, label, training, accuracy, said.cost)
    title = f"Summary of results on {data.title} dataset"
    return Item("fed_smp", name, title, cells, notes=[*notes.SUMMARY, *more])


def _line(data: Data, row: str, training: Training, accuracy: str, cost: str) -> list[Cell]:
    """A row of Tables 1 to 3; eps where there is noise."""
    cells = [
        Cell(row, ACCURACY, accuracy, (training,), best_accuracy),
        Cell(row, COST, cost, (training,), uplink_mb),
    ]
    if training.algorithm == "fed_avg":
        return cells
    return [*cells, *_epsilons(data, row, training, data.summary.epsilon)]


def _epsilons(data: Data, row: str, training: Training, epsilon: str) -> list[Cell]:
    """Of all rounds, whether trained or not."""
    clients = configuration.load(data.config).config.clients
    n = data.population or clients
    above = CLAIMED.format(delta=n**-1.1, n=n), CERTIFIED.format(delta=clients**-1.1, n=clients)
    return [
        Cell(row, above[0], epsilon, (), claimed(training, data.claims)),
        Cell(row, above[1], "", (), certified(training, data.counted)),
    ]


def trade_off(
    name: str,
    data: Data,
    algorithm: str,
    said: TradeOff,
    ratios: Sequence[float],
    *more: str,
    trained: Sequence[float] | None = None,
) -> Item:
    """Tables 4 to 9: `ratios` as the columns are headed, `trained` as they are meant, where that is another thing."""
    cells: list[Cell] = []
    for epsilon, accuracies in said.items():
        row = f"sigma = {data.noise[epsilon]:.3g}"
        training = data.training(algorithm, ratios[0], epsilon)
        cells += _epsilons(data, row, training, epsilon)
        for headed, p, accuracy in zip(ratios, trained or ratios, accuracies, strict=True):
            column = f"{ACCURACY} p = {headed:g}" + ("" if p == headed else f" (means {p:g})")
            training = data.training(algorithm, p, epsilon)
            cells.append(Cell(row, column, accuracy, (training,), best_accuracy))
    title = (
        f"Privacy-accuracy tradeoff of {NAMES[algorithm]} with different compression ratios on "
        f"{data.title} dataset"
    )
    about = [notes.BEST, *notes.TRADE_OFF, *more]
    return Item("fed_smp", name, title, cells, notes=about)


def figure2() -> Item:
    """Curves, and the savings that the text reads off them."""
    cells, rows = [], []
    for data in EVERY:
        lines = {NAMES[name]: data.training(name) for name in ("fed_avg", "dp_fed_avg")}
        dense = lines[NAMES["dp_fed_avg"]]
        target = TARGETS[data.title]
        for name, p in data.best.items():
            training = data.training(name, p)
            lines[f"{NAMES[name]}, p = {p:g}"] = training
            row = f"{data.title}, {NAMES[name]}, p = {p:g}"
            read = saved_uplink(target / 100)
            cells.append(Cell(row, SAVED_COLUMN, SAVED[data.title][name], (training, dense), read))
        common: dict[str, Any] = {"ylabel": "test accuracy (%)", "factor": 100}
        mb: dict[str, Any] = {
            "x": "uplink_mb_per_client",
            "xlabel": "uplink per client (MB)",
            "xscale": "log",
        }
        rows.append(
            [Curves(data.title, lines, **common), Curves(data.title, lines, **common, **mb)]
        )
    trained = dict.fromkeys(t for row in rows for t in row[0].lines.values())
    return Item(
        "fed_smp",
        "fig2",
        "Testing accuracy of Fed-SMP and DP-FedAvg w.r.t. communication round (left) and uplink communication cost "
        "(right)",
        cells,
        tuple(trained),
        panels(rows),
        (11, 11),
        notes.FIGURE2,
    )


def figure3() -> Item:
    """Train loss and test accuracy by p, with and without noise."""
    cells, rows = [], []
    for data in EVERY:
        lines: dict[str, list[tuple[float, Training]]] = {}
        for name in SPARSE:
            points = [(row.p, data.training(name, row.p)) for row in data.summary.rows]
            dense = "fed_avg" if name.startswith("fed_avg") else "dp_fed_avg"
            lines[NAMES[name]] = [*points, (1.0, data.training(dense))]
            for row in data.summary.rows:
                published = getattr(row, name, "")
                label = f"{data.title}, {NAMES[name]}, p = {row.p:g}"
                work = (data.training(name, row.p),)
                cells.append(Cell(label, "test accuracy (%)", published, work, best_accuracy))
                cells.append(Cell(label, "train loss", "", work, last("train_loss")))
        axis = {"xlabel": "compression ratio p", "xscale": "log"}
        loss = Points(data.title, lines, last("train_loss"), ylabel="train loss", **axis)
        accuracy = Points(data.title, lines, best_accuracy, ylabel="test accuracy (%)", **axis)
        rows.append([loss, accuracy])
    at_one = [data.training(name) for data in EVERY for name in ("fed_avg", "dp_fed_avg")]
    return Item(
        "fed_smp",
        "fig3",
        "Training loss and testing accuracy of Fed-SMP w.r.t compression ratio, compared with FedAvg-rand_k/top_k",
        cells,
        tuple(at_one),
        panels(rows),
        (11, 11),
        notes.FIGURE3,
    )


ITEMS = (
    Item("fed_smp", "fig1", "An exemplary FL system"),
    summary("table1", FASHION_MNIST, notes.TABLE1),
    summary("table2", SVHN),
    summary("table3", SHAKESPEARE, *notes.SHAKESPEARE),
    figure2(),
    figure3(),
    trade_off("table4", FASHION_MNIST, "rand_k", printed.TABLE4, printed.TABLE4_RATIOS),
    trade_off(
        "table5", FASHION_MNIST, "top_k", printed.TABLE5, printed.TABLE5_RATIOS, notes.TABLE5
    ),
    trade_off("table6", SVHN, "rand_k", printed.TABLE6, printed.TABLE6_RATIOS),
    trade_off(
        "table7",
        SVHN,
        "top_k",
        printed.TABLE7,
        printed.TABLE7_RATIOS,
        notes.TABLE7,
        trained=(0.005, 0.01, 0.05, 0.4, 0.8),
    ),
    trade_off(
        "table8", SHAKESPEARE, "rand_k", printed.TABLE8, printed.TABLE8_RATIOS, *notes.SHAKESPEARE
    ),
    trade_off(
        "table9", SHAKESPEARE, "top_k", printed.TABLE9, printed.TABLE9_RATIOS, *notes.SHAKESPEARE
    ),
)
