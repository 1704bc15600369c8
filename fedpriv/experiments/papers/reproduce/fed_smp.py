"""The tables and figures of Fed-SMP (Hu, Guo, Gong, arXiv:2202.07178)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fedpriv.experiments.base.formats import NAMES
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.ledger import Ledger
from fedpriv.experiments.papers.fed_smp import FedSMP
from fedpriv.experiments.papers.reproduce.accounting import certified, claimed
from fedpriv.experiments.papers.reproduce.item import Cell, Item, Paper, Training
from fedpriv.experiments.papers.reproduce.picture import Curves, Points, panels
from fedpriv.experiments.papers.reproduce.reading import (
    best_accuracy,
    last,
    saved_uplink,
    uplink_mb,
)

PAPER = Paper("fed_smp")
ACCURACY, COST = "accuracy (%)", "uplink per client (MB)"
EPSILON = "eps {} (client, third party, {}, delta {:.2g}, n = {:,})"
SPARSE = ("fed_avg_rand_k", "fed_avg_top_k", "rand_k", "top_k")
SAVED = "uplink saved (%) against DP-FedAvg up to the target accuracy (72, 72, 50 %)"
TRAIN_LOSS_ON = 10_000  # examples: the cost of one more evaluation


class Data:
    """One of Fed-SMP's three data sets, and the trainings on it that tables and figures share.

    Attributes:
      config: name in configs/.
      noise: eps as printed -> the noise multiplier that gives it.
      best: sparsifier -> the compression ratio of Figure 2.
      population: n that the printed eps is of, where it is a hypothetical one.
      counted: the ledger of a config, of its own number of clients; needs no data.
    """

    def __init__(self, title: str):
        said = PAPER.said["data"][title]
        self.title, self.config, self.epsilon = title, said["config"], said["epsilon"]
        self.noise: dict[str, float] = said["noise"]
        self.best: dict[str, float] = said["best"]
        self.population: int | None = said["population"]
        self.target: int = said["target"]
        self.rows: list[list[Any]] = PAPER[said["summary"]]["rows"]
        self._rounds: int = said["rounds"]
        module: Any = modules.load(self.config)
        self.clients: int = module.settings.clients
        self.counted = getattr(module, "counted", module.ledger)

    def training(self, algorithm: str, p: float | None = None, epsilon: str = "") -> Training:
        """Of one algorithm, at its ratio if it has one, and at the noise of `epsilon`, by default the summary's."""
        settings: dict[str, object] = {} if p is None else {"p": p}
        if not algorithm.startswith("fed_avg"):
            settings["noise_multiplier"] = self.noise[epsilon or self.epsilon]
        settings["train_loss_examples"] = TRAIN_LOSS_ON
        return Training(self.config, algorithm, settings, self._rounds, seeds=5)

    def claims(self, settings: FedSMP) -> Ledger:
        """The ledger that the printed eps is of."""
        return self.counted(replace(settings, clients=self.population or self.clients))

    def epsilons(self, row: str, training: Training, epsilon: str) -> list[Cell]:
        """Of all rounds, whether trained or not."""
        n, own = self.population or self.clients, self.clients
        claim = EPSILON.format("claimed", "add-or-remove", n**-1.1, n)
        certificate = EPSILON.format("certified", "replace-one", own**-1.1, own)
        return [
            Cell(row, claim, epsilon, (), claimed(training, self.claims)),
            Cell(row, certificate, "", (), certified(training, self.counted)),
        ]


SETS = {title: Data(title) for title in PAPER.said["data"]}


def summary(name: str) -> Item:
    """Fed-SMP's Tables 1 to 3; eps where there is noise."""
    data, cells = SETS[PAPER[name]["data"]], list[Cell]()
    for algorithm, p, accuracy, cost in PAPER[name]["rows"]:
        row, training = f"p = {p or 1:g}, {NAMES[algorithm]}", data.training(algorithm, p)
        cells.append(Cell(row, ACCURACY, accuracy, (training,), best_accuracy))
        cells.append(Cell(row, COST, cost, (training,), uplink_mb))
        if algorithm != "fed_avg":
            cells += data.epsilons(row, training, data.epsilon)
    return PAPER.item(name, cells)


