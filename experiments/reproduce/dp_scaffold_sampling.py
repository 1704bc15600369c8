"""DP-SCAFFOLD, Figures 9 and 10: l and s against T under a fixed budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from experiments.reproduce.comparisons import claim
from experiments.reproduce.dp_scaffold_published import BUDGETS, CLIENT_RATES, RECORD_RATES
from experiments.reproduce.dp_scaffold_trainings import (
    DATA,
    FEMNIST,
    MISSING,
    MNIST,
    NOTES,
    SYNTHETIC,
    levels,
    training,
)
from experiments.reproduce.filled import Results
from experiments.reproduce.item import Cell, Item, Training, Value
from experiments.reproduce.ledgers import allowed_rounds
from experiments.reproduce.picture import Curves, panels
from experiments.reproduce.reading import final_accuracy
from experiments.show import NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PRIVATE = ("dp_scaffold", "dp_fed_avg")
ROUNDS = {
    (SYNTHETIC, "l"): (556, 282, 162),
    (FEMNIST, "l"): (892, 377, 377),
    (MNIST, "l"): (278, 80, 50),
    (SYNTHETIC, "s"): (340, 333, 282),
    (FEMNIST, "s"): (452, 443, 377),
    (MNIST, "s"): (99, 97, 80),
}
"""T that the paper's formula allows for its budgets, for each l or s; the paper has them as lines in its pictures."""


class Sampled:
    """The trainings of one of the two figures, which vary l or s."""

    def __init__(self, letter: str):
        self.letter = letter
        self.rates = CLIENT_RATES if letter == "l" else RECORD_RATES

    def settings(self, rate: float) -> dict[str, Any]:
        rates = (rate, 0.2) if self.letter == "l" else (0.1, rate)
        return {"local_steps": 10, "client_rate": rates[0], "record_rate": rates[1]}

    def training(self, config: str, level: dict[str, Any], rate: float, name: str) -> Training:
        rounds = ROUNDS[config, self.letter][self.rates.index(rate)]
        return training(config, name, rounds=rounds, **level, **self.settings(rate))

    def allowed(self, config: str, rate: float) -> Value:
        one = self.training(config, {}, rate, "dp_scaffold")
        return Value(float(allowed_rounds(one, BUDGETS[config])))

    def panels(self) -> list[list[Curves]]:
        """Rows of data sets, columns of heterogeneity."""
        return [
            [self._panel(config, name, own) for name, own in levels(config)] for config in BUDGETS
        ]

    def _panel(self, config: str, level: str, own: dict[str, Any]) -> Curves:
        lines = {
            f"{NAMES[name]}, {self.letter} = {rate:g}": self.training(config, own, rate, name)
            for name in PRIVATE
            for rate in self.rates
        }
        title = f"{DATA[config]} {level}, claimed epsilon {BUDGETS[config]:g}"
        return Ended(title, lines, factor=100, ylabel="test accuracy (%)")

    def cells(self) -> list[Cell]:
        found = []
        for config in BUDGETS:
            for level, own in levels(config):
                for rate in self.rates:
                    found += self._cells(config, level, own, rate)
        return found

    def _cells(self, config: str, level: str, own: dict[str, Any], rate: float) -> list[Cell]:
        row = f"{DATA[config]} {level}, {self.letter} = {rate:g}"
        budget = "T for the claimed epsilon (record level, third party, replace-one)"
        cells = [Cell(row, budget, "", (), partial(self.allowed, config, rate))]
        for name in PRIVATE:
            work = (self.training(config, own, rate, name),)
            cells.append(Cell(row, f"{NAMES[name]} (%)", "", work, final_accuracy))
        return cells

    def gap(self, config: str, level: int, rates: Sequence[float], published: str) -> Cell:
        """DP-SCAFFOLD less DP-FedAvg, on average over the rates."""
        named, own = levels(config)[level]
        over = ", ".join(f"{self.letter} = {rate:g}" for rate in rates)
        ours, theirs = (
            [self.training(config, own, rate, name) for rate in rates] for name in PRIVATE
        )
        column = "DP-SCAFFOLD less DP-FedAvg (points)"
        row = f"{DATA[config]} {named}, {over}"
        return claim(row, column, published, final_accuracy, ours, theirs)

    def better(self, one: float, other: float) -> list[Cell]:
        """DP-SCAFFOLD at one rate less that at another, which should be positive."""
        found = []
        column = f"DP-SCAFFOLD: {self.letter} = {one:g} less {self.letter} = {other:g} (points)"
        for config in BUDGETS:
            for named, own in levels(config):
                runs = [[self.training(config, own, x, "dp_scaffold")] for x in (one, other)]
                row = f"{DATA[config]} {named}"
                found.append(claim(row, column, "above 0", final_accuracy, *runs))
        return found


@dataclass(frozen=True)
class Ended(Curves):
    """Curves with a red line where each ends, at T."""

    def draw(self, axes: Axes, results: Results) -> None:
        super().draw(axes, results)
        done = (results[t] for t in self.lines.values() if t in results)
        for last in {run.lines[-1]["round"] for run in done if run.lines}:
            axes.axvline(last, color="red", linestyle=":", linewidth=1)


_L, _S = Sampled("l"), Sampled("s")
_ALL = (0, 1, 2)
_CLIENTS = (
    *_L.cells(),
    _L.gap(SYNTHETIC, 2, CLIENT_RATES, "20"),
    _L.gap(FEMNIST, 0, CLIENT_RATES, "20"),
    _L.gap(MNIST, 0, CLIENT_RATES, "10"),
    *_L.better(0.08, 0.12),
)
_RECORDS = (
    *_S.cells(),
    _S.gap(FEMNIST, 1, (0.2,), "30"),
    _S.gap(FEMNIST, 1, (0.1,), "below 20"),
    _S.gap(FEMNIST, 2, RECORD_RATES, "within 3"),
    _S.gap(MNIST, 2, RECORD_RATES, "within 3"),
    *_S.better(0.2, 0.05),
)
_COHORTS = "l M is rounded down: 3, 4, 4 of FEMNIST's 40 clients for l = 0.08, 0.1, 0.12; 4, 6, 7 of MNIST's 60"
_SIMILAR = (
    '"very similar accuracy scores" at gamma = 100% are read as within 3 points, averaged over s'
)
_SIZE = (14.0, 11.0)

ITEMS = tuple(
    Item("dp_scaffold", name, title, cells, draw=panels(drawn.panels()), size=_SIZE, notes=notes)
    for name, title, cells, drawn, notes in (
        (
            "fig9",
            "Test accuracy with various values for l under fixed privacy budget",
            _CLIENTS,
            _L,
            (*NOTES, _COHORTS, *MISSING),
        ),
        (
            "fig10",
            "Test accuracy with various values for s under fixed privacy budget",
            _RECORDS,
            _S,
            (*NOTES, _SIMILAR, *MISSING),
        ),
    )
)
