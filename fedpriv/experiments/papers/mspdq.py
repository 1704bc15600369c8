"""The experiments on model splitting and dynamic quantization (Wang, Cao, Jin and Chow, Section VI)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import jax
import optax

import fedpriv as fp
from fedpriv.algorithms.consensus import Exchanges, Norm
from fedpriv.core.arguments import Decay, Probability, Rate
from fedpriv.core.complaints import require
from fedpriv.core.types import Example
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.config.experiment import Experiment, federations
from fedpriv.experiments.config.fields import Number, NumberOrZero, Single, check_each, each_once
from fedpriv.experiments.config.ledger import Entry, Ledger, blank
from fedpriv.experiments.config.settings import Settings
from fedpriv.rounds.algorithm import Algorithm

NOTES = ("no epsilon covers the choice of learning rates, clip norms and bounds on the test set",)

Name = Literal[
    "fed_avg",
    "fed_avg_qsgd",
    "msp_fl",
    "msp_laplace",
    "msp_gaussian",
    "mspdq_fl",
    "ldp_fed_avg",
    "jopeq",
]


@dataclass(frozen=True)
class Ldp:
    """MSPDQ's rivals FedAvg + LDP (Wei et al. 2020), MSP + Lap and MSP + Gauss."""

    epsilon: float = 10.0
    """eps_DP, of one message. The certificate is the ledger's, whatever this says."""
    noise: Literal["laplace", "gaussian"] = "laplace"
    """On the uploaded model; the sensitivity is in the l1 or in the l2 norm."""
    clip_norm: float = 100.0
    """C, bound on a client's update in that norm; MSP + Lap and MSP + Gauss, where there is none, take it for one."""
    sensitivity: Literal["record", "client"] = "record"
    """2 C over the client's records, as Wei et al. take it, which holds for one full-batch step at most; or 2 C, for
    the whole client."""

    def __post_init__(self) -> None:
        check_each(Single, epsilon=self.epsilon, clip_norm=self.clip_norm)


@dataclass(frozen=True)
class Jopeq:
    """MSPDQ's rival JoPEQ (Lang et al. 2023), with `bits` per value."""

    epsilon: float = 10.0
    """Of one value (Laplace) or pair of values (t) in one message."""
    bound: float = 0.1
    """gamma, what the values of an update are clipped to."""
    noise: Literal["laplace", "t"] = "laplace"
    """On a scalar lattice, or on the hexagonal one."""

    def __post_init__(self) -> None:
        check_each(Single, epsilon=self.epsilon, bound=self.bound)


