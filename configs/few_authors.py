"""Few private authors, and a public play: what they can teach a small model of text under a budget.

    fedpriv run few_authors --target-epsilon 8 --data-dir DIR
    fedpriv run few_authors --rehearse true --local.learning-rate 2 --data-dir DIR

A transformer of 28,352 parameters is trained on the first of Shakespeare's plays, in the open. Then the 40 roles with
the most text of plays 5 to 37 train its norms, biases and norms, adapters, the head, or all of it by DP-FedAvg: up to
125 texts of 80 characters each, 400 kB at most. A client is such an author, which is a role of one play (FALSTAFF of
three plays is three clients), or (`--unit speech`) one of their speeches.
Settings are tried out on plays 2 to 4, which are taken to be public, too (`--rehearse true`); that costs no privacy. It
predicts next characters; the last fifth of each role's speeches is for testing. What came out:
experiments/results/few_authors.md.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import optax

import fedpriv as fp
from fedpriv import datasets, models
from fedpriv.core.types import Params
from fedpriv.data.datasets import Dataset
from fedpriv.data.datasets.shakespeare import BEGIN, LENGTH, VOCABULARY, load_shakespeare
from fedpriv.experiments.config import Experiment, Ledger, text
from fedpriv.experiments.config.fields import Number, NumberOrZero, check_each
from fedpriv.experiments.papers.fed_smp import Local, experiment, natural_ledger
from fedpriv.experiments.papers.fine_tuning import (
    FineTuning,
    shortened,
    trained_openly,
    zeros,
)

LEAVES = {"norms": r"norm.*(scale|bias)$", "biases": r"bias$|scale$", "head": "Embed_0"}
"""What is trained of the network's leaves; its embeddings are its head, too."""
REHEARSED = 3
"""So many plays after those of the base are for trying settings out."""


@dataclass(frozen=True)
class FewAuthors(FineTuning):
    """DP-FedAvg of a part of a small transformer that was trained on some plays."""

    NETWORK: ClassVar[models.Model] = models.next_character(
        models.Transformer(VOCABULARY, width=32, heads=2, layers=2)
    )
    PUBLIC: ClassVar[str] = "the base was trained on some plays, which are taken to be public"

    trained: Literal["norms", "biases", "adapters", "head", "all"] = "norms"  # type: ignore[assignment]
    """What the clients train of the network: its norms, norms and all biases, low-rank adapters of its kernels, its
    head, or all of it."""
    unit: Literal["author", "speech"] = "author"
    """Who a client is: an author (a role of one play) with all texts, or one speech. Then an author who holds several
    is not covered."""
    authors: int = 40
    """The roles with the most text, so many."""
    author_texts: int = 125
    """Texts of each author at most, of 80 characters."""
    test_texts: int = 600
    """How many of the authors' test texts are scored, evenly spaced; 0: all."""
    base_plays: int = 1
    """The base is trained on the first so many plays."""
    base_epochs: int = 10
    """Passes over these plays."""
    rehearse: bool = False
    """Take the authors from the three plays after the base's, which are public, too, in place of those after them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_each(Number, authors=self.authors, author_texts=self.author_texts)
        check_each(Number, base_plays=self.base_plays, base_epochs=self.base_epochs)
        check_each(NumberOrZero, test_texts=self.test_texts)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the certificates leave out."""
        speech = "a client is one speech; an author of several is not covered as a whole"
        return (*super().notes, *[speech] * (self.unit == "speech"))

    def model(self, base: Params | None = None) -> models.Model:
        """The network with `base` (zeros, which will do for accounting), and what is trained of it."""
        base = zeros(self.NETWORK) if base is None else base
        if self.trained in LEAVES:
            return models.frozen(self.NETWORK, base, LEAVES[self.trained])
        if self.trained == "adapters":
            return models.adapters(self.NETWORK, base, self.rank, "kernel$", stacked="layers")
        return super().model(base)


settings = FewAuthors(
    algorithms=("dp_fed_avg",),
    rounds=6,
    seeds=3,
    every=2,
    rank=1,
    clients=40,  # of the plays; counted in the data where it is at hand
    cohort=40,  # everyone, in every round
    sampling="poisson",
    delta=1e-3,
    clip_norm=0.5,
    noise_multiplier=1.18,  # of six rounds with everyone: epsilon 7.96
    local=Local(steps=8, batch_size=8, learning_rate=1.0, momentum=0.0, decay=1.0),
)


@cache
def trained_on_plays(data_dir: Path, plays: int, epochs: int) -> Params:
    """The network's parameters after so many passes over the first plays, by AdamW at a rate that falls to 0."""
    spoken = load_shakespeare(data_dir, slice(plays))
    steps = epochs * -(-len(spoken.train["label"]) // 32)
    rate = optax.warmup_cosine_decay_schedule(0, 3e-3, min(100, steps // 2), steps)
    optimizer = optax.adamw(rate, weight_decay=0.1)
    batches = fp.epochs(epochs, batch_size=32)
    return trained_openly(FewAuthors.NETWORK, spoken, batches, lambda t: optimizer)


def ledger(settings: FewAuthors) -> Ledger:
    return natural_ledger(settings, settings.model(), text(LENGTH), lambda: load(settings))


def load(settings: FewAuthors) -> Dataset:
    data_dir = settings.data_dir or datasets.default_data_dir()
    public = settings.base_plays + REHEARSED
    plays = slice(settings.base_plays, public) if settings.rehearse else slice(public, None)
    spoken = load_shakespeare(data_dir, plays, settings.authors)
    data = shortened(spoken, LENGTH, settings.test_texts)
    assert data.keys is not None
    first = np.searchsorted(data.keys, data.keys)  # of each one's texts
    kept = np.arange(len(data.keys)) - first < settings.author_texts
    train = {name: x[kept] for name, x in data.train.items()}
    if settings.unit == "author":
        return data._replace(train=train, keys=data.keys[kept])
    speeches = np.cumsum(train["text"][:, 0] == BEGIN, dtype=np.int32) - 1
    return data._replace(train=train, keys=speeches)


def on(settings: FewAuthors, data: Dataset) -> Experiment:
    data_dir = settings.data_dir or datasets.default_data_dir()
    base = trained_on_plays(data_dir, settings.base_plays, settings.base_epochs)
    return experiment(settings, data, settings.model(base))
