"""The tables and figures of the wavelet paper (Ranaweera et al., "... An Utility-Enhanced Approach")."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedpriv.experiments.base.formats import NAMES
from fedpriv.experiments.papers.reproduce.accounting import accounted, epsilon
from fedpriv.experiments.papers.reproduce.item import (
    Cell,
    Computation,
    Computed,
    Item,
    Paper,
    Results,
    Scale,
    Training,
    Value,
)
from fedpriv.experiments.papers.reproduce.picture import Curves, panels
from fedpriv.experiments.papers.reproduce.reading import claim, final_accuracy, numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Level = Literal["record", "user"]
PAPER = Paper("wavelet")
SIGMAS, DATA, EPSILONS = PAPER.said["sigmas"], PAPER.said["data"], PAPER["epsilons"]["rows"]
SIZES = ("small", "medium", "large")
ALGORITHMS: dict[Level, tuple[str, str, str, str]] = {
    "record": ("fed_avg", "dp_sgd", "dyn_dp_sgd", "dp_sgd_wav"),
    "user": ("fed_avg", "dp_fed_avg", "dyn_dp_fed_avg", "dp_fed_avg_wav"),
}
"""Without privacy, vanilla, dynamic, with wavelets."""
DIMENSION, BINS = 28_874, 121
"""Of the MNIST network, and of the histograms of Figure 4."""


def training(level: Level, data: str, algorithm: str, sigma: float) -> Training:
    """A training of the wavelet paper, without settings that its algorithm does not use, so that it is trained once."""
    settings: dict[str, Any] = {"local_epochs": 50}
    if level == "user":
        settings |= {"cohort": 100, "learning_rate": 0.1}
    if algorithm in ("dp_fed_avg", "dp_fed_avg_wav"):
        settings["bounded"] = "gradients"
    if algorithm != "fed_avg":
        settings["noise_multiplier"] = sigma
    schedule: dict[str, Any] = {"rounds": 300, "every": 10, "shrinking": ("local_epochs",)}
    return Training(f"wavelet_{data}", algorithm, settings, **schedule)


def curves(name: str) -> Item:
    """The wavelet paper's Figures 7 to 12: three panels, one for each sigma; gains over the rivals."""
    said, drawn, cells = PAPER[name], list[Curves](), list[Cell]()
    for index, (size, sigma) in enumerate(zip(SIZES, SIGMAS, strict=True)):
        algorithms = ALGORITHMS[said["level"]]
        works = [training(said["level"], said["data"], a, sigma) for a in algorithms]
        lines = {NAMES[work.algorithm]: work for work in works}
        title = f"{size} noise, sigma = {sigma:g}"
        drawn.append(Curves(title, lines, factor=100, ylabel="test accuracy (%)"))
        row, (_, vanilla, dynamic, wav) = f"sigma = {sigma:g}", works
        cells += numbers(lines, row, "{} (%)", final_accuracy)
        for rival, gains in ((vanilla, "gains over vanilla"), (dynamic, "gains over dynamic")):
            column = f"{NAMES[wav.algorithm]} less {NAMES[rival.algorithm]} (points)"
            cells.append(claim(row, column, said[gains][index], final_accuracy, [wav], [rival]))
    return PAPER.item(name, cells, draw=panels([drawn]))


def optimizers(name: str) -> Item:
    """The wavelet paper's gains of Adam and AdaGrad."""
    cells: list[Cell] = []
    for optimizer, data, gains in PAPER[name]["rows"]:
        for sigma, printed, gain in zip(SIGMAS, EPSILONS[data], gains, strict=True):
            row = f"{NAMES[optimizer]}, {DATA[data]}, sigma = {sigma:g} (printed epsilon {printed})"
            both = (optimizer, f"{optimizer}_wav")
            plain, wav = (training("record", data, each, sigma) for each in both)
            cells += [
                Cell(row, "without wavelets (%)", "", (plain,), final_accuracy),
                Cell(row, "with wavelets (%)", "", (wav,), final_accuracy),
                claim(row, "gain (points)", gain, final_accuracy, [wav], [plain]),
            ]
    return PAPER.item(name, cells)


def epsilons(name: str) -> Item:
    cells = [
        cell
        for level in ALGORITHMS
        for data in DATA
        for index in range(len(SIGMAS))
        for cell in _epsilon(level, data, index)
    ]
    return PAPER.item(name, cells)


def _epsilon(level: Level, data: str, index: int) -> Iterator[Cell]:
    sigma, (_, plain, _, wavelet) = SIGMAS[index], ALGORITHMS[level]
    vanilla, wav = (clipped(training(level, data, name, sigma)) for name in (plain, wavelet))
    unit = {"record": "record", "user": "client"}[level]
    row = f"{unit} level, {DATA[data]}, {SIZES[index]} noise (sigma = {sigma:g})"
    certified = "certified (third party; record level: add-or-remove, client level: zero-out)"
    for column, published, work, name in (
        ("claimed epsilon (third party, add-or-remove)", EPSILONS[data][index], wav, "claimed"),
        (f"vanilla, {certified}", "", vanilla, "third_party"),
        (f"WAV, {certified}", "", wav, "third_party"),
    ):
        yield Cell(row, column, published, (accounted(work),), epsilon(name))


