"""The experiments of the wavelet paper (Ranaweera et al., "... An Utility-Enhanced Approach", Section 6)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fedpriv as fp
from experiments.config import Entry, Experiment, Ledger, federations
from experiments.wavelet_algorithms import Clipped, Maker
from experiments.wavelet_config import Name, Wavelet
from fedpriv.core.trees import dimension
from fedpriv.core.types import Example
from fedpriv.data.datasets import Dataset

NOTES = (
    "no epsilon covers the choice of step sizes and schedules on the test set",
    "nor the clip norms, where they come from the proxy set: images of the training set that are taken to be public",
)


def ledger(config: Wavelet, model: fp.models.Model, example: Example, images: int) -> Ledger:
    """What the algorithms of `config` release with that many training images; needs no data: a clip norm changes no
    epsilon.

    Args:
      example: the shapes of one.

    Raises:
      ValueError: too few images.
    """
    records = _records(config, images)
    like = fp.Federation.blank(example, config.clients, records)
    made = Maker(config, model, like, lambda _: 1.0)
    entries = {name: Entry(made.make(name), [like]) for name in config.algorithms}
    return Ledger(entries, config.delta, model.init, NOTES)


def experiment(config: Wavelet, data: Dataset, model: fp.models.Model) -> Experiment:
    """The experiment of `config`: i.i.d. clients of equal size, and a public proxy set that is the same for all seeds.

    Raises:
      ValueError: too few images.
    """
    total = len(data.train["label"])
    records = _records(config, total)
    proxy, rest = fp.partition.hold_out(np.random.default_rng(0), np.arange(total), config.proxy)
    public = {k: jnp.asarray(v[proxy]) for k, v in data.train.items()}

    def deal(rng: np.random.Generator) -> list[np.ndarray]:
        rows = rng.permutation(rest)[: config.clients * records]
        return list(rows.reshape(config.clients, records))

    dealt = federations(data, config.seeds, deal)
    made = Maker(config, model, dealt[0], _norms(config, model, public, records))
    entries = {
        name: Entry(made.make(name), dealt, _settings(made, name)) for name in config.algorithms
    }
    return Experiment(model, data.test, config.delta, entries, notes=NOTES)


def _records(config: Wavelet, images: int) -> int:
    """Of a client."""
    records = (images - config.proxy) // config.clients
    if records < 1:
        raise ValueError(
            f"proxy: {config.proxy} of {images} images leave none for {config.clients} clients"
        )
    return records


def _settings(made: Maker, name: Name) -> dict[str, float]:
    return {} if name == "fed_avg" else {"clip_norm": made.norm(made.clipped(name))}


def _norms(
    config: Wavelet, model: fp.models.Model, public: Example, records: int
) -> Callable[[Clipped], float]:
    """What is clipped -> C."""

    @cache
    def norm(clipped: Clipped) -> float:
        if not isinstance(config.clip_norm, str):
            return config.clip_norm
        params = model.init(jax.random.key(0))
        if clipped == "update":
            return float(
                fp.median_update_norm(
                    jax.random.key(0),
                    model.loss,
                    params,
                    _pseudo_clients(public, records),
                    optimizer=optax.sgd(config.learning_rate),
                    batches=fp.epochs(config.local_epochs, config.lot),
                )
            )
        clipping = (
            fp.clipping.coefficients(dimension(params)) if clipped == "coefficients" else None
        )
        return float(fp.median_norm(fp.per_example(model.loss), params, public, clipping))

    return norm


def _pseudo_clients(public: Example, records: int) -> fp.Federation:
    """Public clients of about the size of the others."""
    total = len(public["label"])
    parts = np.array_split(np.arange(total), max(1, total // records))
    return fp.Federation.from_arrays(public, parts)