@dataclass(frozen=True)
class Msp(Settings):
    """MSP-FL, MSPDQ-FL and their rivals on label-sorted shards."""

    algorithms: tuple[Name, ...] = ("fed_avg", "msp_fl", "mspdq_fl", "ldp_fed_avg", "jopeq")
    """Algorithms to train, one after another; msp_laplace is MSP + Lap, msp_gaussian MSP + Gauss."""
    clients: int = 100
    """N, with equally many records."""
    cohort: int = 20
    """M, drawn with replacement by the clients' sizes."""
    shards: int = 2
    """Of label-sorted records per client, so that it has about so many classes."""
    local_epochs: int = 10
    """E."""
    batch_size: int = 10
    """B."""
    learning_rate: float = 0.2
    """eta_t = this / (t + 1)."""
    exchanges: int = 10
    """K_t of mspdq_fl; 0: by Theorem 3, ceil(1 / eta_t) or more."""
    msp_exchanges: int = 4
    """K_t of msp_fl, msp_laplace and msp_gaussian; 0: by Theorem 2, ceil(log_lambda eta_t)."""
    most_exchanges: int = 60
    """What K_t by a theorem is cut to."""
    contraction: float = 0.7
    """lambda of the theorems."""
    bits: int = 8
    """B of mspdq_fl, jopeq and fed_avg_qsgd."""
    interval: float | Literal["dynamic", "columns"] = "dynamic"
    """Of mspdq_fl's quantizer: the paper's; the same with the norm of A - B taken column by column; or a fixed one from
    minus to plus this."""
    consensus_step: float = 0.5
    """e, how far visible submodels follow the mean."""
    gamma: float = 0.1
    """Bound on the weight between a visible and an invisible submodel."""
    decay: Literal["linear", "root", "none"] = "linear"
    """gamma / (k + 1), gamma / sqrt(k + 1) or gamma."""
    splitting_factor: float = 0.3
    """eps of the uniform splitting."""
    submodels: tuple[int, int] = (1, 1)
    """Least and largest number of invisible submodels of a client."""
    weights: Literal["equal", "client", "submodel"] = "equal"
    """gamma for all; or own ones of every client, or of every submodel, secret, from `least_weight` gamma to gamma."""
    least_weight: float = 0.2
    """Part of gamma that own weights begin at."""
    unstable: bool = False
    """Allow a gamma beyond the condition of Lemma 7, as in the paper's Figure 7."""
    ldp: Ldp = Ldp()
    jopeq: Jopeq = Jopeq()
    delta: float = 1e-5
    """delta of the privacy guarantee."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_each(
            Number,
            clients=self.clients,
            cohort=self.cohort,
            shards=self.shards,
            local_epochs=self.local_epochs,
            batch_size=self.batch_size,
            most_exchanges=self.most_exchanges,
        )
        check_each(NumberOrZero, exchanges=self.exchanges, msp_exchanges=self.msp_exchanges)
        each_once(self.algorithms)
        check_each(
            Single,
            learning_rate=self.learning_rate,
            interval=None if isinstance(self.interval, str) else self.interval,
            consensus_step=self.consensus_step,
            gamma=self.gamma,
        )
        check_each(Decay, splitting_factor=self.splitting_factor)
        check_each(Number, bits=self.bits)
        require(self.bits <= 22, "bits", self.bits, "give 1 to 22")
        check_each(tuple[Number, Number], submodels=self.submodels)
        remedy = "give the least number first, then the largest"
        require(self.submodels[0] <= self.submodels[1], "submodels", self.submodels, remedy)
        check_each(Rate, least_weight=self.least_weight)
        check_each(Probability, delta=self.delta, contraction=self.contraction)

    def with_noise(self, algorithm: str, noise: float) -> Self:
        """Of JoPEQ its own epsilon; of the others, where they have noise, that of `ldp`."""
        if algorithm == "jopeq":
            return replace(self, jopeq=replace(self.jopeq, epsilon=1 / noise))
        return replace(self, ldp=replace(self.ldp, epsilon=1 / noise))


def ledger(settings: Msp, model: fp.models.Model, example: Example, images: int) -> Ledger:
    """What the algorithms of MSPDQ's settings release with that many training images; needs no data.

    Args:
      example: the shapes of one.

    Raises:
      ValueError: too few images.
    """
    records = settings.records_left(images) // settings.clients
    if records < 1:
        raise ValueError(f"clients: {settings.clients} exceeds the {images} images; choose fewer")
    entries: dict[str, Entry] = {
        name: blank(make(name, settings, model, records), example, settings.clients, records)
        for name in settings.algorithms
    }
    return Ledger(entries, settings.delta, model.init, NOTES)


def experiment(settings: Msp, data: Dataset, model: fp.models.Model) -> Experiment:
    """MSPDQ's experiment of the settings: clients with a few shards of the label-sorted records each."""
    labels = data.train["label"]
    records = len(labels) // settings.clients
    dealt = federations(
        data,
        settings.seeds,
        lambda rng: fp.partition.shards(rng, labels, settings.clients, settings.shards),
    )
    entries: dict[str, Entry] = {
        name: Entry(make(name, settings, model, records), dealt) for name in settings.algorithms
    }
    return Experiment(model, data.test, settings.delta, entries, notes=NOTES)


