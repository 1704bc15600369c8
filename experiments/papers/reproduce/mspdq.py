"""The figures of MSP-FL and MSPDQ-FL (Wang, Cao, Jin and Chow), but for Figure 6; the paper has no table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.papers.reproduce.item import Cell, Item, Paper, Read, Results, Training, Value
from experiments.papers.reproduce.picture import Curves, panels
from experiments.papers.reproduce.reading import complete, final_accuracy, lines, over_seeds
from experiments.runs.run_folder import RunFolder
from experiments.tables.uploads import uploads_until

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = Paper("mspdq")
NOTES = tuple(PAPER.notes[name] for name in ("unprinted", "seeds", "columns", "no epsilon"))
MNIST, CIFAR = "mspdq_mnist", "mspdq_cifar10"
SUFFIX = {CIFAR: "", MNIST: "_mnist"}
"""Of the items that draw a figure of CIFAR-10 on either."""
DATA = {MNIST: "MNIST", CIFAR: "CIFAR-10"}
LOCAL_EPOCHS = {MNIST: 10, CIFAR: 5}
CHANCE = 10.0
"""Accuracy in % of a model that predicts one of ten classes."""
COLUMNS: dict[str, Any] = {"interval": "columns", "gamma": 0.3}
"""With the quantizer's interval by columns, and a larger gamma: what trains, see experiments/results/mspdq.md."""
INTERVALS: dict[str, dict[str, Any]] = {"as printed": {}, "by columns, gamma = 0.3": COLUMNS}
DEFAULTS: dict[str, Any] = {"gamma": 0.1, "decay": "linear", "splitting_factor": 0.3}
DEFAULTS |= {
    "interval": "dynamic",
    "bits": 8,
    "exchanges": 10,
    "msp_exchanges": 4,
    "unstable": False,
}
"""Of the configs: left out of a training, so that figures which say the same in other words share it."""
WEIGHTS = {"linear": "gamma / (k + 1)", "root": "gamma / sqrt(k + 1)", "none": "constant gamma"}
ERROR, LEAST = 0.1, 2
"""Of Figure 4: test error of one part of the paper's ratio, and the parts that groups 2 and 3 go down to."""


def training(config: str, algorithm: str, **settings: Any) -> Training:
    own = {name: value for name, value in settings.items() if DEFAULTS.get(name) != value}
    own["local_epochs"] = LOCAL_EPOCHS[config]
    schedule: dict[str, Any] = {"rounds": 60, "seeds": 3, "every": 1}
    schedule["shrinking"] = ("local_epochs",)
    return Training(config, algorithm, own, **schedule)


def quantized(config: str, bits: int, exchanges: int, **settings: Any) -> Training:
    """MSPDQ-FL."""
    return training(config, "mspdq_fl", bits=bits, exchanges=exchanges, **settings)


def accuracies(run: RunFolder) -> np.ndarray:
    """f64[evaluations, seeds], in %; chance at the end of a run that diverged, of all its seeds."""
    found = [100 * np.array(line.metrics["accuracy"].per_seed) for line in lines(run)]
    if not complete(run):
        found.append(np.full_like(found[-1], CHANCE) if found else np.array([CHANCE]))
    return np.stack(found)


def least_lead(first: RunFolder, second: RunFolder) -> Value:
    """The least that the first run's accuracy has more than the second's, over the evaluations, in points."""
    pairs = zip(accuracies(first), accuracies(second), strict=False)
    return over_seeds(np.min([a - b for a, b in pairs], axis=0))


def last_lead(first: RunFolder, second: RunFolder) -> Value:
    """What the first run has more after the last round, in points."""
    return over_seeds(accuracies(first)[-1] - accuracies(second)[-1])


def late_loss(run: RunFolder) -> Value:
    """Best accuracy less the last, in points."""
    found = accuracies(run)
    return over_seeds(found.max(0) - found[-1])


