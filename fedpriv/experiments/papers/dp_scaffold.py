"""The experiments of DP-SCAFFOLD (Noble, Bellet, Dieuleveut, arXiv:2111.09278, Section 5)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
import optax

import fedpriv as fp
from fedpriv.core.arguments import Norm, Probability, Rate, checked
from fedpriv.core.complaints import require
from fedpriv.core.types import Example
from fedpriv.data.datasets import Dataset
from fedpriv.engine.simulate import Measure
from fedpriv.experiments.config.experiment import Experiment
from fedpriv.experiments.config.fields import (
    Number,
    NumberOrZero,
    Single,
    SingleOrZero,
    check_each,
    each_once,
    mechanism,
)
from fedpriv.experiments.config.ledger import Entry, Ledger
from fedpriv.experiments.config.settings import Settings
from fedpriv.experiments.papers.dp_scaffold_authors import with_one_seed
from fedpriv.mechanisms.per_example import Gradients
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.record_samplers import RecordSampler, most_records

Name = Literal["scaffold", "fed_avg", "fed_sgd", "dp_scaffold", "dp_fed_avg", "dp_fed_sgd"]


NOTES = (
    "no epsilon covers the preprocessing: features are standardised (images also projected on principal components, "
    "where the config says so) with statistics of all training records, taken without privacy as in the paper",
    "nor the tuning of eta_0 on the training records",
)
"""What the paper neglects, too."""

RANGES = (
    "no epsilon covers the preprocessing of `authors.record_ranges`: the d-th record of a client scales feature d of "
    "all its records"
)


@dataclass(frozen=True)
class Authors:
    """Where the authors' published code differs from their paper; it also has no l2 term (`l2 = 0`)."""

    one_seed: bool = False
    """All clients of a round draw the same records and the same noise, which averaging does not reduce; their seeds are
    public. Nothing is certified, nor is the claim proved."""
    record_ranges: bool = False
    """Synthetic data are not standardised: feature d of a client's records is mapped from the smallest and the largest
    *feature* of its d-th record to 0 and 1, one feature after the other."""
    per_tensor: bool = False
    """Clip every parameter tensor by itself, each with noise of sigma_g: for a fixed C the certificate is that of
    sigma_g / sqrt(tensors)."""
    rounded_steps: bool = False
    """Local step eta_0 / max(round(s K), 1) instead of eta_0 / (s K); no effect on privacy."""
    everyone_first: bool = False
    """Every client takes part in the first round of the warm start, which sampling then does not hide; the warm start
    has round(4 / l) rounds."""


