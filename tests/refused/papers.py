"""Commands and configs of the papers, the race, audits."""

from dataclasses import replace
from functools import partial
from unittest.mock import patch

import commands
import numpy as np
import reproduced
from small import regression

import configs.race as entered
import fedpriv as fp
from configs import dp_scaffold_mnist, dp_scaffold_synthetic
from experiments import race
from experiments.attacks.audit.audit import Wanted
from experiments.attacks.audit.canary import data_of
from experiments.papers.dp_scaffold import Authors
from experiments.papers.hours import Speeds
from experiments.papers.reproduce import reproduce as room
from experiments.papers.reproduce.catalogue import PAPERS
from experiments.papers.reproduce.item import Cell, Value
from fedpriv.attacks.canaries import NoPlaceError
from refused.row import Refusal


def reproduce(*words):
    """On the tiny paper, in a folder of its own."""

    def called():
        with patch.dict(PAPERS, {"tiny": reproduced.ITEMS}):
            commands.reproduce.main([*words, "--output", "here", "--traceback"])

    return called


def under_srun():
    with patch.object(room, "slurm_step", lambda: True):
        reproduce("tiny", "table1")()


OF_REPRODUCE = [
    ("no paper", [], "paper", "none given"),
    ("an unknown paper", ["fed_sgd", "table1"], "paper", "'fed_sgd'"),
    ("findings of an unknown paper", ["gone", "--findings"], "paper", "'gone'"),
    ("no item", ["tiny"], "item", "none given"),
    ("an unknown item", ["tiny", "table9"], "item", "'table9'"),
    ("scaled to nothing", ["tiny", "table1", "--scale", "0"], "scale", "0.0"),
    ("scaled up", ["tiny", "table1", "--scale", "1.5"], "scale", "1.5"),
    ("scaled by NaN", ["tiny", "table1", "--scale", "nan"], "scale", "nan"),
    ("scaled by a word", ["tiny", "table1", "--scale", "half"], "scale", "'half'"),
    ("no seed", ["tiny", "table1", "--seeds", "0"], "seeds", "0"),
    ("rows that no item has", ["tiny", "table1", "--only", "fed_smp"], "only", "'fed_smp'"),
]
ROWS = [
    Refusal(f"reproduce: {n}", reproduce(*words), f, value) for n, words, f, value in OF_REPRODUCE
]
few = dp_scaffold_synthetic.Synthetic(clients=5, records=45, authors=Authors(record_ranges=True))
several = replace(entered.settings, algorithms=("dp_scaffold",), clients=480)
ENTRANTS = ["--entrants", "FedAvg", "FedAdam", "--traceback"]
OF_OTHERS = [
    ("reproduce: under srun", under_srun, "reproduce", "start it without srun"),
    (
        "hours: quicker than all",
        lambda: Speeds((1.0,), (1.0,), "constant").up_to(0.5),
        "slowest",
        "0.5",
    ),
    ("race: nobody private", lambda: race.main(ENTRANTS), "entrants", "FedAvg, FedAdam"),
    (
        "race: SCAFFOLD on clients of several sizes",
        lambda: entered.ledger(several),
        "dp_scaffold",
        "",
    ),
    ("scaffold: ranges of few records", lambda: dp_scaffold_synthetic.load(few), "records", "36"),
    (
        "scaffold: ranges of images",
        lambda: dp_scaffold_mnist.Digits(authors=few.authors),
        "authors.record_ranges",
        "",
    ),
]
ROWS += [Refusal(*each) for each in OF_OTHERS]
ROWS += [
    Refusal(f"a cell that says {text!r}", partial(Cell, "", "", text, (), Value), "published", text)
    for text in ("77 percent", "about 3", "above", "within x", "3 points")
]


def no_labels():
    data_of("mislabelled", regression([4] * 3))


def mislabelled(*labels):
    given = {"label": np.array(labels)}
    return lambda: data_of("mislabelled", fp.Federation.from_arrays(given, [[0, 1]]))


TWICE = ("natural", "natural")
ROWS += [
    Refusal("audit: a canary twice", lambda: Wanted(canary=TWICE), "canary", str([*TWICE])),
    Refusal("audit: no canary", lambda: Wanted(canary=()), "canary", "[]"),
    Refusal("audit: no labels", no_labels, "canary", "mislabelled", NoPlaceError),
    Refusal("audit: one label alone", mislabelled(0, 0), "canary", "mislabelled", NoPlaceError),
]
