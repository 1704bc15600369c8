"""Synchronous rounds beside buffered ones, for as many simulated hours: settings, and what they build.

FedBuff: J. Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation", AISTATS 2022, arXiv:2106.06639.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import optax

import fedpriv as fp
from fedpriv.core.arguments import Probability, checked
from fedpriv.core.complaints import require
from fedpriv.core.types import Example, LossFn
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.config.experiment import Experiment, federations
from fedpriv.experiments.config.fields import (
    Clients,
    Number,
    NumberOrZero,
    Single,
    SingleOrZero,
    check_each,
    each_once,
    mechanism,
)
from fedpriv.experiments.config.ledger import Entry, Ledger, blank
from fedpriv.experiments.config.settings import Settings
from fedpriv.experiments.papers.fed_smp import Local
from fedpriv.experiments.papers.hours import Law, Speeds
from fedpriv.experiments.runs.contents import HOURS
from fedpriv.rounds.algorithm import Algorithm

Name = Literal[
    "fed_avg",
    "fed_avg_quick",
    "fed_avg_buffered",
    "dp_fed_avg",
    "dp_fed_avg_quick",
    "dp_fed_avg_buffered",
]


@dataclass(frozen=True)
class Late(Settings):
    """FedAvg and DP-FedAvg, each in synchronous rounds of all or of quick clients alone, and in buffered ones."""

    algorithms: tuple[Name, ...] = (
        "fed_avg",
        "fed_avg_quick",
        "fed_avg_buffered",
        "dp_fed_avg",
        "dp_fed_avg_quick",
        "dp_fed_avg_buffered",
    )
    """Algorithms to train, one after another. `rounds` are those of buffered ones; the others do as many as fit in the
    same simulated hours."""
    clients: int = 1200
    """Number of clients, whose speeds are public, as who is of which class."""
    hours: tuple[float, ...] = (1.0, 2.0, 8.0)
    """Simulated hours that an answer takes a client, by class of speed."""
    shares: tuple[float, ...] = (0.6, 0.3, 0.1)
    """Share of the clients of each class."""
    delay: Law = "constant"
    """constant: an answer always takes the hours of its class, and is late by the nearest number of rounds; geometric:
    on average, and exponentially distributed."""
    at_work: int = 60
    """Clients at work at any time: of a synchronous round all, which lasts as long as the slowest of them."""
    slowest: float = 2.0
    """_quick: only clients that take so many hours at most are ever asked."""
    buffer: int = 30
    """K: buffered, answers in a round."""
    most_late: int = 24
    """_buffered: rounds that an answer can be late; of so many, and of the last one, the models are kept."""
    staleness: float = 0.5
    """_buffered: an answer that is d rounds late counts 1 / (1 + d)^staleness; with 0 all count alike."""
    turns: Literal["secret", "known"] = "secret"
    """Who takes part: secret, each client by a coin in every round; or known, in shuffled turns."""
    local: Local = field(default_factory=Local)
    server_rate: float = 1.0
    """Learning rate of the server's SGD."""
    quick_rate: float | None = None
    """_quick: the same, by default server_rate."""
    buffered_rate: float | None = None
    """_buffered: the same, by default server_rate."""
    clip_norm: float = 0.5
    """Bound on the l2 norm of a client's update."""
    noise_multiplier: float = 1.0
    """sigma; a sum gets noise of standard deviation clip_norm sigma."""
    delta: float = 1e-5
    """delta of the privacy guarantee."""

    def __post_init__(self) -> None:
        super().__post_init__()
        each_once(self.algorithms)
        check_each(Clients, clients=self.clients)
        check_each(Number, at_work=self.at_work, buffer=self.buffer)
        check_each(NumberOrZero, most_late=self.most_late)
        check_each(Single, slowest=self.slowest, server_rate=self.server_rate)
        check_each(Single, quick_rate=self.quick_rate, buffered_rate=self.buffered_rate)
        check_each(SingleOrZero, staleness=self.staleness)
        check_each(Probability, delta=self.delta)
        mechanism(self.clip_norm, self.noise_multiplier)
        checked("hours", self.hours, Sequence[Single])
        checked("shares", self.shares, Sequence[Probability])
        remedy = f"give one for each of {len(self.hours)} classes, in sum 1"
        whole = len(self.shares) == len(self.hours) and abs(sum(self.shares) - 1) < 1e-6
        require(whole, "shares", self.shares, remedy)
        for name in ("at_work", "buffer"):
            few = getattr(self, name) <= self.clients
            require(few, name, getattr(self, name), f"give at most the {self.clients} clients")
        self.speeds.up_to(self.slowest)  # raises

    @property
    def speeds(self) -> Speeds:
        """Those of all clients."""
        return Speeds(self.hours, self.shares, self.delay)

    @property
    def classes(self) -> np.ndarray:
        """i[clients], the class of speed of each client, by its number."""
        edges = np.round(np.cumsum(self.shares)[:-1] * self.clients)
        return np.searchsorted(edges, np.arange(self.clients), side="right")

    def asked(self, algorithm: Name) -> np.ndarray:
        """Numbers of the clients that take part in an algorithm at all."""
        slowest = self.slowest if algorithm.endswith("_quick") else np.inf
        return np.flatnonzero(np.array(self.hours)[self.classes] <= slowest)

    def hours_per_round(self, algorithm: str) -> float:
        """Simulated hours of an algorithm's round, on average."""
        if algorithm.endswith("_buffered"):
            return self.speeds.buffered(self.at_work, self.buffer)
        if algorithm.endswith("_quick"):
            return self.speeds.up_to(self.slowest).synchronous(self.at_work)
        return self.speeds.synchronous(self.at_work)

    def rounds_of(self, algorithm: str) -> int:
        """As many as fit in the simulated hours of the buffered rounds, at least one."""
        if algorithm.endswith("_buffered"):
            return self.rounds
        hours = self.rounds * self.speeds.buffered(self.at_work, self.buffer)
        return max(1, int(hours / self.hours_per_round(algorithm) + 1e-9))

    def rate_of(self, algorithm: str) -> float:
        """Learning rate of the server's SGD."""
        form = algorithm.rpartition("_")[2]
        own = {"quick": self.quick_rate, "buffered": self.buffered_rate}.get(form)
        return self.server_rate if own is None else own

    def delays(self) -> fp.delays.DelayLaw:
        """How many rounds late the answers of each client are."""
        means = self.speeds.delays(self.at_work, self.buffer)
        if self.delay == "constant":
            laws = [fp.delays.constant(round(mean)) for mean in means]
        else:
            laws = [fp.delays.geometric(mean, self.most_late) for mean in means]
        names = [f"{hours:g} h" for hours in self.hours]
        labels = [names[c] for c in self.classes]
        of = dict(zip(names, laws, strict=True))
        return fp.delays.by_class(labels, {name: of[name] for name in dict.fromkeys(labels)})