@dataclass(frozen=True)
class DPScaffold(Settings):
    """DP-SCAFFOLD and its baselines, with record-level privacy."""

    TENSORS: ClassVar[int] = 2
    """Parameter tensors of the model."""
    TUNED: ClassVar[dict[str, float]] = {}
    """Name -> eta_0, chosen on a fold of the training records."""

    algorithms: tuple[Name, ...] = ("dp_scaffold", "dp_fed_avg")
    """Algorithms to train, one after another; scaffold, fed_avg and fed_sgd are not private."""
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
    sizes: Literal["equal", "secret", "public"] = "equal"
    """Every client trains on R records; or on a number of its own, from R / 10 to R, that is secret (then draw its
    records by `poisson`), or public."""
    local_steps: int = 50
    """K; FedSGD takes 1 / s, which is one pass."""
    warm_start: int | None = None
    """Rounds, of the T, that set SCAFFOLD's control variates at the initial model; by default 4 / l, of a short
    run no more than a quarter; 0: none."""
    eta_0: float | None = None
    """The local step is eta_0 / (s K); by default what was best for each algorithm on a fold of the training
    records, at the config's own settings (see `TUNED` there), and 1 for those that were not tuned."""
    global_rate: float = 1.0
    """eta_g, on the cohort's mean update."""
    l2: float = 5e-3
    """Weight of l2 / 2 ||x||^2, which is part of every record's loss."""
    clip_norm: float | Literal["median"] = 1.0
    """C, bound on a record's gradient; `median` (of each step's norms) is the paper's choice and is not private."""
    noise_multiplier: float = 60.0
    """sigma_g; a step's mean gets noise of standard deviation 2 C sigma_g / (s R) per coordinate."""
    unit: Literal["record", "client"] = "record"
    """Privacy unit; for a client the noise is R times as large (S = 2 C / s)."""
    delta: float | None = None
    """delta of the privacy guarantee; by default 1 / (M R), the paper's choice for records."""
    measured: bool = True
    """Also measure objective, gap to its minimum and dissimilarity at every evaluation, over all training records."""
    authors: Authors = Authors()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_each(Number, clients=self.clients, records=self.records, local_steps=self.local_steps)
        check_each(NumberOrZero, warm_start=self.warm_start)
        if self.authors.everyone_first and self.warm_rounds == 0:
            raise ValueError(
                "authors.everyone_first: there is no warm start; give warm_start at least 1"
            )
        check_each(Rate, client_rate=self.client_rate, record_rate=self.record_rate)
        require(self.records >= 5, "records", self.records, "give 5 or more, one for testing")
        check_each(Single, eta_0=self.eta_0, global_rate=self.global_rate)
        check_each(SingleOrZero, l2=self.l2)
        mechanism(self.clip_norm, self.noise_multiplier)
        each_once(self.algorithms)
        check_each(Probability, delta=self.delta)
        for name, drawn, total in (
            ("client_rate", self.cohort, self.clients),
            ("record_rate", self.batch, self.training_records),
        ):
            if drawn < 1:
                raise ValueError(f"{name}: {getattr(self, name)} of {total} is less than one")
        if self.sizes == "secret" and self.record_sampling == "subsets":
            raise ValueError(
                "record_sampling: subsets of one size show how many records a client holds; give poisson, or public "
                "sizes"
            )
        if self.warm_rounds >= self.rounds and any("scaffold" in name for name in self.algorithms):
            raise ValueError(
                f"warm_start: {self.warm_rounds} of {self.rounds} rounds leave none for training; give fewer, or more "
                "rounds"
            )

    @property
    def training_records(self) -> int:
        """R, without those of a fold that is held out."""
        return self.records_left(self.records - self.records // 5)

    @property
    def held(self) -> tuple[int, ...]:
        """How many records each client trains on: R, or from R / 10 to R in equal ratios, dealt at random."""
        most = self.training_records
        if self.sizes == "equal":
            return (most,) * self.clients
        sizes = np.geomspace(max(1, most / 10), most, self.clients).round().astype(int)
        return tuple(np.random.default_rng(0).permutation(sizes).tolist())

    @property
    def cohort(self) -> int:
        """floor(l M), with a tolerance for rounding."""
        return math.floor(self.client_rate * self.clients + 1e-9)

    @property
    def batch(self) -> int:
        """floor(s R)."""
        return math.floor(self.record_rate * self.training_records + 1e-9)

    @property
    def warm_rounds(self) -> int:
        if self.warm_start is not None:
            return self.warm_start
        rounded = round if self.authors.everyone_first else math.ceil
        return min(rounded(4 / self.client_rate), max(1, self.rounds // 4), self.rounds - 1)

    def step(self, name: Name) -> float:
        """eta_0 of an algorithm."""
        return self.TUNED.get(name, 1.0) if self.eta_0 is None else self.eta_0


def algorithm(name: Name, settings: DPScaffold, gradients: Gradients) -> Algorithm:
    """One of the algorithms of DP-SCAFFOLD's paper, with the config's settings."""
    sampler = fp.fixed_size(settings.clients, settings.cohort)
    server = optax.sgd(settings.global_rate)

    def make(local: fp.LocalSteps) -> Algorithm:
        if not name.endswith("scaffold"):
            return fp.dp_sgd(local, sampler=sampler, server=server, claim="dp_scaffold")
        return fp.dp_scaffold(
            local,
            sampler=sampler,
            server=server,
            warm_start=settings.warm_rounds,
            everyone_first=settings.authors.everyone_first,
        )

    local = _local(name, settings, gradients)
    return with_one_seed(make, local) if settings.authors.one_seed else make(local)


def _local(name: Name, settings: DPScaffold, gradients: Gradients) -> fp.LocalSteps:
    private, authors = name.startswith("dp_"), settings.authors
    steps = (
        max(1, round(1 / settings.record_rate))
        if name.endswith("fed_sgd")
        else settings.local_steps
    )
    passes = settings.record_rate * steps
    return local_steps(
        gradients,
        _records(settings),
        steps,
        settings.step(name) / (max(round(passes), 1) if authors.rounded_steps else passes),
        settings.clip_norm if private else math.inf,
        settings.noise_multiplier if private else 0.0,
        settings.unit,
        settings.TENSORS if authors.per_tensor else 1,
    )


def local_steps(
    gradients: Gradients,
    records: RecordSampler,
    steps: int,
    learning_rate: float,
    clip_norm: float | Literal["median"] = math.inf,
    noise_multiplier: float = 0.0,
    unit: Literal["record", "client"] = "record",
    tensors: int = 1,
) -> fp.LocalSteps:
    """Of DP-SCAFFOLD's paper: lines 8-15 of Algorithm 1, with its scale of the noise.

    A step's mean gets noise of standard deviation S sigma_g per coordinate. S = 2 C / (s R) is its sensitivity to a
    replaced record; for whole clients the paper's S is 2 C / s (end of Section 3.3).

    Args:
      learning_rate: eta_l.
      clip_norm: C; "median" is the paper's heuristic, which is not private.
      noise_multiplier: sigma_g.
      tensors: if above 1, the number of the model's parameter tensors, each of which is clipped and perturbed
        separately, as in the authors' code. Together they have the multiplier sigma_g / sqrt(tensors).
      gradients, records, steps, unit: as `fp.LocalSteps`.
    """
    clip_norm = checked("clip_norm", clip_norm, Norm | Literal["median"])
    sigma = 2 * noise_multiplier
    if unit == "client":
        sigma *= most_records(records)
    used: fp.Mechanism | fp.papers.MedianClipping
    if isinstance(clip_norm, str):
        used = fp.papers.MedianClipping(sigma, tensors)
    else:
        clipping = fp.clipping.flat() if tensors == 1 else fp.clipping.separately(tensors)
        noise = fp.noise.isotropic()
        used = fp.mechanism(clipping, noise, clip_norm=clip_norm, noise_multiplier=sigma)
    return fp.LocalSteps(gradients, records, steps, lambda t: optax.sgd(learning_rate), used, unit)


def _records(settings: DPScaffold) -> RecordSampler:
    total, rate = settings.training_records, settings.record_rate
    if settings.sizes == "public" and settings.record_sampling == "subsets":
        return fp.PublicSizes(settings.held, batch=settings.batch)
    if settings.sizes == "public":
        return fp.PublicSizes(settings.held, rate=rate)
    if settings.record_sampling == "subsets":
        return fp.fixed_size(total, settings.batch)
    return fp.poisson(total, rate, min(total, fp.capacity_for(settings.batch, rate)))


def ledger(settings: DPScaffold, model: fp.models.Model, example: Example) -> Ledger:
    """What the algorithms of DP-SCAFFOLD's settings release; needs no data.

    Args:
      model: a dense one.
      example: the shapes of one.
    """
    blank = fp.Federation.blank(example, settings.clients, settings.training_records)
    sizes: Any = np.array(settings.held, np.int32)
    shapes = replace(blank, client_rows=replace(blank.client_rows, size=sizes))
    entries: dict[str, Entry] = {
        name: Entry(one, [shapes]) for name, one in _algorithms(settings, model).items()
    }
    return Ledger(entries, delta(settings), model.init, _notes(settings))


def _notes(settings: DPScaffold) -> tuple[str, ...]:
    return (RANGES, *NOTES[1:]) if settings.authors.record_ranges else NOTES


def _algorithms(settings: DPScaffold, model: fp.models.Model) -> dict[Name, Algorithm]:
    gradients = fp.per_example(model.loss, settings.l2, closed_form=True)
    return {name: algorithm(name, settings, gradients) for name in settings.algorithms}


def delta(settings: DPScaffold) -> float:
    if settings.delta is not None:
        return settings.delta
    return 1 / (settings.clients * settings.training_records)


def experiment(
    settings: DPScaffold, data: Dataset, model: fp.models.Model, *, convex: bool
) -> Experiment:
    """DP-SCAFFOLD's experiment on `data`, whose natural clients hold R records each, and a dense `model`.

    Where sizes are unequal, a client trains on the first of its records. Every client's test set has the same size, so
    that the mean accuracy over users is that over all test records. For a `convex` objective the gap to its minimum is
    measured, too.
    """
    keys: Any = data.keys
    natural = fp.partition.natural(keys)
    clients = [own[:held] for own, held in zip(natural, settings.held, strict=True)]
    federation = fp.Federation.from_arrays(data.train, clients, num_classes=data.num_classes)
    import jax

    entries: dict[str, Entry] = {
        name: Entry(one, [federation] * settings.seeds, {"eta_0": settings.step(name)})
        for name, one in _algorithms(settings, model).items()
    }

    @cache
    def measure() -> Measure:  # when asked for: tuning does not need the minimum

        minimum = None
        if convex:
            start = model.init(jax.random.key(0))
            minimum = fp.measures.minimum_of(model.loss, start, federation, settings.l2)
        return fp.measures.heterogeneity(model.loss, settings.l2, minimum)

    test = {k: v for k, v in data.test.items() if k != "client"}
    return Experiment(
        model,
        test,
        delta(settings),
        entries,
        measure if settings.measured else None,
        _notes(settings),
        own_test=True,
    )