def early_shortfall(first: RunFolder, second: RunFolder) -> Value:
    """The most that the first run's accuracy is below the second's in the first third of the evaluations, in points."""
    a, b = accuracies(first), accuracies(second)
    early = max(1, len(b) // 3)
    pairs = zip(a[:early], b[:early], strict=False)
    return over_seeds(np.max([y - x for x, y in pairs], axis=0))


def last_span(*runs: RunFolder) -> Value:
    """The largest less the smallest accuracy after the last round, in points."""
    return over_seeds(np.ptp([accuracies(run)[-1] for run in runs], axis=0))


def statement(row: str, column: str, published: str, work: Sequence[Training], read: Read) -> Cell:
    """A claim; what diverged counts, too."""
    return Cell(f"claim: {row}", column, published, tuple(work), read, of_diverged=True)


def lead(row: str, published: str, ours: Training, theirs: Training) -> Cell:
    """Of one training over another after the last round, seed by seed."""
    column = "difference in accuracy (points)"
    return Cell(row, column, published, (ours, theirs), last_lead, of_diverged=True)


def measured(rows: Mapping[str, Training], before: str = "") -> list[Cell]:
    """A line for each label with the last accuracy."""
    column = "last accuracy (%)"
    return [Cell(before + row, column, "", (work,), final_accuracy) for row, work in rows.items()]


def both(title: str, drawn: Mapping[str, Training]) -> list[Curves]:
    """A panel with the accuracy and one with the loss."""
    loss = Curves(f"{title}, loss", drawn, "loss", ylabel="test loss")
    return [of_accuracy(f"{title}, accuracy", drawn), loss]


def of_accuracy(title: str, drawn: Mapping[str, Training]) -> Curves:
    return Curves(title, drawn, factor=100.0, ylabel="test accuracy (%)")


def figure_2(data: str) -> Item:
    """MSP-FL, MSPDQ-FL and their rivals."""
    plain, msp = training(data, "fed_avg"), training(data, "msp_fl", msp_exchanges=4)
    own = {f"MSPDQ-FL ({x})": quantized(data, 8, 10, **more) for x, more in INTERVALS.items()}
    rivals = {
        "FedAvg + LDP": training(data, "ldp_fed_avg", **{"ldp.epsilon": 10.0}),
        "JoPEQ": training(data, "jopeq", bits=8, **{"jopeq.epsilon": 10.0}),
    }
    drawn = {"FedAvg": plain, "MSP-FL": msp, **own, **rivals}
    about = "claim: MSP-FL within 3 points of FedAvg"
    cells = [*measured(drawn), lead(about, "within 3", msp, plain)]
    for name, one in {"MSP-FL": msp, **own}.items():
        for rival, other in rivals.items():
            row, always = f"{name} above {rival}", "least over the evaluations (points)"
            cells.append(lead(f"claim: {row}", "above 0", one, other))
            cells.append(statement(row, always, "above 0", (one, other), least_lead))
    draw = panels([both(DATA[data], drawn)[::-1]])
    return PAPER.item("fig2" + SUFFIX[data], cells, draw=draw, size=(12, 5))


def figure_3(name: str, sets: Sequence[str]) -> Item:
    """Exchanges and bits."""
    said, drawn, cells = PAPER["fig3"], list[list[Curves]](), list[Cell]()
    for interval, more in INTERVALS.items():
        drawn.append([])
        for data, k in [(data, k) for data in sets for k in said["exchanges"]]:
            of_bits = {f"{bits} bits": quantized(data, bits, k, **more) for bits in said["bits"]}
            title = f"{DATA[data]}, K_t = {k}, {interval}"
            drawn[-1].append(of_accuracy(title, of_bits))
            cells += measured(of_bits, f"{title}, ")
            cells += _bits(title, of_bits, (data, k) == (CIFAR, 20))
    return PAPER.item(name, cells, draw=panels(drawn), size=(9 * len(sets), 8))


def _bits(name: str, drawn: Mapping[str, Training], degrades: bool) -> list[Cell]:
    """Normal at first; 6 bits lose late on CIFAR-10 with K_t = 20, and with that alone."""
    first, six, below = drawn["8 bits"], drawn["6 bits"], "most below 8 bits (points)"
    cells = []
    for label in ("6 bits", "4 bits"):
        row, work = f"{name}, {label} normal at first", (drawn[label], first)
        cells.append(statement(row, below, "below 5", work, early_shortfall))
    late, published = ("lose late", "above 3") if degrades else ("do not lose late", "below 3")
    column = "best less last accuracy (points)"
    return [*cells, statement(f"{name}, 6 bits {late}", column, published, (six,), late_loss)]


def figure_4() -> Item:
    """Uploads until a prescribed error, and that they grow as the error shrinks and as bits do."""
    cells, groups = [], bars()
    for name, one, target in [bar for group in groups for bar in group]:
        bits, factor = ((DEFAULTS | one.settings)[x] for x in ("bits", "splitting_factor"))
        row = f"{name}: test error {1 - target:.1f}, {bits} bits, splitting factor {factor}"
        cells.append(Cell(row, "uploads", "", (one,), partial(_uploads, target)))
    for group in groups[:2]:
        for (less, first, low), (more, second, high) in pairwise(group):
            works = tuple(dict.fromkeys((second, first)))
            row, read = f"claim: {more} above {less}", partial(_more, high, low)
            cells.append(Cell(row, "uploads", "above 0", works, read))
    return PAPER.item("fig4", cells, draw=_draw_uploads, size=(9, 4.5))


def bars() -> list[list[tuple[str, Training, float]]]:
    """The three groups: a bar's name, what is trained, and the accuracy that ends it."""
    by_theorem = {"exchanges": 0, "most_exchanges": 200, **COLUMNS}
    found = []
    for group, (field, values) in enumerate(PAPER["fig4"]["groups"].items(), 1):
        row = []
        for letter, given in zip("abc", values, strict=True):
            own: dict[str, Any] = {"bits": 8, "splitting_factor": 0.3}
            own |= {} if field == "error" else {field: given}
            parts = given if field == "error" else LEAST
            row.append(
                (f"{group}.{letter}", quantized(MNIST, **by_theorem, **own), 1 - ERROR * parts)
            )
        found.append(row)
    return found


def _uploads(target: float, run: RunFolder) -> Value | str:
    _, sent, reached = uploads_until(run, "mspdq_fl", target)
    return over_seeds(sent) if reached.all() else f"not in {sent.max():.0f}"


def _more(high: float, low: float, *runs: RunFolder) -> Value | str:
    """Uploads to `high` in the first run less those to `low` in the last, seed by seed."""
    first, last = (
        uploads_until(run, "mspdq_fl", target) for run, target in ((runs[0], high), (runs[-1], low))
    )
    if not (first[2].all() and last[2].all()):
        return "not reached"
    return over_seeds(first[1] - last[1])


def _draw_uploads(figure: Figure, results: Results) -> None:
    axes = figure.subplots()
    for colour, group in enumerate(bars()):
        for name, one, target in group:
            run = results.get(one)
            found = _uploads(target, run) if isinstance(run, RunFolder) else "-"
            if isinstance(found, Value):
                axes.bar(name, found.mean, color=f"C{colour}")
    axes.set(xlabel="group 1: error, 2: bits, 3: splitting factor", ylabel="uploads")


def figure_5(data: str) -> Item:
    """gamma_max and the decay of the weights."""
    drawn, cells = list[list[Curves]](), list[Cell]()
    little = "largest less smallest accuracy (points)"
    for interval, own in (("as printed", {}), ("by columns", {"interval": "columns"})):
        drawn.append([])
        runs: dict[str, dict[str, Training]] = {}
        for decay in ("linear", "root"):
            name, own["decay"] = f"{WEIGHTS[decay]}, {interval}", decay
            runs[decay] = {
                f"gamma = {g}": quantized(data, 8, PAPER["fig5"]["exchanges"], **own, gamma=g)
                for g in (0.1, 0.2, 0.3)
            }
            works = list(runs[decay].values())
            drawn[-1] += both(name, runs[decay])
            cells += measured(runs[decay], f"{name}, ")
            row = f"{name}, gamma matters little"
            cells.append(statement(row, little, "below 3", works, last_span))
        for label, one in runs["root"].items():
            row = f"claim: {interval}, {label}: the root is worse"
            cells.append(lead(row, "below 0", one, runs["linear"][label]))
    return PAPER.item("fig5" + SUFFIX[data], cells, draw=panels(drawn), size=(18, 8))


def figure_7(data: str) -> Item:
    """Invisible submodels."""
    drawn, cells = list[list[Curves]](), list[Cell]()
    for exchanges, gamma, allowed, broken, others in PAPER["fig7"]["rows"]:
        drawn.append([])
        own = {"msp_exchanges": exchanges, "gamma": gamma}
        for decay in ("linear", "none"):
            name = f"K_t = {exchanges}, gamma = {gamma}, {WEIGHTS[decay]}"
            runs = of_numbers(data, [1, allowed, broken, *others], **own, decay=decay)
            drawn[-1] += both(name, labelled(runs))
            cells += by_number(name, runs, runs[1])
            for m, said, published in (
                (allowed, "trains", "above -10"),
                (broken, "is degraded", "below -10"),
            ):
                row = f"claim: {name}, m = {m} {said} (against m = 1)"
                cells.append(lead(row, published, runs[m], runs[1]))
    drawn.append([])
    said = PAPER["fig7"]["unlike"]
    own = {
        "msp_exchanges": 10,
        "decay": "none",
        "weights": "submodel",
        "least_weight": said["least"],
    }
    name = f"K_t = 10, unlike weights from {said['least']} gamma"
    runs = of_numbers(data, said["m"], **own)
    drawn[-1] += both(name, labelled(runs))
    cells += by_number(name, runs, training(data, "msp_fl", msp_exchanges=10, decay="none"))
    return PAPER.item("fig7" + SUFFIX[data], cells, draw=panels(drawn), size=(18, 15))


def of_numbers(data: str, numbers: Sequence[int], **own: Any) -> dict[int, Training]:
    """MSP-FL with m invisible submodels, for each m."""
    found = {}
    for m in sorted(numbers):
        several = {} if m == 1 else {"submodels": [m, m], "unstable": True}
        found[m] = training(data, "msp_fl", **own, **several)
    return found


def labelled(runs: Mapping[int, Training]) -> dict[str, Training]:
    return {f"m = {m}": one for m, one in runs.items()}


def by_number(name: str, runs: Mapping[int, Training], one: Training) -> list[Cell]:
    """The last accuracies, and what they are more than with one invisible submodel."""
    cells = measured(labelled(runs), f"{name}, ")
    for m, run in runs.items():
        if run != one:
            cells.append(lead(f"{name}, m = {m}", "", run, one))
    return cells


FIGURES = (
    *(figure(data) for figure in (figure_2, figure_5, figure_7) for data in DATA),
    figure_3("fig3", list(DATA)),
    figure_3("fig3_mnist", [MNIST]),
    figure_4(),
)
