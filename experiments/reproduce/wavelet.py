"""Haar-wavelet noise (Ranaweera et al., "... An Utility-Enhanced Approach"): every table and figure."""

from __future__ import annotations

from dataclasses import replace

from experiments.reproduce.item import Cell, Item, Training
from experiments.reproduce.ledgers import accounted, epsilon
from experiments.reproduce.wavelet_figures import FIGURES, SIZES, table_3
from experiments.reproduce.wavelet_noise import figure_4, table_2
from experiments.reproduce.wavelet_published import DATA, EPSILONS, SIGMAS
from experiments.reproduce.wavelet_trainings import Level, training


def _epsilons() -> Item:
    cells = [
        cell
        for level in _COSTED
        for data in DATA
        for index in range(len(SIGMAS))
        for cell in _epsilon(level, data, index)
    ]
    notes = (
        "delta = 1e-5. The paper prints neither the sampling rates nor the number of steps of its epsilons, and "
        "no choice of the two gives them at its sigma (fedpriv.privacy.wavelet_claim); here 300 rounds of 50 local "
        "epochs, 20 of 100 clients per round (record level) or all of them (user level), lots of 60",
        "claimed: for the wavelet form, which the paper says has the vanilla epsilon; certified at user level for "
        "clipped updates; for clipped gradients, as in the paper, nothing is certified",
    )
    return Item("wavelet", "epsilons", "Printed epsilons", cells, size=(16, 7), notes=notes)


_COSTED: dict[Level, tuple[str, str]] = {
    "record": ("dp_sgd", "dp_sgd_wav"),
    "user": ("dp_fed_avg", "dp_fed_avg_wav"),
}


def _epsilon(level: Level, data: str, index: int) -> list[Cell]:
    sigma, printed = SIGMAS[index], EPSILONS[data][index]
    vanilla, wav = (clipped(training(level, data, name, sigma)) for name in _COSTED[level])
    unit = {"record": "record", "user": "client"}[level]
    row = f"{unit} level, {DATA[data]}, {SIZES[index]} noise (sigma = {sigma:g})"
    certified = "certified (third party; record level: add-or-remove, client level: zero-out)"
    cells = [
        ("claimed epsilon (third party, add-or-remove)", str(printed), wav, "claimed"),
        (f"vanilla, {certified}", "", vanilla, "third_party"),
        (f"WAV, {certified}", "", wav, "third_party"),
    ]
    return [
        Cell(row, column, said, (accounted(work),), epsilon(name))
        for column, said, work, name in cells
    ]


def clipped(one: Training) -> Training:
    """At user level with clipped updates, for which there is a certificate."""
    kept = {name: value for name, value in one.settings.items() if name != "bounded"}
    return replace(one, settings=kept)


ITEMS = (
    Item("wavelet", "table1", "Nomenclature"),
    table_2(),
    table_3(),
    Item("wavelet", "fig1", "FL configurations with sample-level DP and user-level DP"),
    Item("wavelet", "fig2", "Example of a federated learning model"),
    Item("wavelet", "fig3", "Decomposition tree of the Haar wavelet transform"),
    figure_4(),
    Item("wavelet", "fig5", "Architecture of the CNN for MNIST and Fashion-MNIST"),
    Item("wavelet", "fig6", "Architecture of the CNN for CIFAR-10"),
    *FIGURES,
    _epsilons(),
)
