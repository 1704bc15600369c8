"""The figures of MSP-FL and MSPDQ-FL (Wang, Cao, Jin and Chow), but for Figure 6; the paper has no table."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fedpriv.experiments.papers.reproduce.item import (
    Cell,
    Item,
    Paper,
    Read,
    Results,
    Training,
    Value,
)
from fedpriv.experiments.papers.reproduce.picture import Curves, panels
from fedpriv.experiments.papers.reproduce.reading import (
    early_shortfall,
    final_accuracy,
    last_lead,
    last_span,
    late_loss,
    least_lead,
    numbers,
    over_seeds,
)
from fedpriv.experiments.runs.run_folder import RunFolder
from fedpriv.experiments.tables.uploads import uploads_until

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = Paper("mspdq")
MNIST, CIFAR = "mspdq_mnist", "mspdq_cifar10"
DATA = {MNIST: "MNIST", CIFAR: "CIFAR-10"}
LOCAL_EPOCHS = {MNIST: 10, CIFAR: 5}
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
LAST = "last accuracy (%)"
ERROR, LEAST = 0.1, 2
"""Of Figure 4: test error of one part of the paper's ratio, and the parts that groups 2 and 3 go down to."""


def training(config: str, algorithm: str, **settings: Any) -> Training:
    own = {name: value for name, value in settings.items() if DEFAULTS.get(name) != value}
    own["local_epochs"] = LOCAL_EPOCHS[config]
    schedule: dict[str, Any] = {"rounds": 60, "seeds": 3, "every": 1}
    schedule["shrinking"] = ("local_epochs",)
    return Training(config, algorithm, own, **schedule)


def quantized(config: str, bits: int, exchanges: int, **settings: Any) -> Training:
    """A training by MSPDQ-FL."""
    return training(config, "mspdq_fl", bits=bits, exchanges=exchanges, **settings)


def statement(row: str, column: str, published: str, work: Sequence[Training], read: Read) -> Cell:
    """A cell for a claim of MSPDQ's paper; what diverged counts, too."""
    return Cell(f"claim: {row}", column, published, tuple(work), read, of_diverged=True)


def lead(row: str, published: str, ours: Training, theirs: Training) -> Cell:
    """A cell of MSPDQ's: the lead of one training over another after the last round, seed by seed."""
    column = "difference in accuracy (points)"
    return Cell(row, column, published, (ours, theirs), last_lead, of_diverged=True)


def both(title: str, drawn: Mapping[str, Training]) -> list[Curves]:
    """Of MSPDQ's figures, a panel with the accuracy and one with the loss."""
    loss = Curves(f"{title}, loss", drawn, "loss", ylabel="test loss")
    return [of_accuracy(f"{title}, accuracy", drawn), loss]


def of_accuracy(title: str, drawn: Mapping[str, Training]) -> Curves:
    return Curves(title, drawn, factor=100.0, ylabel="test accuracy (%)")


def rivals(name: str) -> Item:
    """MSPDQ's figure on MSP-FL, MSPDQ-FL and their rivals."""
    data = PAPER[name]["config"]
    plain, msp = training(data, "fed_avg"), training(data, "msp_fl", msp_exchanges=4)
    own = {f"MSPDQ-FL ({x})": quantized(data, 8, 10, **more) for x, more in INTERVALS.items()}
    others = {
        "FedAvg + LDP": training(data, "ldp_fed_avg", **{"ldp.epsilon": 10.0}),
        "JoPEQ": training(data, "jopeq", bits=8, **{"jopeq.epsilon": 10.0}),
    }
    drawn = {"FedAvg": plain, "MSP-FL": msp, **own, **others}
    about = "claim: MSP-FL within 3 points of FedAvg"
    cells = [*numbers(drawn, "{}", LAST, final_accuracy), lead(about, "within 3", msp, plain)]
    for ours, one in {"MSP-FL": msp, **own}.items():
        for rival, other in others.items():
            row, always = f"{ours} above {rival}", "least over the evaluations (points)"
            cells.append(lead(f"claim: {row}", "above 0", one, other))
            cells.append(statement(row, always, "above 0", (one, other), least_lead))
    return PAPER.item(name, cells, draw=panels([both(DATA[data], drawn)[::-1]]))


