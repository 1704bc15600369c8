"""Fresh noise beside correlated noise, on text: the roles of Shakespeare's plays take turns.

    fedpriv run correlated_text --target-epsilon 8 --data-dir DIR

A transformer of 7,562 parameters predicts next characters; each of the 1,138 roles is a client, who takes 4 steps of
one text each. Cohorts of 57 take turns in a shuffled order, so that a role takes part every 20 rounds, 5 times in 100.
The last fifth of each role's speeches is for testing; of their texts every fifth is used. Certificates are as those of
the config `correlated`. What came out, and the server's rates: experiments/results/correlated.md.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

import fedpriv as fp
from fedpriv.data.datasets import Dataset, MissingDataError
from fedpriv.data.datasets.shakespeare import LENGTH, VOCABULARY
from fedpriv.experiments.config import Experiment, Layout, Ledger, federations, text
from fedpriv.experiments.papers import correlated
from fedpriv.experiments.papers.correlated import Correlated, experiment
from fedpriv.experiments.papers.fed_smp import Local

FEWER = 5  # of the test texts one is evaluated on
MODEL = fp.models.next_character(
    fp.models.CharacterTransformer(VOCABULARY, width=16, heads=2, blocks=1)
)


settings = Correlated(
    rounds=100,
    seeds=3,
    every=100,
    clients=1138,  # of the plays; counted in the data where it is at hand
    cohort=57,
    local=Local(steps=4, batch_size=1, learning_rate=1.0, momentum=0.0, decay=1.0),
    layout=Layout(devices=1),
)


def ledger(settings: Correlated) -> Ledger:
    notes: tuple[str, ...] = ()
    try:
        clients = len(fp.partition.natural(load(settings).keys))
    except MissingDataError as missing:
        clients = settings.clients
        notes = (f"counted for {clients} clients (`--clients`): {missing}",)
    counted = replace(settings, clients=clients)
    return correlated.ledger(counted, MODEL, text(LENGTH), 1, notes)


def load(settings: Correlated) -> Dataset:
    return _spoken(settings.data_dir)


@cache  # the ledger asks for the number of roles again and again
def _spoken(data_dir: Path | None) -> Dataset:
    data = fp.datasets.load("shakespeare", data_dir)
    return data._replace(test={name: leaf[::FEWER] for name, leaf in data.test.items()})


def on(settings: Correlated, data: Dataset) -> Experiment:
    roles = fp.partition.natural(data.keys)

    def deal(rng: np.random.Generator) -> list[np.ndarray]:
        return roles

    counted = replace(settings, clients=len(roles))
    return experiment(counted, data, MODEL, federations(data, settings.seeds, deal))
