"""What a paper's table or figure needs, and what it printed: the pieces that every item is made of.

A cell says what was printed, and how the same number is read from the trainings that it names. What a paper prints is
in fedpriv/experiments/papers/PAPER.json: the table of every item with its title, its notes, its kind and its numbers.

    training = Training("quickstart", "top_k", {"p": 0.1}, rounds=50, seeds=5)
    cell = Cell("p = 0.1", "accuracy (%)", "77.59 +- 0.53", (training,), best_accuracy)
    Item("some_paper", "table1", "Summary of results", cells=(cell,))
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedpriv.experiments.runs.run_folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRINTED = re.compile(r"(?P<value>-?\d+(\.(?P<decimals>\d+))?)( \+- (?P<std>\d+(\.\d+)?))?$")
CLAIM = re.compile(r"(?P<kind>above|below|within) (?P<bound>-?\d+(\.\d+)?)$")
LONGEST_NAME = 120  # of a folder
PRINTED_IN = Path(__file__).parents[1]


class Value(NamedTuple):
    """A cell's number in the paper's units.

    Attributes:
      mean: over the seeds.
      std: standard deviation over the seeds (n - 1); None for one seed, or for what has none.
      per_seed: one value per seed; empty for what has none.
    """

    mean: float
    std: float | None = None
    per_seed: tuple[float, ...] = ()


class Scale(NamedTuple):
    """How much of what a paper did is done.

    Attributes:
      fraction: of the rounds and of the seeds, in (0, 1].
      only_seeds: number of seeds in place of the fraction's.
    """

    fraction: float = 1.0
    only_seeds: int | None = None

    def of(self, full: int) -> int:
        """The fraction of a number (rounds, images, ...), at least 1."""
        return max(1, round(self.fraction * full))

    def seeds(self, full: int) -> int:
        return self.of(full) if self.only_seeds is None else self.only_seeds

    @property
    def name(self) -> str:
        """Of the folders that hold it: "full", "scale-0.05", "scale-0.05-seeds-1"."""
        parts = [f"scale-{self.fraction:g}"] if self.fraction < 1 else []
        parts += [f"seeds-{self.only_seeds}"] if self.only_seeds is not None else []
        return "-".join(parts) or "full"


@dataclass(frozen=True)
class Training:
    """One algorithm of one config, trained by the launcher. Equal ones are trained once, whichever items need them.

    Attributes:
      config: its name in configs/.
      algorithm: the one of the config's algorithms that is trained.
      settings: the config's other fields as on the command line, nested ones by dots ("local.epochs"); a value of
        several words as a list.
      rounds, seeds: as many as the paper has.
      every: rounds between evaluations; by default the config's.
      shrinking: those of the settings, whole numbers, that a scale makes smaller as it does the rounds.
      rounds_in: those of the settings that are a part of the rounds (a warm start): a scale leaves a round beside them.
    """

    config: str
    algorithm: str
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    rounds: int = 100
    seeds: int = 1
    every: int | None = None
    shrinking: tuple[str, ...] = ()
    rounds_in: tuple[str, ...] = ()

    def at(self, scale: Scale) -> dict[str, Any]:
        """The settings that it gets at this scale."""
        smaller = {name: scale.of(self.settings[name]) for name in self.shrinking}
        most = scale.of(self.rounds) - 1
        parts = {n: min(scale.of(self.settings[n]), most) for n in self.rounds_in}
        return {**self.settings, **smaller, **parts}

    @property
    def key(self) -> str:
        """Name of its run folder, from everything that makes it what it is."""
        every = {} if self.every is None else {"every": self.every}
        given = {**dict(sorted(self.settings.items())), **every}
        given |= {"rounds": self.rounds, "seeds": self.seeds}
        return folder_name(
            self.config, self.algorithm, *(f"{k}={text(v)}" for k, v in given.items())
        )

    @property
    def title(self) -> str:
        """What --only looks in: "fed_smp_fashion_mnist top_k p=0.005"."""
        return " ".join(
            [self.config, self.algorithm, *(f"{k}={text(v)}" for k, v in self.settings.items())]
        )


@dataclass(frozen=True)
class Computation:
    """Work that is no training (an attack, say), done once and kept as a training is.

    Attributes:
      key: name of its folder.
      compute: (scale, data_dir) -> its results, as JSON knows them; "scaled" among them, as text ("2 of 8 images"),
        where the scale left something out.
    """

    key: str
    compute: Callable[[Scale, Path | None], dict[str, Any]]

    @property
    def title(self) -> str:
        return self.key


class Computed(NamedTuple):
    """The results of an item's computation, as they were written."""

    summary: dict[str, Any]


Work = Training | Computation
Results = Mapping[Work, RunFolder | Computed]
Read = Callable[..., Value | str]
Draw = Callable[["Figure", Results], None]


