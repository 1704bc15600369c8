"""The parts of `benchmark`."""

from pathlib import Path

import commands

from experiments.speed import rounds
from experiments.speed.growth import fit
from refused.row import Refusal

benchmark = commands.loaded("benchmark").main


def part(*words):
    return lambda: benchmark([*words, "--traceback"])


def no_torch(*words):
    """On a machine without PyTorch."""

    def called():
        find = rounds.importlib.util.find_spec
        rounds.importlib.util.find_spec = lambda name: None
        try:
            part("rounds", *words)()
        finally:
            rounds.importlib.util.find_spec = find

    return called


def kept_growth():
    Path("done").mkdir()
    Path("done/growth.json").touch()
    part("growth", "--output", "done")()


def in_a_file():
    Path("file").touch()
    part("growth", "--output", "file/under")()


def no_result():
    Path("other.json").write_text("{}")
    part("page", "other.json")()


OF_PARTS = [
    ("an unknown part", ["pages"], "part", "'pages'"),
    ("rounds of no client", ["rounds", "--clients", "0"], "clients", "0"),
    ("rounds fewer than none", ["rounds", "--repeats", "-1"], "repeats", "-1"),
    ("more devices than there are", ["rounds", "--devices", "99"], "devices", "99"),
    ("clients of a step", ["rounds", "--workload", "C", "--clients", "3"], "workload", "C"),
    ("devices of a step", ["rounds", "--workload", "C", "--devices", "2"], "workload", "C"),
    ("growth in no turn", ["growth", "--repeats", "0"], "repeats", "0"),
    ("an unknown part of gpu", ["gpu", "--parts", "Z"], "parts", "'Z'"),
    ("a part of gpu without its data", ["gpu", "--parts", "table1"], "data_dir", "table1"),
    ("gpu in no time", ["gpu", "--minutes", "0"], "minutes", "0.0"),
    ("cifar10 in no turn", ["cifar10", "--turns", "0"], "turns", "0"),
    ("cifar10 of no round", ["cifar10", "--rounds", "0"], "rounds", "0"),
]
ROWS = [
    Refusal(f"benchmark: {n}", part(*words), field, value) for n, words, field, value in OF_PARTS
]
ROWS += [
    Refusal(
        "benchmark: beside PyTorch that is not there",
        no_torch("--torch"),
        "torch",
        remedy="pip install torch",
    ),
    Refusal("benchmark: beside peers without PyTorch", no_torch("--peers"), "peers"),
    Refusal("benchmark: growth where it was", kept_growth, "output", "done"),
    Refusal("benchmark: growth in a file", in_a_file, "output", "file/under"),
    Refusal("benchmark: a page of something else", no_result, "other.json"),
    Refusal("a slope of what is not positive", lambda: fit([1, 2], [0, 1]), "[0, 1]"),
]
