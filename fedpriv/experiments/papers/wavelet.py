"""The experiments of the wavelet paper (Ranaweera et al., "... An Utility-Enhanced Approach", Section 6)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fedpriv as fp
from fedpriv.core.trees import dimension
from fedpriv.core.types import Example
from fedpriv.data.datasets import Dataset
from fedpriv.experiments.config.experiment import Experiment, federations
from fedpriv.experiments.config.ledger import Entry, Ledger
from fedpriv.experiments.papers.wavelet_algorithms import METHODS, Clipped, Maker
from fedpriv.experiments.papers.wavelet_settings import Wavelet

NOTES = (
    "no epsilon covers the choice of step sizes and schedules on the test set",
    "nor the clip norms, where they come from the proxy set: images of the training set that are taken to be public",
)


def ledger(settings: Wavelet, model: fp.models.Model, example: Example, images: int) -> Ledger:
    """What the algorithms of wavelet settings release with so many images; needs no data: a clip norm changes no
    epsilon.

    Args:
      example: the shapes of one.

    Raises:
      ValueError: too few images.
    """
    records = _records(settings, settings.records_left(images))
    like = fp.Federation.blank(example, settings.clients, records)
    made = Maker(settings, model, like, lambda _: 1.0)
    entries: dict[str, Entry] = {
        name: Entry(made.make(METHODS[name]), [like]) for name in settings.algorithms
    }
    return Ledger(entries, settings.delta, model.init, NOTES)


def experiment(settings: Wavelet, data: Dataset, model: fp.models.Model) -> Experiment:
    """The wavelet experiment of the settings: i.i.d. clients of equal size, and a public proxy set for all seeds.

    Raises:
      ValueError: too few images.
    """
    total = len(data.train["label"])
    records = _records(settings, total)
    proxy, rest = fp.partition.hold_out(np.random.default_rng(0), np.arange(total), settings.proxy)
    public = {k: jnp.asarray(v[proxy]) for k, v in data.train.items()}

    def deal(rng: np.random.Generator) -> list[np.ndarray]:
        rows = rng.permutation(rest)[: settings.clients * records]
        return list(rows.reshape(settings.clients, records))

    dealt = federations(data, settings.seeds, deal)
    made = Maker(settings, model, dealt[0], _norms(settings, model, public, records))
    entries: dict[str, Entry] = {}
    for name in settings.algorithms:
        method = METHODS[name]
        said = {"clip_norm": made.bound(method)} if method.private else {}
        entries[name] = Entry(made.make(method), dealt, said)
    return Experiment(model, data.test, settings.delta, entries, notes=NOTES)


def _records(settings: Wavelet, images: int) -> int:
    """Of a client."""
    records = (images - settings.proxy) // settings.clients
    if records < 1:
        raise ValueError(
            f"proxy: {settings.proxy} of {images} images leave none for {settings.clients} clients"
        )
    return records


def _norms(
    settings: Wavelet, model: fp.models.Model, public: Example, records: int
) -> Callable[[Clipped], float]:
    """What is clipped -> C."""

    @cache
    def norm(clipped: Clipped) -> float:
        if not isinstance(settings.clip_norm, str):
            return settings.clip_norm
        params = model.init(jax.random.key(0))
        if clipped == "update":
            return float(
                fp.papers.median_update_norm(
                    jax.random.key(0),
                    model.loss,
                    params,
                    _pseudo_clients(public, records),
                    optimizer=optax.sgd(settings.learning_rate),
                    batches=fp.epochs(settings.local_epochs, settings.lot),
                )
            )
        clipping = (
            fp.clipping.coefficients(dimension(params)) if clipped == "coefficients" else None
        )
        return float(fp.papers.median_norm(fp.per_example(model.loss), params, public, clipping))

    return norm


def _pseudo_clients(public: Example, records: int) -> fp.Federation:
    """Public clients of about the size of the others."""
    total = len(public["label"])
    parts = np.array_split(np.arange(total), max(1, total // records))
    return fp.Federation.from_arrays(public, parts)
