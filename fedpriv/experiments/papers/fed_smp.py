"""The experiments of Fed-SMP (Hu, Guo, Gong, arXiv:2202.07178, Section 6): settings, and what they build."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, get_args

import jax
import numpy as np
import optax

import fedpriv as fp
from fedpriv import datasets
from fedpriv.core.arguments import Decay, Probability, Rate
from fedpriv.core.complaints import require
from fedpriv.core.types import Example, LossFn
from fedpriv.data.datasets import Dataset, MissingDataError
from fedpriv.engine.simulate import Measure, evaluate
from fedpriv.experiments.config.experiment import Experiment
from fedpriv.experiments.config.fields import (
    Clients,
    Number,
    Single,
    SingleOrZero,
    check_each,
    each_once,
    mechanism,
)
from fedpriv.experiments.config.folds import without_fold
from fedpriv.experiments.config.groups import NO_GROUPS, Groups
from fedpriv.experiments.config.integers import InIntegers
from fedpriv.experiments.config.ledger import Entry, Ledger, blank
from fedpriv.experiments.papers.baselines import ROWS, DpFedOpt, FedOpt, Server, Weighting
from fedpriv.models.modules import Weights
from fedpriv.rounds.algorithm import Algorithm
from fedpriv.rounds.local_training import Batches
from fedpriv.rounds.scheduled_samplers import AnySampler

Own = Literal["fed_avg", "fed_avg_rand_k", "fed_avg_top_k", "dp_fed_avg", "rand_k", "top_k"]
Name = Literal[Own, FedOpt, DpFedOpt]
_NAMES: tuple[str, ...] = get_args(Name)


@dataclass(frozen=True)
class Local:
    """Local training with momentum SGD; the momentum starts afresh every round."""

    epochs: int = 10
    """Passes over a client's examples per round."""
    steps: int | None = None
    """Steps per round, in place of passes."""
    batch_size: int = 10
    """Examples per step, B."""
    micro: int | None = None
    """Take a step's gradient in parts of so many examples, with the memory of one part; by default all at once."""
    learning_rate: float = 0.125
    """Learning rate of the first round."""
    momentum: float = 0.5
    """Heavy-ball momentum."""
    decay: float = 0.99
    """Factor on the learning rate every `decay_every` rounds."""
    decay_every: int = 1
    """Rounds between decays."""
    proximal: float = 0.0
    """mu of FedProx, which keeps a client near the model that it was sent."""

    def __post_init__(self) -> None:
        check_each(
            Number, epochs=self.epochs, batch_size=self.batch_size, decay_every=self.decay_every
        )
        check_each(Number, steps=self.steps, micro=self.micro)
        if self.micro is not None and self.micro > self.batch_size:
            raise ValueError(
                f"local.micro: {self.micro} exceeds local.batch_size, {self.batch_size}; give fewer, or leave it out"
            )
        check_each(Single, learning_rate=self.learning_rate)
        check_each(Decay, momentum=self.momentum)
        check_each(Rate, decay=self.decay)
        check_each(SingleOrZero, proximal=self.proximal)

    def batches(self) -> Batches:
        if self.steps is not None:
            return fp.random_batches(self.steps, self.batch_size, self.micro)
        return fp.epochs(self.epochs, self.batch_size, self.micro)

    def optimizer(self, t: jax.Array) -> optax.GradientTransformation:
        rate = self.learning_rate * self.decay ** (t // self.decay_every)
        return fp.proximal(optax.sgd(rate, momentum=self.momentum or None), self.proximal)


@dataclass(frozen=True)
class FedSMP(InIntegers):
    """Fed-SMP and its baselines."""

    algorithms: tuple[Name, ...] = ("fed_avg", "dp_fed_avg", "rand_k", "top_k")
    """Algorithms to train, one after another; those that begin with fed_ are not private."""
    p: float = 0.4
    """Compression ratio k / d of the sparsified algorithms."""
    unbiased: bool = True
    """rand_k scales what it keeps by d / k (eq. 5 of the paper); false leaves the factor out."""
    clients: int = 6000
    """Number of clients n (ignored where the data has natural clients)."""
    cohort: int = 100
    """Clients per round r (expected, for Poisson cohorts)."""
    sampling: Literal["fixed_size", "poisson"] = "fixed_size"
    """How the cohort is drawn: r clients without replacement, or each client on its own with probability r / n."""
    capacity: int | None = None
    """Largest Poisson cohort; larger ones are cut down. By default r plus six standard deviations."""
    dropout: float = 0.0
    """Probability with which a client that is drawn vanishes, and its share of the noise with it."""
    clip_norm: float = 1.0
    """C, bound on the l2 norm of a client's (sparsified) update."""
    noise_multiplier: float = 1.4
    """sigma; the cohort's sum gets noise of standard deviation C sigma per kept coordinate."""
    delta: float | None = None
    """delta of the privacy guarantee; by default the paper's n^-1.1, where n delta is near 1/2, more than usual."""
    public_examples: int = 1000
    """Examples the server holds, for top_k only."""
    public_epochs: int | None = None
    """Passes over the public examples that choose top_k's coordinates; by default as many as the clients make."""
    train_loss_examples: int = 0
    """Evenly spaced training examples on which every evaluation measures `train_loss`, too; 0: it is not measured."""
    groups: Groups = NO_GROUPS
    local: Local = Local()
    server: Server = field(default_factory=Server)
    weighting: Weighting = field(default_factory=Weighting)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.train_loss_examples < 0:
            raise ValueError(f"train_loss_examples: {self.train_loss_examples} is negative")
        check_each(Clients, clients=self.clients)
        check_each(Number, cohort=self.cohort, public_examples=self.public_examples)
        check_each(Number, capacity=self.capacity, public_epochs=self.public_epochs)
        each_once(self.algorithms)
        check_each(Rate, p=self.p)
        mechanism(self.clip_norm, self.noise_multiplier)
        check_each(Probability, delta=self.delta)
        check_each(Decay, dropout=self.dropout)
        self._check_integers()
        if self.groups and self.capacity is not None:
            raise ValueError(
                f"capacity: {self.capacity} is of one cohort of all clients; leave it out, as each group has its own"
            )
        if self.sampling == "fixed_size" and self.groups.epsilons and self.groups.by == "rates":
            raise ValueError(
                "groups.by: rates are solved for where sampling is poisson; choose that, or clip_scales"
            )

    def _check_integers(self) -> None:
        others = [name for name in self.algorithms if name not in _NAMES]
        remedy = f"{', '.join(others)} adds noise otherwise; leave it out of algorithms"
        require(self.bits is None or not others, "bits", self.bits, remedy)
        size = "the size of a Poisson cohort is secret, so nobody knows its share; choose sampling fixed_size"
        known = self.sampling == "fixed_size" or self.dropout == 0
        require(known, "dropout", self.dropout, size)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the certificates leave out."""
        return ()

    @property
    def records(self) -> int:
        """Of a client, in a ledger without data."""
        return 1

    def made(self, name: Any, model: fp.models.Model, clients: int) -> Algorithm:
        """The algorithm of this name, for so many clients."""
        return algorithm(name, self, model.loss, clients)


@dataclass(frozen=True)
class ImageFedSMP(FedSMP):
    """Fed-SMP and its baselines on a CNN."""

    weights: Weights = "flax"
    """Initial weights: flax's defaults (LeCun normal), or PyTorch's, which have a third of their variance."""
    pixels: Literal["unit", "centred", "standardised"] = "unit"
    """What the network sees: numbers from 0 to 1, or from -1 to 1, or of mean 0 and deviation 1 over the training
    pixels, by numbers that the field takes to be public. The last two take four times the memory of bytes."""

    @property
    def notes(self) -> tuple[str, ...]:
        standardised = self.pixels == "standardised"
        note = "the mean and deviation of the training pixels are taken to be public; no epsilon covers them"
        return (note,) * standardised

    def images(self, name: str) -> Dataset:
        """The data set of this name, its pixels as the network sees them.

        Raises:
          MissingDataError: it is not there.
          ValueError: its pixels are to be standardised, and their moments are not known.
        """
        if self.pixels == "unit":
            return datasets.load(name, self.data_dir)  # bytes, which the network scales
        moments = MOMENTS.get(name) if self.pixels == "standardised" else (0.5, 0.5)
        if moments is None:
            known = ", ".join(MOMENTS)
            raise ValueError(f"pixels: standardised is for {known}, not {name}; choose centred")
        data = datasets.load(name, self.data_dir)
        return data._replace(train=_scaled(data.train, moments), test=_scaled(data.test, moments))


MOMENTS = {"fashion_mnist": (0.2860, 0.3530)}
"""Mean and standard deviation of the training pixels, from 0 to 1."""


def _scaled(examples: Example, moments: tuple[float, float]) -> dict[str, np.ndarray]:
    mean, deviation = moments
    unit = np.asarray(examples["image"], np.float32) / 255
    return {**examples, "image": (unit - np.float32(mean)) / np.float32(deviation)}


def sampler(settings: FedSMP, clients: int) -> AnySampler:
    """The cohort's sampler in Fed-SMP's experiments, for a federation of `clients`."""
    if settings.cohort > clients:
        raise ValueError(f"cohort: {settings.cohort} exceeds the {clients} clients; choose fewer")
    rate = settings.cohort / clients
    if settings.groups:
        return settings.groups.sampler(clients, rate, settings.sampling)
    if settings.sampling == "fixed_size":
        return fp.dropping(fp.fixed_size(clients, settings.cohort), settings.dropout, "lost")
    return fp.poisson(clients, rate, settings.capacity or fp.capacity_for(settings.cohort, rate))


def algorithm(name: Name, settings: FedSMP, loss: LossFn, clients: int) -> Algorithm:
    """One of the algorithms of Fed-SMP's paper, with the config's settings."""
    local = settings.local
    batches = public = local.batches()
    if settings.public_epochs is not None:
        public = fp.epochs(settings.public_epochs, local.batch_size)
    optimizer = ROWS.get(name.removeprefix("dp_"))
    common: dict[str, Any] = {
        "sampler": sampler(settings, clients),
        "optimizer": local.optimizer,
        "batches": batches,
        "server": settings.server.made(optimizer),
        "weighting": settings.weighting.made(),
    }
    private: dict[str, Any] = {
        "clip_norm": settings.clip_norm,
        "noise_multiplier": settings.noise_multiplier,
    }
    rand_k, top_k = (
        fp.papers.select_rand_k(settings.p, unbiased=settings.unbiased),
        fp.papers.select_top_k(settings.p, public),
    )
    make: dict[str, Callable[[], Algorithm]] = {
        "fed_avg": lambda: fp.fed_avg(loss, **common),
        "fed_avg_rand_k": lambda: fp.papers.fed_avg_sparse(loss, **common, sparsifier=rand_k),
        "fed_avg_top_k": lambda: fp.papers.fed_avg_sparse(loss, **common, sparsifier=top_k),
        "dp_fed_avg": lambda: fp.dp_fed_avg(loss, **common, **private),
        "rand_k": lambda: fp.fed_smp(loss, **common, **private, sparsifier=rand_k),
        "top_k": lambda: fp.fed_smp(loss, **common, **private, sparsifier=top_k),
    }
    if settings.bits is not None:
        mechanism = settings.mechanism(common["sampler"], **private)
        of_sum = {**common, "mechanism": mechanism}
        make |= {
            "dp_fed_avg": lambda: fp.fed_avg(loss, **of_sum),
            "rand_k": lambda: fp.papers.fed_avg_sparse(loss, **of_sum, sparsifier=rand_k),
            "top_k": lambda: fp.papers.fed_avg_sparse(loss, **of_sum, sparsifier=top_k),
        }
    plain = "dp_fed_avg" if name.startswith("dp_") else "fed_avg"
    return make[plain if optimizer else name]()


def experiment(settings: FedSMP, data: Dataset, model: fp.models.Model) -> Experiment:
    """Fed-SMP's experiment of the settings on `data`.

    As in the paper, the public examples come out of the training set for top_k only; the other algorithms' clients
    share all of it. Seed s partitions with `numpy.random.default_rng(s)`. Where the data has natural clients,
    whole ones become public, the same for all seeds: examples of a client that also trains would choose the coordinates
    with its data, which no certificate covers.
    """
    checked = fp.Federation.from_arrays(
        data.train, _partition(settings, data, 0, 0)[1], num_classes=data.num_classes
    )
    clients = checked.num_clients
    entries: dict[str, Entry] = {}
    if settings.public_examples >= len(data.train["label"]) - clients:
        raise ValueError(
            f"public_examples: {settings.public_examples} leaves some of the {clients} clients without an example; "
            "hold out fewer"
        )
    for name in settings.algorithms:
        held = _held(settings, name)
        federations = []
        for seed in range(settings.seeds):
            public, rows = _partition(settings, data, seed, held)
            federations.append(checked.repartition(rows, public=public))
        made = settings.made(name, model, federations[0].num_clients)
        entries[name] = Entry(made, federations)
    count = settings.train_loss_examples
    measure = partial(train_loss, model, count) if count else None
    own_test = data.keys is not None
    common: dict[str, Any] = {"measure": measure, "own_test": own_test, "notes": settings.notes}
    return Experiment(model, data.test, delta(settings, clients), entries, **common)


def train_loss(model: fp.models.Model, count: int) -> Measure:
    """A `measure` for `simulate`: `train_loss`, the mean loss on `count` evenly spaced training examples, or on all."""

    def measure(state: fp.ModelState, federation: fp.Federation) -> dict[str, jax.Array]:
        total = len(jax.tree.leaves(federation.examples)[0])
        rows = np.arange(min(count, total)) * total // min(count, total)
        some = jax.tree.map(lambda x: x[rows], federation.examples)
        return {"train_loss": evaluate(model.score, state.params, some).metrics["loss"]}

    return measure


def delta(settings: FedSMP, clients: int) -> float:
    """Of Fed-SMP's guarantee; by default the paper's n^-1.1."""
    return settings.delta if settings.delta is not None else clients**-1.1


def ledger(settings: FedSMP, model: fp.models.Model, example: Example) -> Ledger:
    """What the algorithms of Fed-SMP's settings release with `settings.clients` clients; needs no data.

    Args:
      example: the shapes of one.
    """
    clients = dict.fromkeys(settings.algorithms, settings.clients)
    return _ledger(settings, model, example, clients, settings.clients)


def natural_ledger(
    settings: FedSMP, model: fp.models.Model, example: Example, load: Callable[[], Dataset]
) -> Ledger:
    """Fed-SMP's `ledger` with the natural clients of the data, or `settings.clients` where it is not at hand."""
    try:
        data = without_fold(load(), settings.fold)
    except MissingDataError as missing:
        note = f"counted for {settings.clients} clients (`--clients`), as the data is not at hand: {missing}"
        return replace(ledger(settings, model, example), notes=(note,))
    clients = {
        name: len(_partition(settings, data, 0, _held(settings, name))[1])
        for name in settings.algorithms
    }
    return _ledger(settings, model, example, clients, len(_partition(settings, data, 0, 0)[1]))


def _ledger(
    settings: FedSMP,
    model: fp.models.Model,
    example: Example,
    clients: Mapping[Name, int],
    population: int,
) -> Ledger:
    """How many records a client holds changes no epsilon."""
    entries: dict[str, Entry] = {
        name: blank(
            settings.made(name, model, n),
            example,
            n,
            settings.records,
            public=_held(settings, name),
        )
        for name, n in clients.items()
    }
    return Ledger(entries, delta(settings, population), model.init, settings.notes)


def _held(settings: FedSMP, name: Name) -> int:
    """Public examples that come out of the clients' for this algorithm."""
    return settings.public_examples if name.endswith("top_k") else 0


def _partition(
    settings: FedSMP, data: Dataset, seed: int, held: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """(public rows, rows of each client)."""
    rng = np.random.default_rng(seed)
    total = len(data.train["label"])
    if data.keys is not None:
        own = fp.partition.natural(data.keys)
        order = np.random.default_rng(0).permutation(len(own))
        so_far = np.cumsum([len(own[i]) for i in order])
        given = 0 if held == 0 else int(np.searchsorted(so_far, held)) + 1
        public = [own[i] for i in order[:given]]
        if given >= len(own):
            raise ValueError(f"public_examples: {held} leaves no client; hold out fewer")
        rows = np.concatenate([np.arange(0), *public])[:held]
        return rows, [own[i] for i in sorted(order[given:])]
    public, rest = fp.partition.hold_out(rng, np.arange(total), held)
    return public, fp.partition.iid(rng, total, settings.clients, rows=rest)
