"""Fresh noise beside noise that is correlated over the rounds: settings, and what they build."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import optax

import fedpriv as fp
from fedpriv.core.arguments import Decay, Probability, Rate
from fedpriv.core.types import Example, LossFn
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.config.experiment import Experiment
from fedpriv.experiments.config.fields import (
    Clients,
    Number,
    Single,
    check_each,
    each_once,
    mechanism,
)
from fedpriv.experiments.config.ledger import Entry, Ledger, blank
from fedpriv.experiments.config.settings import Settings
from fedpriv.experiments.papers.fed_smp import Local
from fedpriv.rounds.algorithm import Algorithm

Compared = Literal[
    "dp_fed_avg",
    "dp_fed_avg_m",
    "poisson",
    "tree",
    "banded",
    "blt",
    "banded_inverse",
    "fed_smp",
]
Name = Literal[Compared, "least_error"]
FRESH = ("dp_fed_avg", "dp_fed_avg_m", "poisson")


@dataclass(frozen=True)
class Correlated(Settings):
    """DP-FedAvg with fresh noise, and with noise that is correlated over the rounds."""

    algorithms: tuple[Name, ...] = get_args(Compared)
    """Algorithms to train, one after another; least_error uses the matrix with the least error among the others."""
    clients: int = 1200
    """Number of clients (ignored where the data has natural clients)."""
    cohort: int = 60
    """Clients per round (expected for poisson, where each takes part independently)."""
    local: Local = field(default_factory=Local)
    server_rate: float = 1.0
    """Learning rate of the server's SGD."""

    momentum: float = 0.9
    """Momentum of the server's SGD, except for dp_fed_avg."""
    error: Literal["prefix", "momentum"] = "prefix"
    """For which the matrices of banded, blt, banded_inverse, fed_smp and least_error are made: that of prefix sums, or
    of the model under the server's momentum."""
    bands: int = 20
    """Bands of banded, and of the inverse of banded_inverse; at most the rounds."""
    buffers: int = 3
    """Buffers of blt."""
    p: float = 0.4
    """fed_smp: share of coordinates that is trained; its noise is that of banded_inverse."""
    period: int | None = None
    """Rounds for which the coordinates of fed_smp stay; by default the whole run."""
    clip_norm: float = 0.5
    """Bound on the l2 norm of a client's update."""
    noise_multiplier: float = 4.0
    """sigma; noise of standard deviation clip_norm sigma is drawn for the cohort's sum, and then correlated."""
    delta: float = 1e-5
    """delta of the privacy guarantee."""

    def __post_init__(self) -> None:
        super().__post_init__()
        each_once(self.algorithms)
        check_each(Clients, clients=self.clients)
        check_each(Number, cohort=self.cohort, bands=self.bands, buffers=self.buffers)
        check_each(Number, period=self.period)
        check_each(Single, server_rate=self.server_rate)
        check_each(Decay, momentum=self.momentum)
        check_each(Rate, p=self.p)
        check_each(Probability, delta=self.delta)
        mechanism(self.clip_norm, self.noise_multiplier)
        if self.cohort > self.clients:
            raise ValueError(
                f"cohort: {self.cohort} exceeds the {self.clients} clients; choose fewer"
            )

    @property
    def separation(self) -> int:
        """Rounds from one turn of a client to its next."""
        return -(-self.clients // self.cohort)


def algorithm(name: Name, settings: Correlated, loss: LossFn) -> Algorithm:
    """An algorithm with fresh or correlated noise, with the config's settings."""
    sampler: Any = fp.shuffled_blocks(settings.clients, settings.cohort)
    if name == "poisson":
        sampler = fp.poisson(settings.clients, settings.cohort / settings.clients)
    momentum = None if name == "dp_fed_avg" else settings.momentum
    noise = fp.gaussian(settings.clip_norm, settings.noise_multiplier)
    if name not in FRESH:
        noise = fp.correlated(noise, matrix(name, settings))
    common: dict[str, Any] = {
        "sampler": sampler,
        "optimizer": settings.local.optimizer,
        "batches": settings.local.batches(),
        "server": optax.sgd(settings.server_rate, momentum=momentum),
        "mechanism": noise,
    }
    if name == "fed_smp":
        mask = fp.papers.select_rand_k(settings.p, unbiased=False, period=settings.period)
        return fp.papers.fed_avg_sparse(loss, **common, sparsifier=mask)
    return fp.fed_avg(loss, **common)


def matrix(name: Name, settings: Correlated) -> fp.noise_matrices.Factorization:
    """The matrix that correlates the noise of these rounds."""
    matrices, rounds, separation = fp.noise_matrices, settings.rounds, settings.separation
    under: dict[str, Any] = {"momentum": settings.momentum if settings.error == "momentum" else 0.0}
    make: dict[str, Callable[[], fp.noise_matrices.Factorization]] = {
        "identity": matrices.identity,
        "tree": lambda: matrices.tree(rounds),
        "banded": lambda: matrices.banded_toeplitz(rounds, settings.bands, **under),
        "blt": lambda: matrices.blt(rounds, separation, buffers=settings.buffers, **under),
        "banded_inverse": lambda: matrices.banded_inverse(rounds, settings.bands, **under),
    }
    if name == "least_error":
        all_of_them = [each() for each in make.values()]
        return matrices.least_error(all_of_them, rounds, separation, **under)
    return make["banded_inverse" if name == "fed_smp" else name]()


def ledger(
    settings: Correlated,
    model: fp.models.Model,
    example: Example,
    records: int,
    notes: tuple[str, ...] = (),
) -> Ledger:
    """What the algorithms with correlated noise release with `settings.clients` clients of so many records."""
    entries: dict[str, Entry] = {
        name: blank(algorithm(name, settings, model.loss), example, settings.clients, records)
        for name in settings.algorithms
    }
    return Ledger(entries, settings.delta, model.init, notes)


def experiment(
    settings: Correlated, data: Dataset, model: fp.models.Model, dealt: list[fp.Federation]
) -> Experiment:
    """The experiment on correlated noise, on `data`, dealt out to `settings.clients` clients for each seed."""
    entries: dict[str, Entry] = {
        name: Entry(algorithm(name, settings, model.loss), dealt) for name in settings.algorithms
    }
    own_test = data.keys is not None
    return Experiment(model, data.test, settings.delta, entries, own_test=own_test)