def trade_off(name: str) -> Item:
    """Fed-SMP's Tables 4 to 9: ratios as the columns are headed, trained as meant, where that is another thing."""
    said, cells = PAPER[name], list[Cell]()
    data, algorithm, headed = SETS[said["data"]], said["algorithm"], said["columns"]
    for epsilon, accuracies in said["rows"].items():
        row = f"sigma = {data.noise[epsilon]:.3g}"
        cells += data.epsilons(row, data.training(algorithm, headed[0], epsilon), epsilon)
        for head, p, accuracy in zip(
            headed, said.get("columns mean", headed), accuracies, strict=True
        ):
            column = f"{ACCURACY} p = {head:g}" + ("" if p == head else f" (means {p:g})")
            training = data.training(algorithm, p, epsilon)
            cells.append(Cell(row, column, accuracy, (training,), best_accuracy))
    return PAPER.item(name, cells)


def curves(name: str) -> Item:
    """Fed-SMP's curves, and the savings that the text reads off them."""
    cells, rows = [], []
    for title, data in SETS.items():
        lines = {NAMES[each]: data.training(each) for each in ("fed_avg", "dp_fed_avg")}
        dense = lines[NAMES["dp_fed_avg"]]
        for sparse, p in data.best.items():
            label, training = f"{NAMES[sparse]}, p = {p:g}", data.training(sparse, p)
            lines[label] = training
            saved, read = PAPER[name]["saved"][title][sparse], saved_uplink(data.target / 100)
            cells.append(Cell(f"{title}, {label}", SAVED, saved, (training, dense), read))
        curves = Curves(title, lines, factor=100, ylabel="test accuracy (%)")
        mb: dict[str, Any] = {
            "x": "uplink_mb_per_client",
            "xlabel": "uplink per client (MB)",
            "xscale": "log",
        }
        rows.append([curves, replace(curves, **mb)])
    trained = [t for row in rows for t in row[0].lines.values()]
    return PAPER.item(name, cells, work=trained, draw=panels(rows))


def ratios(name: str) -> Item:
    """Fed-SMP's train loss and test accuracy by p, with and without noise; published are those of Tables 1 to 3."""
    cells, rows, ends = [], [], list[Training]()
    for title, data in SETS.items():
        printed = {(algorithm, p): accuracy for algorithm, p, accuracy, _ in data.rows}
        every = dict.fromkeys(p for _, p in printed if p)
        plain, private = data.training("fed_avg"), data.training("dp_fed_avg")
        lines: dict[str, list[tuple[float, Training]]] = {}
        for sparse in SPARSE:
            points = [(p, data.training(sparse, p)) for p in every]
            for p, training in points:
                row, published = (
                    f"{title}, {NAMES[sparse]}, p = {p:g}",
                    printed.get((sparse, p), ""),
                )
                cells.append(Cell(row, "test accuracy (%)", published, (training,), best_accuracy))
                cells.append(Cell(row, "train loss", "", (training,), last("train_loss")))
            dense = plain if sparse.startswith("fed_avg") else private
            lines[NAMES[sparse]] = [*points, (1.0, dense)]
        axis = {"xlabel": "compression ratio p", "xscale": "log"}
        loss = Points(title, lines, last("train_loss"), ylabel="train loss", **axis)
        accuracy = Points(title, lines, best_accuracy, ylabel="test accuracy (%)", **axis)
        rows.append([loss, accuracy])
        ends += [plain, private]
    return PAPER.item(name, cells, work=ends, draw=panels(rows))


KINDS = {"summary": summary, "trade-off": trade_off, "curves": curves, "ratios": ratios}
