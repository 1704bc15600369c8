"""Commands and configs of the papers, the race, audits, speed."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import reproduced
from small import regression

import configs.race as entered
import fedpriv as fp
from configs import dp_scaffold_mnist, dp_scaffold_synthetic
from experiments.benchmark import main as benchmark_main
from experiments.speed import rounds
from experiments.speed.growth import fit
from fedpriv.attacks.canary_places import NoPlaceError
from fedpriv.experiments import commands
from fedpriv.experiments.attacks.audit.audit import Wanted
from fedpriv.experiments.attacks.audit.canary import data_of
from fedpriv.experiments.commands import race
from fedpriv.experiments.papers.dp_scaffold import Authors
from fedpriv.experiments.papers.hours import Speeds
from fedpriv.experiments.papers.reproduce import reproduce as room
from fedpriv.experiments.papers.reproduce.catalogue import PAPERS
from fedpriv.experiments.papers.reproduce.item import Cell, Value


def reproduce(*words):
    """On the tiny paper, in a folder of its own."""
    with patch.dict(PAPERS, {"tiny": reproduced.ITEMS}):
        commands.reproduce.main([*words, "--output", "here", "--traceback"])


def under_srun():
    with patch.object(room, "slurm_step", lambda: True):
        reproduce("tiny", "table1")


def benchmark(*words):
    benchmark_main([*words, "--traceback"])


def no_torch(word):
    """On a machine without PyTorch."""
    with patch.object(rounds.importlib.util, "find_spec", lambda name: None):
        benchmark("rounds", word)


def kept_growth():
    Path("done").mkdir()
    Path("done/growth.json").touch()
    benchmark("growth", "--output", "done")


def in_a_file():
    Path("file").touch()
    benchmark("growth", "--output", "file/under")


def no_result():
    Path("other.json").write_text("{}")
    benchmark("page", "other.json")


OF_REPRODUCE = [
    ([], "paper", "none given"),
    (["fed_sgd", "table1"], "paper", "'fed_sgd'"),
    (["gone", "--findings"], "paper", "'gone'"),
    (["tiny"], "item", "none given"),
    (["tiny", "table9"], "item", "'table9'"),
    (["tiny", "table1", "--scale", "0"], "scale", "0.0"),
    (["tiny", "table1", "--scale", "half"], "scale", "'half'"),
    (["tiny", "table1", "--seeds", "0"], "seeds", "0"),
    (["tiny", "table1", "--only", "fed_smp"], "only", "'fed_smp'"),
]
OF_BENCHMARK = [
    (["pages"], "part", "'pages'"),
    (["rounds", "--repeats", "-1"], "repeats", "-1"),
    (["rounds", "--devices", "99"], "devices", "99"),
    (["rounds", "--workload", "C", "--clients", "3"], "workload", "C"),
    (["rounds", "--workload", "C", "--devices", "2"], "workload", "C"),
    (["gpu", "--parts", "Z"], "parts", "'Z'"),
    (["gpu", "--parts", "table1"], "data_dir", "table1"),
]
few = dp_scaffold_synthetic.Synthetic(clients=5, records=45, authors=Authors(record_ranges=True))
several = replace(entered.settings, algorithms=("dp_scaffold",), clients=480)


def public():
    race.main(["--entrants", "FedAvg", "FedAdam", "--traceback"])


def of_images():
    dp_scaffold_mnist.Digits(authors=few.authors)


def no_labels():
    data_of("mislabelled", regression([4] * 3))


def one_label():
    given = {"label": np.zeros(2, int)}
    data_of("mislabelled", fp.Federation.from_arrays(given, [[0, 1]]))


ROWS = [
    ("reproduce: under srun", under_srun, "reproduce", "start it without srun"),
    ("quicker than all", lambda: Speeds((1.0,), (1.0,), "constant").up_to(0.5), "slowest", "0.5"),
    ("race: nobody private", public, "entrants", "FedAvg, FedAdam"),
    (
        "race: several sizes",
        lambda: entered.ledger(several),
        "algorithms: dp_scaffold",
        "equally many records",
    ),
    ("few records", lambda: dp_scaffold_synthetic.load(few), "records", "36"),
    ("ranges of images", of_images, "authors.record_ranges", "scales synthetic data"),
    ("a canary twice", lambda: Wanted(canary=("natural",) * 2), "canary", "['natural', 'natural']"),
    ("no canary", lambda: Wanted(canary=()), "canary", "[]"),
    ("audit: no labels", no_labels, "canary", "mislabelled", NoPlaceError),
    ("audit: one label alone", one_label, "canary", "mislabelled", NoPlaceError),
    ("beside PyTorch", partial(no_torch, "--torch"), "torch", "pip install torch"),
    ("beside peers without PyTorch", partial(no_torch, "--peers"), "peers", "torch"),
    ("growth where it was", kept_growth, "output", "done"),
    ("growth in a file", in_a_file, "output", "file/under"),
    ("a page of something else", no_result, "other.json", "rounds --json"),
    ("a slope of what is not positive", lambda: fit([1, 2], [0, 1]), "[0, 1]", "not all positive"),
    *((f"reproduce {w}", partial(reproduce, *w), field, shown) for w, field, shown in OF_REPRODUCE),
    *((f"benchmark {w}", partial(benchmark, *w), field, shown) for w, field, shown in OF_BENCHMARK),
]
for text in ("77 percent", "about 3", "above", "within x", "3 points"):
    ROWS.append((f"a cell, {text!r}", partial(Cell, "", "", text, (), Value), "published", text))
