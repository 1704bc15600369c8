"""The wavelet paper's Figures 7 to 12 and Table III: accuracy with and without wavelets."""

from __future__ import annotations

from experiments.reproduce.comparisons import claim
from experiments.reproduce.item import Cell, Item
from experiments.reproduce.picture import Curves, panels
from experiments.reproduce.reading import final_accuracy
from experiments.reproduce.wavelet_published import (
    DATA,
    EPSILONS,
    GAINS,
    GAINS_OVER_DYNAMIC,
    SIGMAS,
    TABLE_3,
)
from experiments.reproduce.wavelet_trainings import (
    NOTES,
    RECORD_NOTE,
    USER_NOTE,
    Level,
    training,
)
from experiments.show import NAMES

SIZES = ("small", "medium", "large")
ALGORITHMS: dict[Level, tuple[str, str, str, str]] = {
    "record": ("fed_avg", "dp_sgd", "dyn_dp_sgd", "dp_sgd_wav"),
    "user": ("fed_avg", "dp_fed_avg", "dyn_dp_fed_avg", "dp_fed_avg_wav"),
}
"""Without privacy, vanilla, dynamic, with wavelets."""


def figure(name: str, level: Level, data: str) -> Item:
    """Three panels, one for each sigma."""
    drawn = [
        Curves(
            f"{size} noise, sigma = {sigma:g}",
            {NAMES[a]: training(level, data, a, sigma) for a in ALGORITHMS[level]},
            factor=100,
            ylabel="test accuracy (%)",
        )
        for size, sigma in zip(SIZES, SIGMAS, strict=True)
    ]
    cells = [cell for index in range(len(SIGMAS)) for cell in _cells(level, data, index)]
    title = f"Learning accuracies with {_LEVELS[level]} DP on {DATA[data]}"
    notes = (*NOTES, *(RECORD_NOTE if level == "record" else USER_NOTE))
    return Item("wavelet", name, title, cells, draw=panels([drawn]), size=(15, 4.5), notes=notes)


_LEVELS = {"record": "sample-level", "user": "user-level"}


def _cells(level: Level, data: str, index: int) -> list[Cell]:
    row, sigma = f"sigma = {SIGMAS[index]:g}", SIGMAS[index]
    works = [training(level, data, a, sigma) for a in ALGORITHMS[level]]
    cells = [
        Cell(row, f"{NAMES[work.algorithm]} (%)", "", (work,), final_accuracy) for work in works
    ]
    for printed, rival in ((GAINS, works[1]), (GAINS_OVER_DYNAMIC, works[2])):
        column = f"{NAMES[works[3].algorithm]} less {NAMES[rival.algorithm]} (points)"
        published = str(printed[level, data][index])
        cells.append(claim(row, column, published, final_accuracy, [works[3]], [rival]))
    return cells


def table_3() -> Item:
    """Gains of Adam and AdaGrad with wavelets."""
    cells = [
        cell
        for (optimiser, data), gains in TABLE_3.items()
        for index, gain in enumerate(gains)
        for cell in _gain(optimiser, data, index, gain)
    ]
    rates = (
        "learning rates 0.005 (CIFAR-10: 0.002) for Adam and ten times that for AdaGrad, not tuned"
    )
    title = "Accuracy improvement with DP-Adam and DP-AdaGrad in place of DP-SGD, delta = 1e-5"
    return Item("wavelet", "table3", title, cells, size=(15, 6), notes=(*NOTES, rates))


def _gain(optimiser: str, data: str, index: int, gain: float) -> list[Cell]:
    sigma, printed = SIGMAS[index], EPSILONS[data][index]
    row = f"{NAMES[optimiser]}, {DATA[data]}, sigma = {sigma:g} (printed epsilon {printed:g})"
    plain, wav = (training("record", data, name, sigma) for name in (optimiser, f"{optimiser}_wav"))
    return [
        Cell(row, "without wavelets (%)", "", (plain,), final_accuracy),
        Cell(row, "with wavelets (%)", "", (wav,), final_accuracy),
        claim(row, "gain (points)", str(gain), final_accuracy, [wav], [plain]),
    ]


FIGURES = tuple(
    figure(f"fig{7 + number}", level, data)
    for number, (level, data) in enumerate((lv, d) for lv in ALGORITHMS for d in DATA)
)
