"""What the field trains with client-level privacy, on one data set: the algorithms of `fedpriv race`.

    fedpriv run race --algorithms dp_fed_avg rand_k --target-epsilon 8

FedAvg with and without an optimiser at the server, DP-FedAvg likewise, adaptive clipping (Andrew et al.), Fed-SMP, Haar
noise calibrated until its certificate is that of isotropic noise, noise by each client (Wei et al.), and DP-SCAFFOLD
whose steps protect the whole client. Small networks: an MLP for digits, CNNs of 8 and 16 filters for Fashion-MNIST
and CIFAR-10, a causal convolution for Shakespeare, logistic regression for synthetic(1, 1).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import flax.linen as nn
import jax
import numpy as np
import optax

import fedpriv as fp
from fedpriv import datasets, models
from fedpriv.core.arguments import Probability
from fedpriv.core.trees import dimension
from fedpriv.core.types import Example
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.config import Experiment, Ledger, image
from fedpriv.experiments.config.fields import Number, check_each
from fedpriv.experiments.papers import fed_smp
from fedpriv.experiments.papers.fed_smp import FedSMP, Local
from fedpriv.rounds.algorithm import Algorithm

Rival = Literal["dp_fed_avg_adaptive", "dp_fed_avg_wav_sound", "ldp_fed_avg", "dp_scaffold"]


class CharacterCNN(nn.Module):
    """text [80] -> logits f32[80, 90], each from the eight characters before: 10,730 parameters."""

    @nn.compact
    def __call__(self, text: jax.Array) -> jax.Array:
        x = nn.Embed(90, 8)(text)
        x = nn.relu(nn.Conv(64, (8,), padding="CAUSAL")(x))
        return nn.Dense(90)(x)


class Task(NamedTuple):
    """A data set, its network, and what its examples look like.

    Attributes:
      records: for training, all clients together; None where clients hold unequally many.
    """

    network: Callable[[], models.Model]
    example: Example
    records: int | None


TASKS = {
    "digits": Task(
        lambda: models.classifier(models.MLP((64,), 10), (8, 8, 1)), image(8, 8, 1), 1437
    ),
    "synthetic": Task(
        lambda: models.classifier(models.LogisticRegression(10), (40, 1, 1)),
        image(40, 1, 1, dtype=np.float32),
        40_000,
    ),
    "fashion_mnist": Task(models.small_mnist_cnn, image(28, 28, 1), 60_000),
    "cifar10": Task(
        lambda: models.classifier(models.CNN((8, 16), (32,), 10), (32, 32, 3)),
        image(32, 32, 3),
        50_000,
    ),
    "shakespeare": Task(
        lambda: models.next_character(CharacterCNN()),
        {
            "text": np.zeros(80, np.uint8),
            "label": np.zeros(80, np.int32),
            "mask": np.zeros(80, bool),
        },
        None,
    ),
}


@dataclass(frozen=True)
class Race(FedSMP):
    """FedAvg, and what protects its clients."""

    algorithms: tuple[fed_smp.Name | Rival, ...] = ("fed_avg", "dp_fed_avg", "rand_k", "top_k")  # type: ignore[assignment]
    """Algorithms to train, one after another; those that begin with fed_ are not private."""
    dataset: Literal["digits", "synthetic", "fashion_mnist", "cifar10", "shakespeare"] = "digits"
    """`shakespeare` and `synthetic` have their own clients."""
    quantile: float = 0.5
    """Fraction of updates that adaptive clipping leaves unclipped."""
    scaffold_steps: int = 2
    """Local steps of a client in DP-SCAFFOLD, each on all of its records."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_each(Number, scaffold_steps=self.scaffold_steps)
        check_each(Probability, quantile=self.quantile)
        equal = {"dp_fed_avg_adaptive", "ldp_fed_avg", "dp_scaffold"} & set(self.algorithms)
        if self.weighting.cap is not None and equal:
            raise ValueError(
                f"weighting.cap: {', '.join(sorted(equal))} counts all clients equally; leave one of them out"
            )

    @property
    def records(self) -> int:
        """Of each client, for DP-SCAFFOLD.

        Raises:
          ValueError: clients hold unequally many.
        """
        whole = TASKS[self.dataset].records
        total = None if whole is None else self.records_left(whole)
        if total is None or total % self.clients:
            if "dp_scaffold" in self.algorithms:
                raise ValueError(
                    f"algorithms: dp_scaffold needs clients of equally many records, which the {self.clients} of "
                    f"{self.dataset} are not; leave it out"
                )
            return 1
        return total // self.clients

    def made(self, name: fed_smp.Name | Rival, model: models.Model, clients: int) -> Algorithm:
        local, server = self.local, self.server.made()
        sampler = fed_smp.sampler(self, clients)
        common = {"sampler": sampler, "optimizer": local.optimizer, "batches": local.batches()}
        private = {"clip_norm": self.clip_norm, "noise_multiplier": self.noise_multiplier}
        if name == "dp_fed_avg_adaptive":
            # A twentieth of the cohort, as in the paper; where that is little, what leaves noise for the sum.
            count_noise = max(self.cohort / 20, self.noise_multiplier)
            given = {**common, **private, "quantile": self.quantile, "count_noise": count_noise}
            return fp.adaptive_fed_avg(model.loss, **given, server=server)
        if name == "dp_fed_avg_wav_sound":
            d = dimension(jax.eval_shape(model.init, jax.random.key(0)))
            haar = fp.papers.haar_mechanism(d, **private, clip="levels", calibrated=True)
            weighting = self.weighting.made()
            return fp.fed_avg(
                model.loss, **common, mechanism=haar, server=server, weighting=weighting
            )
        if name == "ldp_fed_avg":
            noise = fp.gaussian(**private)
            return fp.papers.ldp_fed_avg(model.loss, **common, mechanism=noise, server=server)
        if name == "dp_scaffold":
            return self._scaffold(model, sampler)
        return super().made(name, model, clients)

    def _scaffold(self, model: models.Model, sampler: fp.Sampler) -> Algorithm:
        step, sigma = self.local.learning_rate, 2 * self.noise_multiplier * self.records
        steps = fp.LocalSteps(
            fp.per_example(model.loss, micro=self.local.micro),
            fp.everyone(self.records),
            self.scaffold_steps,
            lambda t: optax.sgd(step),
            fp.gaussian(self.clip_norm, sigma),
            unit="client",
        )
        return fp.dp_scaffold(steps, sampler=sampler, server=self.server.made())


settings = Race(
    rounds=60,
    every=10,
    clients=479,
    cohort=48,
    sampling="poisson",
    public_examples=100,
    local=Local(epochs=5, batch_size=5, momentum=0.0, decay=1.0),
)


NOTES = {
    "synthetic": (
        "no epsilon covers the preprocessing: features are standardised with statistics of all training records",
    )
}


def ledger(settings: Race) -> Ledger:
    task = TASKS[settings.dataset]
    if task.records is None or settings.dataset == "synthetic":
        made = fed_smp.natural_ledger(
            settings, task.network(), task.example, lambda: load(settings)
        )
    else:
        made = fed_smp.ledger(settings, task.network(), task.example)
    return replace(made, notes=(*NOTES.get(settings.dataset, ()), *made.notes))


def load(settings: Race) -> Dataset:
    if settings.dataset == "synthetic":
        return datasets.synthetic(
            1, 1, clients=settings.clients, records=50_000 // settings.clients
        )
    return datasets.load(settings.dataset, settings.data_dir)


def on(settings: Race, data: Dataset) -> Experiment:
    made = fed_smp.experiment(settings, data, TASKS[settings.dataset].network())
    return replace(made, notes=NOTES.get(settings.dataset, ()))
