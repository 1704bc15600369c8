"""python -m experiments.benchmark page FILE ... [--output DIR]: a table and two pictures of benchmarks.

Each FILE holds the object of one `python -m experiments.benchmark rounds --json`, or `large --workload H --json`.
Writes benchmark.md, shares.png (of what limits a workload: the matrix product, or a copy) and peers.png (our speed over
that of others).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from experiments.speed.timing import show
from fedpriv.core.complaints import require
from fedpriv.experiments.base.files import write_text
from fedpriv.experiments.base.formats import markdown_table
from fedpriv.experiments.base.terminal import say
from fedpriv.experiments.tables.plots import COLOURS, MARKERS, WIDTHS, below, save, scale, sheet

ROUNDS = {
    "A": "A: DP-FedAvg, CNN of 1.66 M",
    "B": "B: DP-SCAFFOLD, logistic regression",
    "D": "D: DP-FedAvg, CNN of 28,874",
    "E": "E: DP-FedAvg, MLP of 4,810",
    "F": "F: DP-FedAvg, LSTM of 0.82 M",
}
STEPS = {
    "haar": "C: Haar transform",
    "inverse": "C: inverse transform",
    "dp_sgd": "C: DP-SGD's step, CNN of 28,874",
    "dp_sgd_wav": "C: DP-SGD-WAV's step",
}
ATTENTION = {
    "dp_sgd": "G: DP-SGD's step, transformer of 1.02 M",
    "gradient": "G: its plain gradient",
    "ghost": "G: its step, beside ghost clipping",
}
LARGE = {
    "dp_sgd": "H: DP-SGD's step",
    "gradient": "H: its plain gradient",
    "ghost": "H: its step, beside ghost clipping",
    "micro": "H: its step, beside micro-batches",
}
OTHERS = {
    "torch": "PyTorch",
    "torch_vmap": "PyTorch, vmap",
    "opacus": "Opacus",
    "jax_privacy": "jax_privacy",
}


@dataclass(frozen=True)
class Options:
    """Options of the command `benchmark page`."""

    files: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FILE")]
    """Objects of experiments.benchmark rounds --json, or large --json, one each."""
    output: Path = Path()
    """Folder to write into."""


def main(options: Options) -> int:
    say(write(options.files, options.output))
    return 0


class Row(NamedTuple):
    """A row of the benchmarks' page: a workload on so many cores.

    Attributes:
      pages: whether large pages were asked for.
      speed: as text.
      memory: of the process at most, in 10^6 bytes.
      share: spread of the share of its limit, where it has one.
      ratios: spread of our speed over another's, by its name.
    """

    label: str
    cores: int
    pages: bool
    speed: str
    memory: float
    share: dict[str, Any] | None
    ratios: dict[str, dict[str, Any]]

    @property
    def name(self) -> str:
        """For a picture."""
        large = ", large pages" if self.pages else ""
        return f"{self.label}, {self.cores} core{'s' * (self.cores > 1)}{large}"


def write(files: Sequence[Path], output: Path) -> Path:
    """Writes benchmark.md, whose path it returns, shares.png and, with others, peers.png into a folder.

    Args:
      files: see above.

    Raises:
      ValueError: no files, or one that has none.
    """
    require(len(files) > 0, "files", [], "name what rounds --json or large --json has printed")
    found = sorted((row for file in files for row in rows(_read(file))), key=lambda r: r[:3])
    output.mkdir(parents=True, exist_ok=True)
    write_text(output / "benchmark.md", table(found))
    pictures = {
        "shares": ("share of its limit", [row for row in found if row.share]),
        "peers": ("speed over theirs", [row for row in found if row.ratios]),
    }
    for name, (title, chosen) in pictures.items():
        if chosen:
            picture(chosen, title, output / f"{name}.png")
    return output / "benchmark.md"


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text())
        if found["workload"] in "ABCDEFGH" and {"cores", "large_pages"} <= found.keys():
            return found
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise ValueError(
        f"{file}: no object of rounds --json, or of large --workload H --json; give such"
    )


def rows(result: dict[str, Any]) -> Iterator[Row]:
    """Of one benchmark's object: a round has one, other workloads one for each of their runs."""
    if result["workload"] == "H":
        yield from _rows_of_runs(result)
        return
    workload, about = result["workload"], (result["cores"], result["large_pages"])
    memory = result["peak_memory_mb"]
    others = {
        OTHERS.get(n, n): result[f"ratios_to_{n}"]
        for n in result["rivals"]
        if f"ratios_to_{n}" in result
    }
    if workload in ROUNDS:
        speed = show(result["clients_per_second"], "clients/s")
        yield Row(ROUNDS[workload], *about, speed, memory, result["fractions_of_matmul"], others)
        return
    shares = result.get("fractions_of_copy", {})
    if "fractions_of_matmul" in result:
        shares = {"dp_sgd": result["fractions_of_matmul"]}
    for run, label in (STEPS if workload == "C" else ATTENTION).items():
        ratios = {name: each[run] for name, each in others.items() if run in each}
        ms = result["ms"].get(run, result["ms"]["dp_sgd"])
        if ratios or run in shares or run in result["ms"]:
            yield Row(label, *about, show(ms, "ms"), memory, shares.get(run), ratios)