def clipped(one: Training) -> Training:
    """A training of the wavelet paper at user level with clipped updates, for which there is a certificate."""
    kept = {name: value for name, value in one.settings.items() if name != "bounded"}
    return replace(one, settings=kept)


def transform(name: str) -> Item:
    """The wavelet paper's every mean and detail coefficient, and the weights of section 4.3."""
    cells, said = list[Cell](), PAPER[name]
    vector = np.array(said["vector"], np.float32)
    for level, kind, values in said["rows"]:
        for at, printed in enumerate(values):
            row, read = f"level {level}, {kind} coefficient {at + 1}", partial(_coefficient, vector)
            cells.append(Cell(row, "value", printed, (), partial(read, level, kind, at)))
    for at, printed in enumerate(said["weights"]):
        cells.append(Cell(f"weight of H_{at}", "value", printed, (), partial(_weight, at)))
    return PAPER.item(name, cells)


def _coefficient(vector: Any, level: int, kind: str, at: int) -> Value:
    """Means of a level are those of the transform of blocks; details lie beside each other, coarsest first."""
    from fedpriv.mechanisms.haar import haar

    if kind == "mean":
        return Value(float(haar(vector.reshape(2**level, -1)[at])[0]))
    return Value(float(haar(vector)[2**level + at]))


def _weight(at: int) -> Value:
    """In the paper's order: the mean, the finest details first, the coarsest last."""
    from fedpriv.mechanisms.haar import weights

    ours = weights(len(PAPER["table2"]["vector"]))
    return Value(float(np.concatenate([ours[:1], ours[:0:-1]])[at]))


def noise(name: str) -> Item:
    """The wavelet paper's noise as it was drawn: its density, its variance, and what Lemma 1 says."""
    drawn, column = Computation("wavelet-noise", _noise), "variance per coordinate (sigma = C = 1)"
    lemma = (2 + np.log2(1 << (DIMENSION - 1).bit_length())) / 2

    def variance(which: str, found: Computed) -> Value:
        return Value(found.summary[which])

    def difference(found: Computed) -> Value:
        return Value(found.summary["haar"] - found.summary["isotropic"])

    cells = [
        Cell("DP-SGD", column, "1", (drawn,), partial(variance, "isotropic")),
        Cell("DP-SGD-WAV", column, f"{lemma:g}", (drawn,), partial(variance, "haar")),
        Cell("DP-SGD-WAV less DP-SGD", column, "below 0", (drawn,), difference),
        Cell("DP-SGD-WAV, exactly", column, "", (), _exact),
    ]
    return PAPER.item(name, cells, draw=partial(_densities, drawn))


def _noise(scale: Scale, data_dir: Path | None) -> dict[str, Any]:
    """Histograms and variances of one draw of each noise."""
    import jax
    import jax.numpy as jnp

    import fedpriv as fp

    edges = np.linspace(-4, 4, BINS)
    found: dict[str, Any] = {"edges": edges.tolist()}
    for name, shape in (
        ("isotropic", fp.noise.isotropic()),
        ("haar", fp.noise.haar_noise(DIMENSION)),
    ):
        draw: Any = shape.draw
        compiled = jax.jit(partial(draw, like=jnp.zeros(DIMENSION)))
        drawn = np.asarray(compiled(jax.random.key(0)), float)
        found[name] = float(drawn.var())
        found[f"{name}_density"] = np.histogram(drawn, edges, density=True)[0].tolist()
    return found


def _exact() -> Value:
    from fedpriv.mechanisms.haar import padded_length, variance_left, weights

    m = padded_length(DIMENSION)
    return Value(float(variance_left(weights(m) ** -2.0)[0]))


def _densities(drawn: Computation, figure: Figure, results: Results) -> None:
    axes, found = figure.subplots(), results.get(drawn)
    if isinstance(found, Computed):
        edges = np.array(found.summary["edges"])
        looks = {"isotropic": ("DP-SGD", "red"), "haar": ("DP-SGD-WAV", "blue")}
        for name, (label, colour) in looks.items():
            density = found.summary[f"{name}_density"]
            axes.plot((edges[1:] + edges[:-1]) / 2, density, color=colour, label=label)
        axes.legend()
    axes.set(xlabel="noise", ylabel="probability density")


KINDS = {
    "curves": curves,
    "optimizers": optimizers,
    "transform": transform,
    "noise": noise,
    "epsilons": epsilons,
}
