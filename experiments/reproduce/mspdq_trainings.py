"""Trainings of MSP-FL and MSPDQ-FL, and how their claims are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.compare import RunFolder
from experiments.reproduce.comparisons import gap
from experiments.reproduce.item import Cell, Read, Training, Value
from experiments.reproduce.reading import final_accuracy

MNIST, CIFAR = "mspdq_mnist", "mspdq_cifar10"
DATA = {MNIST: "MNIST", CIFAR: "CIFAR-10"}
LOCAL_EPOCHS = {MNIST: 10, CIFAR: 5}
ROUNDS = 30
CHANCE = 10.0
"""Accuracy in % of a model that predicts one of ten classes."""

COLUMNS = {"interval": "columns", "gamma": 0.3}
"""With the quantizer's interval by columns, and a larger gamma: what trains, see experiments/results/mspdq.md."""
PRINTED, BY_COLUMNS = "as printed", "by columns, gamma = 0.3"

NOTES = (
    "the paper prints neither its networks nor the number of rounds: CNNs of 28,874 (MNIST) and 131,562 parameters, 30 "
    "rounds; two label-sorted shards a client, e = 0.5, and gamma = 0.1 and splitting factor 0.3 where nothing is said",
    "one seed: accuracy moves by 2 to 3 points from one evaluation to the next. A claim that a method is about as good "
    "as another is read as within 3 points; a run that diverged counts as 10%, chance",
    f'"{BY_COLUMNS}": the quantizer\'s interval from the longest column of A - B, the setting that trains (see '
    "experiments/results/mspdq.md)",
    "no epsilon is certified for any of these methods, towards anybody, client level: eps_DP = 10 is a setting",
)
LOSS = "loss: on the test set, where the paper has that of training"


def training(config: str, algorithm: str, **settings: Any) -> Training:
    return Training(
        config,
        algorithm,
        {"local_epochs": LOCAL_EPOCHS[config], **settings},
        rounds=ROUNDS,
        every=1,
        shrinking=("local_epochs",),
    )


def quantized(config: str, bits: int, exchanges: int, **settings: Any) -> Training:
    """MSPDQ-FL."""
    return training(config, "mspdq_fl", bits=bits, exchanges=exchanges, **settings)


def accuracy(run: RunFolder) -> Value:
    """Test accuracy after the last round, in %; chance where the run diverged."""
    if run.summary["status"] != "complete":
        return Value(CHANCE)
    found = final_accuracy(run)
    assert isinstance(found, Value)
    return found


def accuracies(run: RunFolder) -> list[float]:
    """Of every evaluation, in %; chance at the end of a run that diverged."""
    found = [100 * float(line["accuracy"]["mean"]) for line in run.lines]
    return found if run.summary["status"] == "complete" else [*found, CHANCE]


def least_lead(first: RunFolder, second: RunFolder) -> Value:
    """The least that the first run's accuracy has more than the second's, over the evaluations, in points."""
    pairs = zip(accuracies(first), accuracies(second), strict=False)
    return Value(min(a - b for a, b in pairs))


def late_loss(run: RunFolder) -> Value:
    """Best accuracy less the last, in points."""
    found = accuracies(run)
    return Value(max(found) - found[-1])


def early_shortfall(first: RunFolder, second: RunFolder) -> Value:
    """The most that the first run's accuracy is below the second's in the first third of the evaluations, in points."""
    a, b = accuracies(first), accuracies(second)
    early = max(1, len(b) // 3)
    return Value(max(y - x for x, y in zip(a[:early], b[:early], strict=False)))


def statement(row: str, column: str, published: str, work: Sequence[Training], read: Read) -> Cell:
    """A claim; what diverged counts, too."""
    return Cell(row, column, published, tuple(work), read, of_diverged=True)


def lead(row: str, published: str, ours: Training, theirs: Training) -> Cell:
    """Of one training over another after the last round."""
    return statement(
        row, "difference in accuracy (points)", published, (ours, theirs), gap(accuracy)
    )


def measured(rows: dict[str, Training]) -> list[Cell]:
    """A line for each label with the last accuracy."""
    return [
        Cell(row, "last accuracy (%)", "", (work,), final_accuracy) for row, work in rows.items()
    ]