def _rows_of_runs(result: dict[str, Any]) -> Iterator[Row]:
    """Of `large --json`, whose runs have processes and memory of their own."""
    runs = {name: run for name, run in result["runs"].items() if "ratio" in run}
    step = runs.get("ours dp_sgd")
    if step is None:
        return
    for run, label in LARGE.items():
        theirs = {
            name.partition(" ")[0]: each for name, each in runs.items() if name.endswith(f" {run}")
        }
        ours = theirs.pop("ours", None if run == "gradient" else step)
        ratios = {OTHERS.get(name, name): each["ratio"] for name, each in theirs.items()}
        if ours and ratios:
            about = (f"{label}, {result['sizes']}", result["cores"], result["large_pages"])
            yield Row(*about, show(ours["ms"], "ms"), ours["peak_memory_mb"], None, ratios)


def table(found: Sequence[Row]) -> str:
    names = list(dict.fromkeys(name for row in found for name in row.ratios))
    head = ["", "cores", "large pages asked for", "fedpriv", "MB", "share of its limit"]
    lines = [head + [f"{name}: ratio" for name in names]]
    for row in found:
        shares = show(row.share) if row.share else ""
        ratios = [show(row.ratios[name]) if name in row.ratios else "" for name in names]
        pages = "yes" if row.pages else "no"
        about = [row.label, str(row.cores), pages, row.speed, f"{row.memory:.0f}", shares]
        lines.append(about + ratios)
    return markdown_table(lines) + "\n"


def picture(found: Sequence[Row], title: str, path: Path) -> None:
    """The page's picture: a line for each row, with medians and spreads; ratios on a logarithmic axis, 1 marked."""
    shares = path.stem == "shares"
    names = ["share"] if shares else list(dict.fromkeys(n for row in found for n in row.ratios))
    with sheet(WIDTHS["page"], 0.8 + 0.2 * len(found)) as figure:
        axes, handles = figure.subplots(), {}
        for i, row in enumerate(reversed(found)):
            for name, each in ({"share": row.share} if shares else row.ratios).items():
                at = names.index(name)
                ends = [[each["median"] - each["min"]], [each["max"] - each["median"]]]
                look: dict[str, Any] = {
                    "color": COLOURS[at],
                    "marker": MARKERS[at],
                    "linestyle": "none",
                }
                handles[name] = axes.errorbar([each["median"]], [i], xerr=ends, **look)
        axes.set_yticks(range(len(found)), [row.name for row in reversed(found)])
        scale(axes, "x", log=not shares)
        axes.set_xlabel(title)
        axes.axvline(1.0, color="#5f5f5f", linewidth=0.8)
        if shares:
            axes.set_xlim(0, 1.02)
        else:
            below(figure, {name: handles[name] for name in names})
        save(figure, [path])