def algorithm(name: Name, settings: Late, loss: LossFn) -> Algorithm:
    """One of the algorithms, with the config's settings."""
    buffered = name.endswith("_buffered")
    clients, size = len(settings.asked(name)), settings.buffer if buffered else settings.at_work
    remedy = f"only {clients} clients are quick enough; give fewer, or raise slowest"
    require(size <= clients, "at_work", size, remedy)
    sampler: Any = fp.shuffled_blocks(clients, size)
    if settings.turns == "secret":
        sampler = fp.poisson(clients, size / clients)
    common: dict[str, Any] = {
        "sampler": sampler,
        "optimizer": settings.local.optimizer,
        "batches": settings.local.batches(),
        "server": optax.sgd(settings.rate_of(name)),
    }
    if name.startswith("dp_"):
        common["mechanism"] = fp.gaussian(settings.clip_norm, settings.noise_multiplier)
    if not buffered:
        return fp.fed_avg(loss, **common)
    return fp.buffered_fed_avg(
        loss,
        delay=settings.delays(),
        most_late=settings.most_late,
        staleness=lambda d: (1 + d) ** -settings.staleness,
        **common,
    )


def _lengths(name: Name, settings: Late) -> dict[str, Any]:
    return {"rounds": settings.rounds_of(name), HOURS: settings.hours_per_round(name)}


def ledger(settings: Late, model: fp.models.Model, example: Example, records: int) -> Ledger:
    """What the algorithms release, with clients of so many records each."""
    entries: dict[str, Entry] = {}
    for name in settings.algorithms:
        made = algorithm(name, settings, model.loss)
        entry = blank(made, example, len(settings.asked(name)), records)
        entries[name] = entry._replace(settings=_lengths(name, settings))
    return Ledger(entries, settings.delta, model.init)


def experiment(
    settings: Late,
    data: Dataset,
    model: fp.models.Model,
    deal: Callable[[np.random.Generator], Sequence[np.ndarray]],
) -> Experiment:
    """The experiment on `data`, which `deal` gives to `settings.clients` clients from each seed's generator."""
    everyone = federations(data, settings.seeds, deal)

    def entry(name: Name) -> Entry:
        asked, dealt = settings.asked(name), everyone
        if len(asked) < settings.clients:
            rows = (deal(np.random.default_rng(seed)) for seed in range(settings.seeds))
            dealt = [everyone[0].repartition([each[i] for i in asked]) for each in rows]
        return Entry(algorithm(name, settings, model.loss), dealt, _lengths(name, settings))

    entries: dict[str, Entry] = {name: entry(name) for name in settings.algorithms}
    return Experiment(model, data.test, settings.delta, entries)
