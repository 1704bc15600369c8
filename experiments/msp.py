"""The experiments on model splitting and dynamic quantization (Wang, Cao, Jin and Chow, Section VI)."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
import optax

import fedpriv as fp
from experiments.config import Entry, Experiment, Ledger, blank, federations
from experiments.msp_config import Msp, Name
from fedpriv.algorithms.consensus import Exchanges, Norm
from fedpriv.core.types import Example
from fedpriv.data.datasets import Dataset
from fedpriv.rounds.algorithm import Algorithm

NOTES = ("no epsilon covers the choice of learning rates, clip norms and bounds on the test set",)


def ledger(config: Msp, model: fp.models.Model, example: Example, images: int) -> Ledger:
    """What the algorithms of `config` release with that many training images; needs no data.

    Args:
      example: the shapes of one.

    Raises:
      ValueError: too few images.
    """
    records = images // config.clients
    if records < 1:
        raise ValueError(f"clients: {config.clients} exceeds the {images} images; choose fewer")
    entries = {
        name: blank(make(name, config, model, records), example, config.clients, records)
        for name in config.algorithms
    }
    return Ledger(entries, config.delta, model.init, NOTES)


def experiment(config: Msp, data: Dataset, model: fp.models.Model) -> Experiment:
    """The experiment of `config`: clients with a few shards of the label-sorted records each."""
    labels = data.train["label"]
    records = len(labels) // config.clients
    dealt = federations(
        data,
        config.seeds,
        lambda rng: fp.partition.shards(rng, labels, config.clients, config.shards),
    )
    entries = {name: Entry(make(name, config, model, records), dealt) for name in config.algorithms}
    return Experiment(model, data.test, config.delta, entries, notes=NOTES)


def make(name: Name, config: Msp, model: fp.models.Model, records: int) -> Algorithm:
    """The algorithm of that name for clients of about so many records."""
    common: dict[str, Any] = {
        "sampler": fp.with_replacement(np.ones(config.clients), config.cohort),
        "optimizer": lambda t: optax.sgd(config.learning_rate / (t + 1)),
        "batches": fp.epochs(config.local_epochs, config.batch_size),
    }
    if name == "fed_avg":
        return fp.fed_avg(model.loss, **common)
    if name == "fed_avg_qsgd":
        return fp.fed_avg(model.loss, **common, codec=fp.qsgd(config.bits))
    if name == "ldp_fed_avg":
        return fp.ldp_fed_avg(model.loss, **common, mechanism=_local(config, records))
    if name == "jopeq":
        own = config.jopeq
        options = {"bits": config.bits, "bound": own.bound, "epsilon": own.epsilon}
        return fp.jopeq(model.loss, **common, **options, noise=own.noise)
    return _split(name, config, model, common, records)


def _split(
    name: Name, config: Msp, model: fp.models.Model, common: dict[str, Any], records: int
) -> Algorithm:
    quantized = name == "mspdq_fl"
    options: dict[str, Any] = common | {
        "splitting": _splitting(name, config, records),
        "coupling": fp.consensus.coupling(config.consensus_step, config.gamma, config.decay),
        "exchanges": _exchanges(config, quantized),
        "submodels": config.submodels,
        "unstable": config.unstable,
    }
    if not quantized:
        return fp.msp_fl(model.loss, **options)
    if isinstance(config.interval, str):
        norm: Norm = "columns" if config.interval == "columns" else "frobenius"
        return fp.mspdq_fl(model.loss, bits=config.bits, norm=norm, **options)
    fixed = fp.consensus.fixed(config.bits, config.interval)
    return fp.msp_fl(model.loss, **options, transmission=fixed)


def _splitting(name: Name, config: Msp, records: int) -> fp.splitting.Splitting:
    if name == "msp_laplace":
        return fp.splitting.laplace(_sensitivity(config, records), config.ldp.epsilon)
    if name == "msp_gaussian":
        return fp.splitting.gaussian(_sensitivity(config, records) * _gaussian_scale(config))
    return fp.splitting.uniform(config.splitting_factor)


def _exchanges(config: Msp, quantized: bool) -> Exchanges:
    count = config.exchanges if quantized else config.msp_exchanges
    if count > 0:
        return fp.consensus.constant(count)

    def rate(t: jax.Array) -> jax.Array:
        return config.learning_rate / (t + 1)

    return fp.consensus.by_rate(
        rate, config.contraction, config.most_exchanges, quantized=quantized
    )


def _sensitivity(config: Msp, records: int) -> float:
    whole = 2 * config.ldp.clip_norm
    return whole if config.ldp.sensitivity == "client" else whole / records


def _local(config: Msp, records: int) -> fp.Mechanism:
    """Noise for `ldp.epsilon` by the stated sensitivity: of the Gaussian mechanism by its textbook formula."""
    clip, epsilon = config.ldp.clip_norm, config.ldp.epsilon
    reach = _sensitivity(config, records) / clip
    if config.ldp.noise == "laplace":
        return fp.laplace(clip, reach / epsilon)
    return fp.gaussian(clip, reach * _gaussian_scale(config))


def _gaussian_scale(config: Msp) -> float:
    """Standard deviation per l2 sensitivity: the textbook formula, of epsilon below 1, used for any."""
    return math.sqrt(2 * (math.log(1.25) - math.log(config.delta))) / config.ldp.epsilon
