"""The wavelet paper's Table II and Figure 4: its worked example, and the densities of the two noises."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.compare import RunFolder
from experiments.reproduce.filled import Results
from experiments.reproduce.item import Cell, Computation, Item, Scale, Value
from experiments.reproduce.wavelet_published import EXAMPLE, TABLE_2, WEIGHTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIMENSION = 28_874  # of the MNIST network
BINS = 121


def table_2() -> Item:
    """Every mean and detail coefficient, and the weights of section 4.3."""
    cells = []
    for level, means, details in TABLE_2:
        for kind, values in (("mean", means), ("detailed", details)):
            for at, value in enumerate(values):
                read = partial(_coefficient, level, kind, at)
                row = f"level {level}, {kind} coefficient {at + 1}"
                cells.append(Cell(row, "value", f"{value:g}", (), read))
    for at, value in enumerate(WEIGHTS):
        cells.append(Cell(f"weight of H_{at}", "value", str(value), (), partial(_weight, at)))
    notes = (
        "computed with fedpriv.wavelet.haar; the paper numbers the levels of its table from the input (3) down",
        "weights: W of [H_0, the finest details first, the coarsest last], the paper's order (section 4.3)",
    )
    size = (10.0, 5.0)
    title = "Haar wavelet transform computation"
    return Item("wavelet", "table2", title, cells, size=size, notes=notes)


def _coefficient(level: int, kind: str, at: int) -> Value:
    """Means of a level are those of the transform of blocks; details lie beside each other, coarsest first."""
    from fedpriv.mechanisms.haar import haar

    count = 2**level
    if kind == "mean":
        blocks = np.reshape(np.array(EXAMPLE, np.float32), (count, -1))
        return Value(float(haar(blocks[at])[0]))
    return Value(float(haar(np.array(EXAMPLE, np.float32))[count + at]))


def _weight(at: int) -> Value:
    from fedpriv.mechanisms.haar import weights

    ours = weights(len(EXAMPLE))
    return Value(float(np.concatenate([ours[:1], ours[:0:-1]])[at]))


def figure_4() -> Item:
    """Noise as it was drawn: its density, its variance, and what Lemma 1 says."""
    noise = Computation("wavelet-noise", _noise)
    read = "variance per coordinate (sigma = C = 1)"
    lemma = (2 + np.log2(1 << (DIMENSION - 1).bit_length())) / 2
    cells = [
        Cell("DP-SGD", read, "1", (noise,), partial(_number, "isotropic")),
        Cell("DP-SGD-WAV", read, f"{lemma:g}", (noise,), partial(_number, "haar")),
        Cell("DP-SGD-WAV less DP-SGD", read, "below 0", (noise,), _difference),
        Cell("DP-SGD-WAV, exactly", read, "", (), _exact),
    ]
    notes = (
        f"noise of both methods at the same sigma and C on {DIMENSION:,} coordinates, drawn by fedpriv.noise",
        "published for DP-SGD-WAV: Lemma 1's (2 + log2 m) / 2 sigma^2, which is larger than DP-SGD's and not what the "
        "weights give; the picture's narrower curve is right. The same sigma is not the same certificate: see epsilons",
    )
    return Item(
        "wavelet",
        "fig4",
        "Gaussian distribution curves with the noise variance of the two methods",
        cells,
        draw=partial(_draw, noise),
        size=(7, 4.5),
        notes=notes,
    )


def _noise(scale: Scale, data_dir: Path | None) -> dict[str, Any]:
    """Histograms and variances of one draw of each noise."""
    import jax
    import jax.numpy as jnp

    import fedpriv as fp

    edges = np.linspace(-4, 4, BINS)
    found: dict[str, Any] = {"edges": edges.tolist()}
    for name, noise in (
        ("isotropic", fp.noise.isotropic()),
        ("haar", fp.noise.haar_noise(DIMENSION)),
    ):
        draw = jax.jit(partial(noise.draw, like=jnp.zeros(DIMENSION)))
        drawn = np.asarray(draw(jax.random.key(0)), float)
        found[name] = float(drawn.var())
        found[f"{name}_density"] = np.histogram(drawn, edges, density=True)[0].tolist()
    return found


def _number(name: str, run: RunFolder) -> Value:
    return Value(run.summary[name])


def _difference(run: RunFolder) -> Value:
    return Value(run.summary["haar"] - run.summary["isotropic"])


def _exact() -> Value:
    from fedpriv.mechanisms.haar import padded_length, variance_left, weights

    m = padded_length(DIMENSION)
    return Value(float(variance_left(weights(m) ** -2.0)[0]))


def _draw(noise: Computation, figure: Figure, results: Results) -> None:
    axes = figure.subplots()
    if noise in results:
        found = results[noise].summary
        edges = np.array(found["edges"])
        for name, label, colour in (
            ("isotropic", "DP-SGD", "red"),
            ("haar", "DP-SGD-WAV", "blue"),
        ):
            density = found[f"{name}_density"]
            axes.plot((edges[1:] + edges[:-1]) / 2, density, color=colour, label=label)
        axes.legend()
    axes.set(xlabel="noise", ylabel="probability density")