def bits(name: str) -> Item:
    """MSPDQ's figures on exchanges and bits."""
    said, drawn, cells = PAPER[name], list[list[Curves]](), list[Cell]()
    for interval, more in INTERVALS.items():
        drawn.append([])
        for data, k in itertools.product(said["configs"], said["exchanges"]):
            of_bits = {f"{n} bits": quantized(data, n, k, **more) for n in said["bits"]}
            title = f"{DATA[data]}, K_t = {k}, {interval}"
            drawn[-1].append(of_accuracy(title, of_bits))
            cells += numbers(of_bits, f"{title}, {{}}", LAST, final_accuracy)
            cells += _bits(title, of_bits, (data, k) == (CIFAR, 20))
    return PAPER.item(name, cells, draw=panels(drawn))


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


def uploads(name: str) -> Item:
    """MSPDQ's uploads until a prescribed error, and that they grow as the error shrinks and as bits do."""
    cells, groups = [], bars()
    for letter, one, target in [bar for group in groups for bar in group]:
        own = {**DEFAULTS, **one.settings}
        row = f"{letter}: test error {1 - target:.1f}, {own['bits']} bits, "
        row += f"splitting factor {own['splitting_factor']}"
        cells.append(Cell(row, "uploads", "", (one,), partial(_uploads, target)))
    for group in groups[:2]:
        for (less, first, low), (more, second, high) in itertools.pairwise(group):
            works = tuple(dict.fromkeys((second, first)))
            row, read = f"claim: {more} above {less}", partial(_more, high, low)
            cells.append(Cell(row, "uploads", "above 0", works, read))
    return PAPER.item(name, cells, draw=_draw_uploads)


def bars() -> list[list[tuple[str, Training, float]]]:
    """The three groups of MSPDQ's uploads: a bar's name, what is trained, and the accuracy that ends it."""
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


def weights(name: str) -> Item:
    """MSPDQ's figure on gamma_max and the decay of the weights."""
    said, drawn, cells = PAPER[name], list[list[Curves]](), list[Cell]()
    data, k = said["config"], said["exchanges"]
    little = "largest less smallest accuracy (points)"
    for interval, own in (("as printed", {}), ("by columns", {"interval": "columns"})):
        drawn.append([])
        runs: dict[str, dict[str, Training]] = {}
        for decay in ("linear", "root"):
            title, own["decay"] = f"{WEIGHTS[decay]}, {interval}", decay
            runs[decay] = {
                f"gamma = {g}": quantized(data, 8, k, **own, gamma=g) for g in (0.1, 0.2, 0.3)
            }
            works = list(runs[decay].values())
            drawn[-1] += both(title, runs[decay])
            cells += numbers(runs[decay], f"{title}, {{}}", LAST, final_accuracy)
            row = f"{title}, gamma matters little"
            cells.append(statement(row, little, "below 3", works, last_span))
        for label, one in runs["root"].items():
            row = f"claim: {interval}, {label}: the root is worse"
            cells.append(lead(row, "below 0", one, runs["linear"][label]))
    return PAPER.item(name, cells, draw=panels(drawn))


def submodels(name: str) -> Item:
    """MSPDQ's figure on invisible submodels."""
    said, drawn, cells = PAPER[name], list[list[Curves]](), list[Cell]()
    data = said["config"]
    for exchanges, gamma, most, broken, others in said["rows"]:
        drawn.append([])
        own = {"msp_exchanges": exchanges, "gamma": gamma}
        for decay in ("linear", "none"):
            title = f"K_t = {exchanges}, gamma = {gamma}, {WEIGHTS[decay]}"
            runs = of_numbers(data, [1, most, broken, *others], **own, decay=decay)
            drawn[-1] += both(title, labelled(runs))
            cells += by_number(title, runs, runs[1])
            for m, what, published in (
                (most, "trains", "above -10"),
                (broken, "is degraded", "below -10"),
            ):
                row = f"claim: {title}, m = {m} {what} (against m = 1)"
                cells.append(lead(row, published, runs[m], runs[1]))
    unlike, own = said["unlike"], {"msp_exchanges": 10, "decay": "none"}
    secret = {"weights": "submodel", "least_weight": unlike["least"]}
    title = f"K_t = 10, unlike weights from {unlike['least']} gamma"
    runs = of_numbers(data, unlike["m"], **own, **secret)
    drawn.append(both(title, labelled(runs)))
    cells += by_number(title, runs, training(data, "msp_fl", **own))
    return PAPER.item(name, cells, draw=panels(drawn))


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
    """The last accuracies of MSP-FL by its invisible submodels, and what they are more than with one."""
    cells = numbers(labelled(runs), f"{name}, {{}}", LAST, final_accuracy)
    for m, run in runs.items():
        if run != one:
            cells.append(lead(f"{name}, m = {m}", "", run, one))
    return cells


KINDS = {
    "rivals": rivals,
    "bits": bits,
    "uploads": uploads,
    "weights": weights,
    "submodels": submodels,
}
