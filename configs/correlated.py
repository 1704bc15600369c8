"""Fresh noise beside correlated noise, for clients whose turns everybody knows, and beside secret Poisson cohorts.

    python -m experiments.run correlated --target-epsilon 8 --data-dir DIR

An MLP of 32 units on MNIST over 1,200 clients of 50 images, whose classes are mixed by Dirichlet(1). Cohorts of 60 take
turns in a shuffled order, so that a client takes part every 20 rounds, 10 times in 200. Certificates are of clients who
are zeroed out, as their turns are no secret; those of `poisson` are of clients who are added or removed, and hold only
where nobody knows who takes part. Every server but that of `dp_fed_avg` has momentum. What came out, and the server's
rates: experiments/results/correlated.md.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax
import numpy as np
import optax

import fedpriv as fp
from experiments.config import (
    Entry,
    Experiment,
    Layout,
    Ledger,
    Settings,
    blank,
    federations,
    image,
)
from experiments.config.fields import (
    Clients,
    Number,
    Single,
    check_each,
    each_once,
    mechanism,
)
from experiments.config.settings import MOST_SEEDS
from fedpriv.core.arguments import Decay, Probability, Rate
from fedpriv.core.types import LossFn
from fedpriv.data.datasets import Dataset
from fedpriv.rounds.algorithm import Algorithm

Name = Literal[
    "dp_fed_avg",
    "dp_fed_avg_m",
    "poisson",
    "tree",
    "banded",
    "blt",
    "banded_inverse",
    "fed_smp_fixed",
]
FRESH = ("dp_fed_avg", "dp_fed_avg_m", "poisson")
IMAGES = 60_000
MODEL = fp.models.classifier(fp.models.MLP((32,), 10), (28, 28, 1))


@dataclass(frozen=True)
class Correlated(Settings):
    """DP-FedAvg with fresh noise, and with noise that is correlated over the rounds."""

    algorithms: tuple[Name, ...] = get_args(Name)
    """What to train, one after the other."""
    clients: int = 1200
    """Number of clients, who share all images in equal parts."""
    alpha: float = 1.0
    """Concentration of each client's mixture of classes; small: few classes."""
    cohort: int = 60
    """Clients per round; of poisson expected, as each takes part on its own."""
    epochs: int = 1
    """Passes over a client's images per round."""
    batch_size: int = 10
    """Images per step."""
    learning_rate: float = 0.1
    """Of the clients' SGD."""
    server_rate: float = 1.0
    """Of the server's SGD."""
    momentum: float = 0.9
    """Of the server's SGD, for all but dp_fed_avg."""
    p: float = 0.4
    """Of fed_smp_fixed, whose noise is that of banded_inverse: the share of coordinates that is trained."""
    bands: int = 20
    """Of banded, and of the inverse of banded_inverse; at most the rounds."""
    buffers: int = 3
    """Of blt."""
    clip_norm: float = 0.5
    """Bound on the l2 norm of a client's update."""
    noise_multiplier: float = 4.0
    """sigma; noise of standard deviation clip_norm sigma is drawn for the cohort's sum, and then correlated."""
    delta: float = 1e-5
    """Of the privacy guarantee."""

    def __post_init__(self) -> None:
        super().__post_init__()
        each_once(self.algorithms)
        check_each(Clients, clients=self.clients)
        check_each(Number, cohort=self.cohort, epochs=self.epochs, batch_size=self.batch_size)
        check_each(Number, bands=self.bands, buffers=self.buffers)
        check_each(Single, alpha=self.alpha, learning_rate=self.learning_rate)
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


settings = Correlated(rounds=200, seeds=3, every=40, layout=Layout(devices=1))


def algorithm(name: Name, settings: Correlated, loss: LossFn) -> Algorithm:
    """One of them, with the config's settings."""
    sampler: Any = fp.shuffled_blocks(settings.clients, settings.cohort)
    if name == "poisson":
        sampler = fp.poisson(settings.clients, settings.cohort / settings.clients)
    momentum = None if name == "dp_fed_avg" else settings.momentum
    noise = fp.gaussian(settings.clip_norm, settings.noise_multiplier)
    common: dict[str, Any] = {
        "sampler": sampler,
        "optimizer": lambda t: optax.sgd(settings.learning_rate),
        "batches": fp.epochs(settings.epochs, settings.batch_size),
        "server": optax.sgd(settings.server_rate, momentum=momentum),
    }
    if name not in FRESH:
        noise = fp.correlated(noise, matrix(name, settings))
    if name == "fed_smp_fixed":
        return fp.fed_avg_sparse(loss, **common, mechanism=noise, sparsifier=fixed_mask(settings.p))
    return fp.fed_avg(loss, **common, mechanism=noise)


def matrix(name: Name, settings: Correlated) -> fp.noise_matrices.Factorization:
    """What correlates the noise of these rounds."""
    rounds = settings.rounds
    if name == "tree":
        return fp.noise_matrices.tree(rounds)
    if name == "banded":
        return fp.noise_matrices.banded_toeplitz(rounds, settings.bands)
    if name == "blt":
        return fp.noise_matrices.blt(rounds, settings.separation, buffers=settings.buffers)
    return fp.noise_matrices.banded_inverse(rounds, settings.bands)


def fixed_mask(p: float) -> Any:
    """A share p of the coordinates, drawn once: the same in every round and run."""
    drawn = fp.select_rand_k(p, unbiased=False)
    mask_key = jax.random.key(MOST_SEEDS)  # no run's seed
    return drawn._replace(select=lambda key, *rest: drawn.select(mask_key, *rest))


def ledger(settings: Correlated) -> Ledger:
    each = -(-settings.records_left(IMAGES) // settings.clients)
    entries = {
        name: blank(algorithm(name, settings, MODEL.loss), image(28, 28, 1), settings.clients, each)
        for name in settings.algorithms
    }
    return Ledger(entries, settings.delta, MODEL.init)


def load(settings: Correlated) -> Dataset:
    return fp.datasets.load("mnist", settings.data_dir)


def on(settings: Correlated, data: Dataset) -> Experiment:
    labels = np.asarray(data.train["label"])

    def deal(rng: np.random.Generator) -> list[np.ndarray]:
        return fp.partition.dirichlet_mixtures(rng, labels, settings.clients, settings.alpha)

    dealt = federations(data, settings.seeds, deal)
    entries = {
        name: Entry(algorithm(name, settings, MODEL.loss), dealt) for name in settings.algorithms
    }
    return Experiment(MODEL, data.test, settings.delta, entries)