def make(name: Name, settings: Msp, model: fp.models.Model, records: int) -> Algorithm:
    """The algorithm of that name, of MSPDQ's and its rivals, for clients of about so many records."""
    common: dict[str, Any] = {
        "sampler": fp.with_replacement([1.0] * settings.clients, settings.cohort),
        "optimizer": lambda t: optax.sgd(settings.learning_rate / (t + 1)),
        "batches": fp.epochs(settings.local_epochs, settings.batch_size),
    }
    if name == "fed_avg":
        return fp.fed_avg(model.loss, **common)
    if name == "fed_avg_qsgd":
        return fp.fed_avg(model.loss, **common, codec=fp.qsgd(settings.bits))
    if name == "ldp_fed_avg":
        return fp.papers.ldp_fed_avg(model.loss, **common, mechanism=_local(settings, records))
    if name == "jopeq":
        own = settings.jopeq
        options: dict[str, Any] = {
            "bits": settings.bits,
            "bound": own.bound,
            "epsilon": own.epsilon,
        }
        return fp.papers.jopeq(model.loss, **common, **options, noise=own.noise)
    return _split(name, settings, model, common, records)


def _split(
    name: Name, settings: Msp, model: fp.models.Model, common: dict[str, Any], records: int
) -> Algorithm:
    quantized = name == "mspdq_fl"
    options: dict[str, Any] = common | {
        "splitting": _splitting(name, settings, records),
        "coupling": fp.papers.consensus.coupling(
            settings.consensus_step, settings.gamma, settings.decay
        ),
        "exchanges": _exchanges(settings, quantized),
        "submodels": settings.submodels,
        "weights": _weights(settings),
        "unstable": settings.unstable,
    }
    if not quantized:
        return fp.papers.msp_fl(model.loss, **options)
    if isinstance(settings.interval, str):
        norm: Norm = "columns" if settings.interval == "columns" else "frobenius"
        return fp.papers.mspdq_fl(model.loss, bits=settings.bits, norm=norm, **options)
    fixed = fp.papers.consensus.fixed(settings.bits, settings.interval)
    return fp.papers.msp_fl(model.loss, **options, transmission=fixed)


def _splitting(name: Name, settings: Msp, records: int) -> fp.papers.splitting.Splitting:
    if name == "msp_laplace":
        return fp.papers.splitting.laplace(_sensitivity(settings, records), settings.ldp.epsilon)
    if name == "msp_gaussian":
        return fp.papers.splitting.gaussian(
            _sensitivity(settings, records) * _gaussian_scale(settings)
        )
    return fp.papers.splitting.uniform(settings.splitting_factor)


def _weights(settings: Msp) -> fp.papers.splitting.Weights:
    makes = {"client": fp.papers.splitting.per_client, "submodel": fp.papers.splitting.per_submodel}
    return (
        makes[settings.weights](settings.least_weight)
        if settings.weights in makes
        else fp.papers.splitting.equal
    )


def _exchanges(settings: Msp, quantized: bool) -> Exchanges:
    count = settings.exchanges if quantized else settings.msp_exchanges
    if count > 0:
        return fp.papers.consensus.constant(count)

    def rate(t: jax.Array) -> jax.Array:
        return settings.learning_rate / (t + 1)

    return fp.papers.consensus.by_rate(
        rate, settings.contraction, settings.most_exchanges, quantized=quantized
    )


def _sensitivity(settings: Msp, records: int) -> float:
    whole = 2 * settings.ldp.clip_norm
    return whole if settings.ldp.sensitivity == "client" else whole / records


def _local(settings: Msp, records: int) -> fp.Mechanism:
    """Noise for `ldp.epsilon` by the stated sensitivity: of the Gaussian mechanism by its textbook formula."""
    clip, epsilon = settings.ldp.clip_norm, settings.ldp.epsilon
    reach = _sensitivity(settings, records) / clip
    if settings.ldp.noise == "laplace":
        return fp.laplace(clip, reach / epsilon)
    return fp.gaussian(clip, reach * _gaussian_scale(settings))


def _gaussian_scale(settings: Msp) -> float:
    """Standard deviation per l2 sensitivity: the textbook formula, of epsilon below 1, used for any."""
    return math.sqrt(2 * (math.log(1.25) - math.log(settings.delta))) / settings.ldp.epsilon
