"""Part of experiments.benchmark gpu: its parts, with what each is expected to take."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

TESTED = ["haar", "mechanisms", "clipping", "per_example", "codecs", "sparsification"]
TESTED += ["lattice", "layers", "low_rank", "cohort", "noise_stream"]
TESTED += ["certificates", "record_certificates", "certified_program"]
ALGORITHMS = ["fed_avg", "fed_opt", "dp_sgd", "dp_scaffold", "fed_smp"]


class Part(NamedTuple):
    """A part of `benchmark gpu`.

    Attributes:
      words: of its command, `python -m` before it; {data} and {output} are put in.
      expected: seconds that it is thought to take on an H100.
      limit: seconds after which it is stopped.
      small: words that make it a matter of seconds on a CPU.
    """

    words: list[str]
    expected: int
    limit: int
    small: list[str]

    @property
    def needs_data(self) -> bool:
        return any("{data}" in word for word in self.words)


def _rounds(workload: str, expected: int, limit: int, rivals: str = "--peers") -> Part:
    words = ["experiments.benchmark", "rounds", "--workload", workload, "--json", rivals]
    few = ["--repeats", "1"] + ([] if workload in "CG" else ["--clients", "2"])
    return Part([*words, "--repeats", "5"], expected, limit, few)


def _large(workload: str, expected: int, limit: int, *more: str) -> Part:
    words = ["experiments.benchmark", "large", "--workload", workload, "--json", *more]
    return Part([*words, "--repeats", "5"], expected, limit, ["--sizes", "small", "--repeats", "1"])


def _tests() -> Part:
    files = [f"tests/test_{name}.py" for name in TESTED]
    files += [f"tests/algorithms/test_{name}.py" for name in ALGORITHMS]
    words = ["pytest", "-p", "no:benchmark", "-n", "8", "--tb=line"]
    words += ["--continue-on-collection-errors", *files]
    return Part(words, 45, 90, ["-n", "0", "-k", "test_haar"])


def _cifar10() -> Part:
    words = ["experiments.run", "pfl_cifar10", "--data-dir", "{data}", "--keep-model", "false"]
    words += ["--output", "{output}/pfl_cifar10", "--rounds", "300", "--every", "50"]
    small = ["--rounds", "2", "--every", "2", "--clients", "10", "--cohort", "2"]
    return Part(words, 60, 120, small)


def _table1() -> Part:
    words = ["experiments.reproduce", "fed_smp", "table1", "--data-dir", "{data}"]
    words += ["--output", "{output}/table1"]
    return Part([*words, "--seeds", "5"], 400, 570, ["--scale", "0.01", "--seeds", "1"])


SMOKE = ["experiments.benchmark", "large", "--sizes", "small", "--json", "--peers"]

PARTS: dict[str, Part] = {
    "smoke": Part([*SMOKE, "--repeats", "2"], 30, 60, ["--repeats", "1"]),
    "E": _rounds("E", 50, 75),
    "D": _rounds("D", 55, 80),
    "A": _rounds("A", 70, 100),
    "lora": _large("I", 60, 100),
    "all": _large("J", 60, 100),
    "tests": _tests(),
    "H": _large("H", 110, 180, "--peers"),
}
"""By default, one after another, small ones first: eight minutes, if each takes what is expected."""

OTHERS: dict[str, Part] = {
    "B": _rounds("B", 30, 60),
    "C": _rounds("C", 30, 60),
    "F": _rounds("F", 70, 120, "--torch"),
    "G": _rounds("G", 40, 80),
    "H64": _large("H", 120, 240, "--peers", "--lot", "64"),
    "H256": _large("H", 200, 400, "--peers", "--lot", "256"),
    "cifar10": _cifar10(),
    "table1": _table1(),
}
"""Where they are asked for."""

EVERY = PARTS | OTHERS


def words(part: Part, data: Path | None, output: Path, small: bool) -> list[str]:
    """The part's command; of options that are given twice the last one counts."""
    given = part.words + (part.small if small else [])
    if small and "rounds" in given:  # other simulators' environments take minutes to build
        given = ["--torch" if word == "--peers" else word for word in given]
    return [word.replace("{data}", str(data)).replace("{output}", str(output)) for word in given]