@dataclass(frozen=True)
class Cell:
    """One number of a table, or one that can be read off a figure's curves.

    Attributes:
      row, column: where it stands; the unit belongs into the column's name, and for an epsilon unit, view and
        adjacency, too.
      published: exactly as printed, with "+-" before a spread ("77.18 +- 0.48"); "" where the paper prints no number.
        What it says in words is a claim that a number meets or not: "above 0", "below -10", "within 3" (of 0).
      work: what it is read from.
      read: (a result per piece of work, in order) -> the number here, or what is said in its place ("not reached").
        With no work: a computation of less than a second, that of an epsilon, say.
      of_diverged: whether `read` takes runs that diverged, too.
    """

    row: str
    column: str
    published: str
    work: Sequence[Work]
    read: Read
    of_diverged: bool = False

    def __post_init__(self) -> None:
        if self.published and not (PRINTED.match(self.published) or self.claim):
            raise ValueError(
                f"published: {self.published!r} is not a number, number +- spread, or above, below or within a number"
            )

    @property
    def claim(self) -> re.Match[str] | None:
        """Where `published` is one."""
        return CLAIM.match(self.published)

    def agrees(self, value: Value) -> bool | None:
        """Whether the number meets the claim; None where there is none."""
        if self.claim is None:
            return None
        bound = float(self.claim["bound"])
        kinds = {"above": value.mean > bound, "below": value.mean < bound}
        return {**kinds, "within": abs(value.mean) <= bound}[self.claim["kind"]]

    @property
    def printed(self) -> Value | None:
        """What `published` says."""
        found = PRINTED.match(self.published)
        if not found:
            return None
        return Value(float(found["value"]), float(found["std"]) if found["std"] else None)

    @property
    def decimals(self) -> int:
        """As many as the paper prints; 2 where it prints nothing."""
        found = PRINTED.match(self.published)
        return len(found["decimals"] or "") if found else 2


@dataclass(frozen=True)
class Item:
    """A table or a figure of a paper. One with neither cells nor a picture of its own has nothing to measure.

    Attributes:
      paper: name in `catalogue.PAPERS`.
      name: "table1", "fig7".
      title: its caption.
      cells: its numbers, row by row.
      work: what `draw` needs beyond the cells' work.
      draw: (an empty figure, the results there are, which may be none) -> draws the picture in the shape of the
        paper's; by default published beside measured.
      size: in inches, of what `draw` draws.
      notes: differences from the paper, readings of it, what it leaves open.
    """

    paper: str
    name: str
    title: str
    cells: Sequence[Cell] = ()
    work: Sequence[Work] = ()
    draw: Draw | None = None
    size: tuple[float, float] = (10.0, 4.0)
    notes: Sequence[str] = ()

    @property
    def needs(self) -> list[Work]:
        """Everything that is trained or computed for it, each once, in the cells' order."""
        every = [piece for cell in self.cells for piece in cell.work] + list(self.work)
        return list(dict.fromkeys(every))

    @property
    def trainings(self) -> list[Training]:
        return [work for work in self.needs if isinstance(work, Training)]

    @property
    def illustration(self) -> bool:
        """Whether there is nothing to measure."""
        return not self.cells and self.draw is None


class Paper:
    """What papers/NAME.json says: of every item its title, notes, kind and size, and what is printed.

    Attributes:
      said: all of it.
    """

    def __init__(self, name: str):
        self.name = name
        self.said: dict[str, Any] = json.loads((PRINTED_IN / f"{name}.json").read_text())

    def __getitem__(self, item: str) -> dict[str, Any]:
        """What is said of a table or figure; what it leaves out is as for the one that it is "like"."""
        items = self.said["items"]
        return {**items.get(items[item].get("like"), {}), **items[item]}

    def item(self, name: str, cells: Sequence[Cell] = (), **more: Any) -> Item:
        """With its title, its notes and its size."""
        about = self[name]
        if "size" in about:
            more["size"] = tuple(about["size"])
        notes = tuple(self.said["notes"].get(note, note) for note in about.get("notes", ()))
        return Item(self.name, name, about["title"], cells, notes=notes, **more)

    def items(self, kinds: Mapping[str, Callable[[str], Item]]) -> tuple[Item, ...]:
        """In the order of the file, each made by the function of its kind; those of none are illustrations."""
        made: dict[Any, Callable[[str], Item]] = {None: self.item, **kinds}
        return tuple(made[self[name].get("kind")](name) for name in self.said["items"])


def folder_name(*parts: str) -> str:
    """An item's parts as one name that any file system takes; a long one is cut and made unique by its digest."""
    whole = ",".join(parts)
    name = re.sub(r"[^\w.,=+-]", "-", whole)
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[:LONGEST_NAME]}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"


def text(value: Any) -> str:
    """A setting as the name of a folder has it."""
    return " ".join(map(text, value)) if isinstance(value, list | tuple) else str(value)
