"""The experiments of DP-SCAFFOLD (Noble, Bellet, Dieuleveut, arXiv:2111.09278, Section 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

import fedpriv as fp
from experiments.config import Entry, Experiment, Ledger, Run, at_least_one
from fedpriv.datasets import Dataset
from fedpriv.per_example import Gradients
from fedpriv.types import Algorithm

Name = Literal["scaffold", "fed_avg", "fed_sgd", "dp_scaffold", "dp_fed_avg", "dp_fed_sgd"]


@dataclass(frozen=True)
class DPScaffold(Run):
    """DP-SCAFFOLD and its baselines, with record-level privacy."""

    algorithms: tuple[Name, ...] = ("dp_scaffold", "dp_fed_avg")
    """What to train, one after the other; scaffold, fed_avg and fed_sgd are not private."""
    clients: int = 100
    """Number of clients M."""
    records: int = 5000
    """Records of each client, a fifth of which is for testing; R is the number of the others."""
    client_rate: float = 0.2
    """l: the cohort is l M clients, without replacement."""
    record_rate: float = 0.2
    """s: a local step takes s R records."""
    record_sampling: Literal["subsets", "poisson"] = "subsets"
    """How a local step draws its records: exactly s R of them, or each on its own with probability s."""
    local_steps: int = 50
    """K; FedSGD takes 1 / s, which is one pass."""
    warm_start: int | None = None
    """Rounds, of the T, that set SCAFFOLD's control variates at the initial model; by default 4 / l, 0: none."""
    eta_0: float = 1.0
    """The local step is eta_0 / (s K)."""
    global_rate: float = 1.0
    """eta_g, on the cohort's mean update."""
    l2: float = 5e-3
    """Weight of l2 / 2 ||x||^2, which is part of every record's loss."""
    clip_norm: float | Literal["median"] = 1.0
    """C, bound on a record's gradient; `median` (of each step's norms) is the paper's choice and is not private."""
    noise_multiplier: float = 60.0
    """sigma_g; a step's mean gets noise of standard deviation 2 C sigma_g / (s R) per coordinate."""
    delta: float | None = None
    """Of the privacy guarantee; by default 1 / (M R), the paper's choice."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(clients=self.clients, local_steps=self.local_steps)
        for name in ("client_rate", "record_rate"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not in (0, 1]")
        if self.records < 5:
            raise ValueError(
                f"records: {self.records} is not at least 5, one of which is for testing"
            )
        if not self.eta_0 > 0:
            raise ValueError(f"eta_0: {self.eta_0} is not positive")
        if not self.l2 >= 0:
            raise ValueError(f"l2: {self.l2} is not 0 or more")
        if not self.algorithms or len(set(self.algorithms)) < len(self.algorithms):
            raise ValueError(f"algorithms: {self.algorithms}; name at least one, and each once")
        if self.delta is not None and not 0 < self.delta < 1:
            raise ValueError(f"delta: {self.delta} is not in (0, 1)")
        for name, drawn, total in (
            ("client_rate", self.cohort, self.clients),
            ("record_rate", self.batch, self.training_records),
        ):
            if drawn < 1:
                raise ValueError(f"{name}: {getattr(self, name)} of {total} is less than one")

    @property
    def training_records(self) -> int:
        """R."""
        return self.records - self.records // 5

    @property
    def cohort(self) -> int:
        """floor(l M), with a hair's breadth for rounding."""
        return math.floor(self.client_rate * self.clients + 1e-9)

    @property
    def batch(self) -> int:
        """floor(s R)."""
        return math.floor(self.record_rate * self.training_records + 1e-9)

    @property
    def warm_rounds(self) -> int:
        return math.ceil(4 / self.client_rate) if self.warm_start is None else self.warm_start


def algorithm(name: Name, config: DPScaffold, gradients: Gradients) -> Algorithm:
    """One of the paper's algorithms, with the config's settings."""
    private = name.startswith("dp_")
    steps = (
        max(1, round(1 / config.record_rate)) if name.endswith("fed_sgd") else config.local_steps
    )
    local = fp.LocalSteps(
        gradients,
        _records(config),
        steps,
        config.eta_0 / (config.record_rate * steps),
        config.clip_norm if private else math.inf,
        config.noise_multiplier if private else 0.0,
    )
    shared = {
        "sampler": fp.fixed_size(config.clients, config.cohort),
        "global_rate": config.global_rate,
    }
    if name.endswith("scaffold"):
        return fp.dp_scaffold(local, **shared, warm_start=config.warm_rounds)
    return fp.record_fed_avg(local, **shared)


def _records(config: DPScaffold) -> fp.Sampler:
    total = config.training_records
    if config.record_sampling == "subsets":
        return fp.subsets(total, config.batch)
    spread = (config.batch * (1 - config.record_rate)) ** 0.5
    capacity = min(total, math.ceil(config.batch + 6 * spread))
    return fp.poisson(total, config.record_rate, capacity)


def ledger(config: DPScaffold) -> Ledger:
    """What the algorithms of `config` release; needs no data."""

    def unused(*_: object) -> fp.PerExample:
        raise NotImplementedError("a ledger is not trained")

    return Ledger({n: algorithm(n, config, unused) for n in config.algorithms}, delta(config))


def delta(config: DPScaffold) -> float:
    if config.delta is not None:
        return config.delta
    return 1 / (config.clients * config.training_records)


def experiment(
    config: DPScaffold, data: Dataset, model: fp.models.Model, gradients: Gradients, *, convex: bool
) -> Experiment:
    """The experiment of `config` on `data`, whose natural clients hold R records each.

    Every client's test set has the same size, so that the mean accuracy over users is that over all test records. For a
    `convex` objective the gap to its minimum is measured, too.
    """
    clients: Sequence[np.ndarray] = fp.partition.natural(data.keys)
    federation = fp.Federation.from_arrays(data.train, clients, num_classes=data.num_classes)
    import jax

    minimum = None
    if convex:
        start = model.init(jax.random.key(0))
        minimum = fp.measures.minimum_of(model.loss, start, federation, config.l2)
    entries = {
        name: Entry(algorithm(name, config, gradients), [federation] * config.seeds)
        for name in config.algorithms
    }
    measure = fp.measures.heterogeneity(model.loss, config.l2, minimum)
    test = {k: v for k, v in data.test.items() if k != "client"}
    return Experiment(model, test, delta(config), entries, measure)
